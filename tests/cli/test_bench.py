"""The bench commands: flags, files, exit codes and printed lines; no engine starts."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from bench_runs import PROVENANCE, fill, make_run
from minedraft.bench.message import RunOutcome
from minedraft.bench.provenance import Provenance
from minedraft.bench.results import ResultsFolder
from minedraft.bench.spec import RunSpec
from minedraft.bench.worker_process import WorkerProcess
from minedraft.cli import main
from minedraft.errors import BenchError

EXPERIMENT = """
name = "tiny"
[base]
target = "T"
draft = "D"
dataset = {name = "jsonl", path = "p"}
[[grid]]
mode = ["none", "two-batch"]
[quick]
max_tokens = 3
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An experiment, in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = Path("tiny.toml")
    path.write_text(EXPERIMENT)
    return path


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[RunSpec, float]]:
    """Runs and their time limits; those with seed 1 fail."""
    runs: list[tuple[RunSpec, float]] = []

    def fake(self: WorkerProcess, spec: RunSpec, folder: ResultsFolder) -> RunOutcome:
        runs.append((spec, self.limit_s))
        if spec.seed == 1:
            raise BenchError("minedraft: it broke")
        return RunOutcome(figures={"output_tokens_per_s": 10.0})

    monkeypatch.setattr(WorkerProcess, "run", fake)
    monkeypatch.setattr("minedraft.cli.bench.require_vllm", lambda: None)
    monkeypatch.setattr("minedraft.cli.bench.gather", _gather)
    return runs


def _gather(command: list[str]) -> Provenance:
    return msgspec.structs.replace(PROVENANCE, command=command)


def test_run_does_what_is_missing(
    file: Path, ran: list[tuple[RunSpec, float]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "run", str(file), "--only", "none", "--limit-s", "9"]) == 0
    assert [(spec.mode, limit_s) for spec, limit_s in ran] == [("none", 9.0)]
    assert main(["bench", "run", str(file)]) == 0
    assert [spec.mode for spec, _ in ran] == ["none", "two-batch"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "1 done, 0 failed, 0 kept; results in results/bench/tiny"
    assert lines[-1] == "1 done, 0 failed, 1 kept; results in results/bench/tiny"
    results = ResultsFolder(path=Path("results/bench/tiny")).results()
    assert [results[spec.identity].provenance.command for spec, _ in ran] == [
        ["minedraft", "bench", "run", "tiny.toml", "--only", "none", "--limit-s", "9"],
        ["minedraft", "bench", "run", "tiny.toml"],
    ]


def test_quick_has_a_folder_of_its_own(file: Path, ran: list[tuple[RunSpec, float]]) -> None:
    assert main(["bench", "run", str(file), "--quick"]) == 0
    assert [spec.max_tokens for spec, _ in ran] == [3, 3]
    assert len(ResultsFolder(path=Path("results/bench/tiny-quick")).results()) == 2


def test_a_failed_run_is_the_exit_code(
    file: Path, ran: list[tuple[RunSpec, float]], capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(EXPERIMENT + "[[grid]]\nseed = [1]\nmode = ['pearl']\n")
    assert main(["bench", "run", str(file), "--results", "r"]) == 1
    assert len(ran) == 3
    out = capsys.readouterr().out
    assert ".failed.json: minedraft: it broke" in out
    assert out.endswith("2 done, 1 failed, 0 kept; results in r\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.toml"], "minedraft: experiment 'none.toml': cannot be read"),
        (["tiny.toml", "--only", "pearl"], "--only = 'pearl' is not allowed; allowed: a mode of"),
        (["tiny.toml", "--limit-s", "0"], "--limit-s = 0.0 is not allowed"),
        (["tiny.toml", "--results", "other"], "a folder without results of 'e'"),
        (["tiny.toml", "--results", "broken"], "file = 'broken/x.json' is not allowed"),
        (["tiny.toml", "--results", "tiny.toml"], "cannot write 'tiny.toml'"),
        (["lost.toml"], "target = './lost' is not allowed; allowed: a folder that exists"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(
    file: Path,
    ran: list[tuple[RunSpec, float]],
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    fill(Path("other"), [(make_run(), {})])
    Path("broken").mkdir()
    Path("broken/x.json").write_text("{")
    Path("lost.toml").write_text(EXPERIMENT.replace('"T"', '"./lost"'))
    assert main(["bench", "run", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert ran == []


def test_report_names_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path / "r", [(make_run(), {"output_tokens_per_s": 1.0})])
    assert main(["bench", "report", str(tmp_path / "r")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        str(tmp_path / "r" / "report.md"),
        str(tmp_path / "r" / "report-output_tokens_per_s.png"),
    ]
    assert main(["bench", "report", str(tmp_path / "r"), "--out", str(tmp_path / "o.md")]) == 0
    text = (tmp_path / "o.md").read_text()
    assert f"minedraft bench report {tmp_path}/r --out {tmp_path}/o.md\n" in text
    # A report in the folder does not disturb what reads it.
    assert len(ResultsFolder(path=tmp_path / "r").results()) == 1


def test_report_needs_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "report", str(tmp_path)]) == 2
    assert "a folder with experiment.json" in capsys.readouterr().err


def test_compare_returns_one_if_worse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    fill(Path(a), [(make_run(), {"output_tokens_per_s": 10.0, "ttft_ms": 5.0})])
    fill(Path(b), [(make_run(), {"output_tokens_per_s": 8.0, "ttft_ms": 5.0})])
    assert main(["bench", "compare", a, b]) == 1
    row = "| two-batch | real | output_tokens_per_s | 10 | 8 | 0.800 | 1, 1 | **worse** |"
    assert row in capsys.readouterr().out
    assert main(["bench", "compare", a, b, "--figure", "ttft_ms"]) == 0
    assert main(["bench", "compare", a, str(tmp_path / "c")]) == 2


def test_compare_shows_the_figures_of_the_first_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "a", [(make_run(), {"output_tokens_per_s": 10.0})])
    path = tmp_path / "a" / "experiment.json"
    plan = json.loads(path.read_text())
    path.write_text(json.dumps({**plan, "report": {"figures": ["other"]}}))
    assert main(["bench", "compare", str(tmp_path / "a"), str(tmp_path / "a")]) == 2
    assert "figures = ['other'] is not allowed" in capsys.readouterr().err
    path.unlink()
    assert main(["bench", "compare", str(tmp_path / "a"), str(tmp_path / "a")]) == 0
