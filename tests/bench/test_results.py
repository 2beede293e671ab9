"""The results folder: what is written, what is missing, and what is never written over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench_runs import PROVENANCE, fill, make_run
from minedraft.bench.experiment import Experiment
from minedraft.bench.message import RunOutcome, decode_outcome
from minedraft.bench.results import PLAN, ResultsFolder
from minedraft.errors import ConfigError


def test_a_result_holds_run_provenance_and_outcome(tmp_path: Path) -> None:
    run = make_run(num_speculative_tokens=2, repeat=1)
    outcome = RunOutcome(
        figures={"output_tokens_per_s": 12.5, "note": "text", "ttft_ms": None},
        requests=[{"id": "a", "tokens": 3}],
        tokens_sha256="t",
        steps_sha256="s",
    )
    path = ResultsFolder(path=tmp_path).write(run, PROVENANCE, outcome)
    assert path == tmp_path / f"{run.identity}.json"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    stored = json.loads(path.read_text())
    assert stored["run"] == run.to_mapping()
    assert stored["identity"] == run.identity
    assert stored["provenance"]["git_commit"] == "abc123"
    assert stored["provenance"]["started_utc"] == "2026-01-02T03:04:05+00:00"
    read = ResultsFolder(path=tmp_path).results()[run.identity]
    assert (read.outcome, read.provenance) == (outcome, PROVENANCE)


def test_the_worker_need_not_answer_everything() -> None:
    outcome = decode_outcome(b'{"figures": {"a": 1, "b": "x", "c": null}, "more": 1}')
    assert outcome == RunOutcome(figures={"a": 1.0, "b": "x", "c": None})


def test_missing_are_those_without_a_result(tmp_path: Path) -> None:
    runs = [make_run(repeat=repeat) for repeat in range(3)]
    folder = ResultsFolder(path=tmp_path / "new")
    assert folder.missing(runs) == runs
    folder = fill(tmp_path, [(runs[1], {})])
    folder.write_failure(runs[0], PROVENANCE, "why")
    assert folder.missing(runs) == [runs[0], runs[2]]


def test_a_failure_is_kept_until_there_is_a_result(tmp_path: Path) -> None:
    run, folder = make_run(), ResultsFolder(path=tmp_path)
    folder.write_failure(run, PROVENANCE, "first")
    path = folder.write_failure(run, PROVENANCE, "second")
    assert path.name == f"{run.identity}.failed.json"
    assert [each.error for each in folder.failures().values()] == ["second"]
    assert folder.results() == {}
    folder.write(run, PROVENANCE, RunOutcome(figures={}))
    assert folder.failures() == {}


def test_a_result_is_not_written_over(tmp_path: Path) -> None:
    run = make_run()
    folder = fill(tmp_path, [(run, {"a": 1.0})])
    with pytest.raises(ConfigError, match=run.identity):
        folder.write(run, PROVENANCE, RunOutcome(figures={"a": 2.0}))
    assert folder.results()[run.identity].outcome.figures == {"a": 1.0}


@pytest.mark.parametrize("content", ["", '{"identity": 1}', "[]", '{"format": 1}'])
@pytest.mark.parametrize("name", ["notes.json", "notes.failed.json"])
def test_a_damaged_or_foreign_file_is_named_and_stays(
    tmp_path: Path, name: str, content: str
) -> None:
    folder = fill(tmp_path, [(make_run(), {})])
    (tmp_path / name).write_text(content)
    read = folder.failures if "failed" in name else folder.results
    with pytest.raises(ConfigError, match=f"{name}' is not allowed"):
        read()
    assert (tmp_path / name).read_text() == content


def test_a_result_under_another_name_is_refused(tmp_path: Path) -> None:
    run, other = make_run(), make_run(seed=1)
    folder = fill(tmp_path, [(run, {})])
    (tmp_path / f"{run.identity}.json").rename(tmp_path / f"{other.identity}.json")
    with pytest.raises(ConfigError, match=other.identity):
        folder.missing([run])


def test_a_result_of_another_format_is_refused(tmp_path: Path) -> None:
    run = make_run()
    folder = fill(tmp_path, [(run, {})])
    path = tmp_path / f"{run.identity}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2}))
    with pytest.raises(ConfigError, match="allowed: format 1"):
        folder.results()


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        ResultsFolder(path=tmp_path).write(make_run(), PROVENANCE, RunOutcome(figures={"a": {1j}}))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_belongs_to_one_experiment(tmp_path: Path) -> None:
    run = make_run()
    folder = fill(tmp_path, [(run, {})])
    assert folder.plan().runs == [run.to_mapping()]
    wider = Experiment(name="e", runs=(run, make_run("none")))
    folder.adopt(wider)
    assert len(folder.plan().runs) == 2
    with pytest.raises(ConfigError, match="a folder without results of 'e'"):
        folder.adopt(Experiment(name="f", runs=(run,)))


def test_a_folder_without_a_plan_or_with_a_bad_one_is_refused(tmp_path: Path) -> None:
    folder = ResultsFolder(path=tmp_path)
    with pytest.raises(ConfigError, match=r"a folder with experiment\.json"):
        folder.plan()
    fill(tmp_path, [(make_run(), {})])
    plan = json.loads((tmp_path / PLAN).read_text())
    (tmp_path / PLAN).write_text(json.dumps({**plan, "runs": [{"mode": "x"}]}))
    with pytest.raises(ConfigError, match=r"experiment\.json' is not allowed"):
        folder.plan()
