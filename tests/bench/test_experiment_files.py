"""Owns the rule that every committed experiment can be run: whole, and quickly."""

from __future__ import annotations

from pathlib import Path

import pytest

from minedraft.bench.datasets import DatasetSpec
from minedraft.bench.experiment import Experiment
from minedraft.bench.load import LoadSpec

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "experiments").glob("*.toml"))
MOST_QUICK_RUNS = 15
"""Each takes about 25 s, most of them to start."""


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    """One experiment's file after the other."""
    return Path(request.param)


def _output_tokens(experiment: Experiment) -> int:
    return sum(run.max_tokens * run.dataset.get("count", 1) for run in experiment.runs)


def test_there_are_experiments() -> None:
    assert FILES


def test_every_run_is_there_once(path: Path) -> None:
    for quick in (False, True):
        runs = Experiment.from_toml(path, quick=quick).runs
        assert runs
        assert len({run.identity for run in runs}) == len(runs)


def test_the_name_is_the_files(path: Path) -> None:
    assert Experiment.from_toml(path).name == path.stem


def test_quick_is_smaller(path: Path) -> None:
    whole, quick = Experiment.from_toml(path), Experiment.from_toml(path, quick=True)
    assert len(quick.runs) <= len(whole.runs)
    assert len(quick.runs) <= MOST_QUICK_RUNS
    assert _output_tokens(quick) < _output_tokens(whole) / 5


def test_data_sets_and_loads_are_what_the_runner_reads(path: Path) -> None:
    for run in Experiment.from_toml(path).runs:
        dataset = DatasetSpec.from_mapping(run.dataset)
        assert dataset.path is not None
        assert (ROOT / dataset.path).is_file()
        LoadSpec.from_mapping(run.load)


def test_a_report_can_compare_with_its_baseline(path: Path) -> None:
    for quick in (False, True):
        experiment = Experiment.from_toml(path, quick=quick)
        assert experiment.report.baseline in {run.mode for run in experiment.runs}


def test_prompts_fill_all_batches(path: Path) -> None:
    for run in Experiment.from_toml(path).runs:
        if run.load.get("kind", "offline") == "offline":
            assert run.dataset["count"] >= run.max_num_seqs
