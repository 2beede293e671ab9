"""The command line of `minedraft profile`: what is refused before vLLM is imported, the table."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from minedraft.cli import main, options
from minedraft.cli import profile as profile_command
from minedraft.cli.profile import read_list, render
from minedraft.errors import ConfigError
from minedraft.profiles import PassProfile, Profile
from profiles import make_profile, point


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("-k 0", "-k = 0"),
        ("-k 2,65", "-k = 65"),
        ("-k two", "-k = 'two'"),
        ("-k ", "-k = ''"),
        ("--in-flight 1,,2", "--in-flight = '1,,2'"),
        ("--in-flight 0,1", "--in-flight = 0"),
        ("--context -5", "--context = -5"),
        ("--repeats 0", "--repeats = 0"),
        ("--seed -1", "--seed = -1"),
        ("--draft-device gpu:1", "draft_device = 'gpu:1'"),
        ("--target-cores x", "target_cores = 'x'"),
        ("--draft-memory-share 2", "draft_memory_share = 2"),
        ("--draft-devise cpu:1", "did you mean --draft-device"),
        ("--draft-method ngram", "this command has no --draft-method"),
        ("--output {tmp}/nowhere/p.json", "nowhere/p.json': its folder does not exist"),
        ("--output {tmp}", "it is a folder"),
        (f"--output {{tmp}}/{'n' * 300}", "File name too long"),
    ],
)
def test_bad_flags_are_explained(
    flags: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = "vllm" in sys.modules
    words = ["profile", "T", "--draft", "D", "--output", str(tmp_path / "p.json")]
    # In one word, as a value that begins with a dash must be.
    given = flags.format(tmp=tmp_path).split(" ")
    assert main([*words, *_joined(given)]) == 2
    assert says in capsys.readouterr().err
    assert ("vllm" in sys.modules) == before
    assert not (tmp_path / "p.json").exists()


def _joined(words: list[str]) -> list[str]:
    flag, value = words
    return [f"{flag}={value}"] if flag.startswith("--") else [f"{flag}{value}"] if value else words


def test_without_vllm_the_extras_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "find_spec", lambda name: None)
    assert main(["profile", "T", "--draft", "D", "--output", str(tmp_path / "p.json")]) == 2
    assert "minedraft[cpu] or minedraft[gpu]" in capsys.readouterr().err


def test_without_scipy_its_extra_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    assert main(["profile", "T", "--draft", "D", "--output", str(tmp_path / "p.json")]) == 2
    assert "minedraft[profile]" in capsys.readouterr().err


def test_the_table_is_there_even_if_the_disk_is_full(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(profile: Profile, path: Path) -> None:
        raise ConfigError(f"minedraft: cannot write {str(path)!r}: No space left on device")

    measuring = ModuleType("measuring")
    measuring.ProfiledPair = measuring.Grid = lambda **fields: SimpleNamespace(  # type: ignore[attr-defined]
        **{"max_model_len": 1, **fields}
    )
    measuring.measure = lambda *given: make_profile()  # type: ignore[attr-defined]
    for name in ("profile_engine", "profile_run"):
        monkeypatch.setitem(sys.modules, f"minedraft.plugin.{name}", measuring)
    monkeypatch.setattr(profile_command, "require_vllm", lambda: None)
    monkeypatch.setattr(profile_command, "write_profile", fail)
    words = ["profile", "T", "--draft", "D", "--output", str(tmp_path / "p.json")]
    assert main(words) == 2
    shown = capsys.readouterr()
    assert render(make_profile()) in shown.out
    assert "No space left" in shown.err


def test_lists_are_sorted_and_without_doubles() -> None:
    assert read_list("-k", "4,1, 4,2", 1, 9) == (1, 2, 4)


def test_the_table_has_every_point_and_its_errors() -> None:
    passes = PassProfile.of([point(1, 1, 9, 12.0), point(1, 1, 9, 10.0, high_ms=11.0)])
    text = render(make_profile(target=passes, overhead_ms=1.25, round_trip_ms=0.5))
    assert "overhead 1.25 ms a step; asking for drafts 0.50 ms" in text
    rows = [line.split() for line in text.splitlines()]
    # 732/61 and so on: the x that makes (x/12 - 1)^2 + (x/10 - 1)^2 least is 10.82.
    assert ["1", "1", "9", "12", "12-12", "9", "-9.8%", "-9.8%"] in rows
    assert ["1", "1", "9", "10", "10-11", "9", "+8.2%", "+8.2%"] in rows
