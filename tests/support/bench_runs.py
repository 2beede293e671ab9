"""Runs, outcomes and results folders made by hand; nothing here starts an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minedraft.bench.experiment import Experiment, ReportPlan
from minedraft.bench.message import RunOutcome
from minedraft.bench.provenance import Provenance
from minedraft.bench.results import ResultsFolder
from minedraft.bench.spec import RunSpec

EMULATE = {"target": {"fixed_ms": 30.0}, "draft": {"fixed_ms": 5.0}}
PROVENANCE = Provenance(
    versions={"minedraft": "1.0", "vllm": "0.32.0"},
    git_commit="abc123",
    git_dirty=False,
    platform="Linux",
    python="3.11.0",
    cpu_count=2,
    cpu_model="a CPU",
    devices=[],
    command=["minedraft", "bench", "run", "e.toml"],
    started_utc="2026-01-02T03:04:05+00:00",
    duration_s=10.0,
)

Figures = Mapping[str, float | str | None]


def make_run(mode: str = "two-batch", **changes: Any) -> RunSpec:
    """A run from a few fields; the rest is filled in."""
    table = {
        "mode": mode,
        "target": "T",
        "draft": "D",
        "dataset": {"name": "jsonl", "path": "p.jsonl"},
    }
    return RunSpec.from_mapping({**table, **changes})


def fill(
    path: Path,
    figures: Sequence[tuple[RunSpec, Figures]],
    *,
    report: ReportPlan | None = None,
    missing: Sequence[RunSpec] = (),
    provenance: Provenance = PROVENANCE,
) -> ResultsFolder:
    """A results folder of runs and their figures; its plan has those of `missing` too."""
    folder = ResultsFolder(path=path)
    experiment = Experiment(
        name="e",
        description="What it is.",
        runs=(*(spec for spec, _ in figures), *missing),
        report=report or ReportPlan(),
    )
    folder.adopt(experiment)
    for spec, each in figures:
        outcome = RunOutcome(figures=dict(each), tokens_sha256=f"tokens of {spec.repeat}")
        folder.write(spec, provenance, outcome)
    return folder
