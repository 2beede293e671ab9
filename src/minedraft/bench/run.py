"""Runs an experiment: in which order, what is kept, and how far it is.

Owns the loop; one run is a Runner's, its files are the results folder's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean
from typing import Protocol

from minedraft.bench.message import RunOutcome
from minedraft.bench.provenance import Provenance, of_run
from minedraft.bench.results import ResultsFolder
from minedraft.bench.spec import RunSpec
from minedraft.errors import BenchError
from minedraft.model_names import check_model_name


class Runner(Protocol):
    """Does one run."""

    def run(self, spec: RunSpec, folder: ResultsFolder) -> RunOutcome:
        """What the run gave; its log goes to `folder`. BenchError if it failed."""
        ...


class Clock(Protocol):
    """The time, so that tests can set it."""

    def now(self) -> datetime:
        """The date and time, with a zone."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since some moment; never goes back."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """The date and time, in UTC."""
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        """Seconds since some moment; never goes back."""
        return time.monotonic()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Runs by how they ended; `kept` had a result before."""

    done: int
    failed: int
    kept: int


def in_order(runs: Sequence[RunSpec]) -> list[RunSpec]:
    """`runs` so that each repeat is complete before the next, and modes alternate.

    Runs of one repeat that differ in their mode, or in what some modes ignore, follow each
    other: what drifts on the machine then meets all modes alike. Else the order stays.
    """
    neighbours = [spec.in_mode("none").setting for spec in runs]
    places = {setting: place for place, setting in reversed(list(enumerate(neighbours)))}
    keyed = zip(runs, neighbours, strict=True)
    return [spec for spec, _ in sorted(keyed, key=lambda each: (each[0].repeat, places[each[1]]))]


def check_models(runs: Sequence[RunSpec]) -> None:
    """Raise ConfigError for a model's folder that is not there."""
    for spec in runs:
        check_model_name("target", spec.target)
        if spec.draft is not None:
            check_model_name("draft", spec.draft)


def run_experiment(
    runs: Sequence[RunSpec],
    folder: ResultsFolder,
    runner: Runner,
    common: Provenance,
    *,
    clock: Clock,
    say: Callable[[str], None],
) -> Tally:
    """Do those of `runs` that have no result in `folder`; `say` gets lines on the progress.

    A run that fails is recorded, and the others go on. An interrupt leaves the finished
    results as they are, and nothing of the run it meets.

    Raises:
        ConfigError: the folder holds a damaged or foreign file; nothing has started then.
    """
    todo = in_order(folder.missing(runs))
    kept = len(runs) - len(todo)
    pace = _Pace.from_folder(folder)
    if kept:
        say(f"{kept} of {len(runs)} runs have a result already")
    failed = 0
    for place, spec in enumerate(todo):
        say(f"[{kept + place + 1}/{len(runs)}] {describe(spec)}{pace.left(todo[place:])}")
        started, begin_s = clock.now(), clock.monotonic_s()
        error: BenchError | None = None
        outcome = RunOutcome(figures={})
        try:
            outcome = runner.run(spec, folder)
        except BenchError as failure:
            error = failure
        duration_s = clock.monotonic_s() - begin_s
        provenance = of_run(
            common,
            started=started,
            duration_s=duration_s,
            versions=outcome.versions,
            devices=outcome.devices,
        )
        if error is not None:
            failed += 1
            path = folder.write_failure(spec, provenance, str(error))
            say(f"  failed after {duration_s:.0f} s, see {path}: {str(error).splitlines()[0]}")
            continue
        folder.write(spec, provenance, outcome)
        pace.add(spec, duration_s)
        say(f"  done in {duration_s:.0f} s")
    return Tally(done=len(todo) - failed, failed=failed, kept=kept)


def describe(spec: RunSpec) -> str:
    """The run in a few words."""
    drafts = "" if spec.ignores("draft") else f", k = {spec.num_speculative_tokens}"
    return f"{spec.mode}{drafts}, {spec.max_num_seqs} in flight, repeat {spec.repeat + 1}"


class _Pace:
    """Durations so far by mode, and what they say of the runs that are left."""

    def __init__(self) -> None:
        self._durations_s: dict[str, list[float]] = {}

    @classmethod
    def from_folder(cls, folder: ResultsFolder) -> _Pace:
        pace = cls()
        for result in folder.results().values():
            pace.add(RunSpec.from_mapping(result.run), result.provenance.duration_s)
        return pace

    def add(self, spec: RunSpec, duration_s: float) -> None:
        self._durations_s.setdefault(spec.mode, []).append(duration_s)

    def left(self, todo: Sequence[RunSpec]) -> str:
        known = [each for durations in self._durations_s.values() for each in durations]
        if not known:
            return ""
        left_s = sum(fmean(self._durations_s.get(spec.mode, known)) for spec in todo)
        return f", about {format_duration(left_s)} left"


def format_duration(seconds: float) -> str:
    """Seconds in the largest units that fit, as in '45 s', '12 min' or '3 h 05 min'."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
