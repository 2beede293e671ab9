"""``minedraft trace`` through its own parser and run function."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pytest

from minedraft.cli import trace as command
from minedraft.trace import StepRecord, TraceHeader, TraceWriter


@pytest.fixture
def path(tmp_path: Path, header: TraceHeader, steps: list[StepRecord]) -> Path:
    path = tmp_path / "run.jsonl"
    with TraceWriter(path, header) as sink:
        for step in steps:
            sink.write(step)
    return path


def _run(*words: str | Path) -> int:
    parser = argparse.ArgumentParser(prog="minedraft")
    command.add_parser(parser.add_subparsers())
    args = parser.parse_args(["trace", *map(str, words)])
    code = args.run(args)
    assert isinstance(code, int)
    return code


def test_table(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(path) == 0
    out, err = capsys.readouterr()
    assert err == ""
    rows = dict(line.strip().split("  ", 1) for line in out.splitlines())
    values = {name: rest.split()[0] for name, rest in rows.items()}
    assert values["mode"] == "two-batch"
    assert values["steps"] == "41"
    assert values["prefill"] == "1"
    assert values["acceptance rate"] == "0.500"
    assert values["at position 1"] == "1.000"
    assert values["max(t, V)"] == "9.000"
    assert values["draft time overlapped"] == "1.000"


def test_columns_are_aligned(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(path) == 0
    with_unit = [line for line in capsys.readouterr().out.splitlines() if line.endswith(" ms")]
    assert len(with_unit) > 3
    assert len({len(line) for line in with_unit}) == 1


def test_unknown_values_are_dashes(
    tmp_path: Path, header: TraceHeader, steps: list[StepRecord], capsys: pytest.CaptureFixture[str]
) -> None:
    with TraceWriter(tmp_path / "run.jsonl", header) as sink:
        sink.write(steps[0])
    assert _run(tmp_path / "run.jsonl") == 0
    (line,) = [row for row in capsys.readouterr().out.splitlines() if row.startswith("acceptance")]
    assert line.split() == ["acceptance", "rate", "-"]


def test_json(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(path, "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["num_steps"] == 41
    assert summary["steps_by_mode"] == {"prefill": 1, "two-batch": 40}


def test_files_without_summary(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    png, events = tmp_path / "a.png", tmp_path / "a.json"
    assert _run(path, "--png", png, "--perfetto", events) == 0
    assert png.read_bytes().startswith(b"\x89PNG")
    assert json.loads(events.read_bytes())["traceEvents"]
    assert capsys.readouterr() == ("", "")


def test_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(tmp_path / "none.jsonl") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"minedraft trace: {tmp_path / 'none.jsonl'}: No such file or directory\n"


def test_folder_in_place_of_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(tmp_path) == 2
    assert f"{tmp_path}: Is a directory" in capsys.readouterr().err


def test_bad_field(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = path.read_text().splitlines(keepends=True)
    lines[3] = lines[3].replace('"wait_ns":0', '"wait_ns":"0"')
    path.write_text("".join(lines))
    assert _run(path) == 2
    expected = f"minedraft trace: {path}:4: field wait_ns: Expected `int`, got `str`\n"
    assert capsys.readouterr().err == expected


def test_unwritable_output(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "no" / "a.json"
    assert _run(path, "--perfetto", target) == 2
    assert f"{target}: No such file" in capsys.readouterr().err


def test_the_trace_is_never_overwritten(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = path.read_bytes()
    for flag in ("--png", "--perfetto"):
        assert _run(path, flag, path.parent / "." / path.name) == 2
        assert "must be different files" in capsys.readouterr().err
    assert path.read_bytes() == before


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs /dev/full")
def test_full_disk_names_the_output(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(path, "--perfetto", "/dev/full") == 2
    assert capsys.readouterr().err == "minedraft trace: /dev/full: No space left on device\n"


def test_nothing_to_draw(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_text(path.read_text().splitlines(keepends=True)[0])
    assert _run(path, "--png", tmp_path / "a.png") == 2
    assert f"{path}: steps: the trace has none" in capsys.readouterr().err


def test_png_without_matplotlib(
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert _run(path, "--png", tmp_path / "a.png") == 2
    assert "--png needs matplotlib" in capsys.readouterr().err
