"""A results folder as reports see it: settings, each with its repeats, and what is compared.

Owns the pairing of settings with their baseline; it computes no statistics and prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from minedraft.bench.experiment import ReportPlan
from minedraft.bench.results import Failure, Result, ResultsFolder
from minedraft.bench.spec import BATCHES, RunSpec
from minedraft.bench.tables import flatten
from minedraft.errors import ConfigError


def device_label(spec: RunSpec) -> str:
    """What the times of a run are: real, or modelled; and if so, by which clock."""
    if spec.emulate is None:
        return "real"
    return "emulated, virtual clock" if spec.has_virtual_clock else "emulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting (a run without its repeat) and its results by repeat."""

    spec: RunSpec
    by_repeat: Mapping[int, Result]

    @property
    def emulated(self) -> bool:
        """Whether its times are modelled."""
        return self.spec.emulate is not None

    @property
    def device(self) -> str:
        """The label that every result carries; see `device_label`."""
        return device_label(self.spec)

    def values(self, figure: str) -> dict[int, float]:
        """The figure by repeat, where it is a number."""
        found = {
            repeat: result.outcome.figures.get(figure) for repeat, result in self.by_repeat.items()
        }
        return {repeat: each for repeat, each in found.items() if isinstance(each, float)}

    def words(self, figure: str) -> list[str]:
        """The figure's different values where it is text."""
        found = [result.outcome.figures.get(figure) for result in self.by_repeat.values()]
        return sorted({each for each in found if isinstance(each, str)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What a results folder holds of its plan, in the plan's order."""

    folder: Path
    name: str
    description: str
    report: ReportPlan
    settings: tuple[Setting, ...]
    """Those with at least one result."""
    labels: tuple[str, ...]
    """Dotted names of the fields that tell settings apart, the series last."""
    missing: tuple[RunSpec, ...]
    failures: tuple[Failure, ...]
    strangers: int
    """Results in the folder that the plan does not have; they are not shown."""

    def find(self, spec: RunSpec) -> Setting | None:
        """The setting of `spec`, if there are results of it."""
        wanted = spec.setting
        return next((each for each in self.settings if each.spec.setting == wanted), None)

    def baseline(self, setting: Setting) -> Setting | None:
        """The baseline with as many requests in flight; None for the baseline itself."""
        return self._baseline(setting, setting.spec.max_num_seqs)

    def batch_baseline(self, setting: Setting) -> Setting | None:
        """The baseline with as many requests in a batch; None for the baseline itself."""
        mode = self.report.baseline
        if mode is None:
            return None
        in_batch, rest = divmod(setting.spec.max_num_seqs, setting.spec.batches)
        return None if rest else self._baseline(setting, in_batch * BATCHES.get(mode, 1))

    def _baseline(self, setting: Setting, max_num_seqs: int) -> Setting | None:
        mode = self.report.baseline
        if mode is None or mode == setting.spec.mode:
            return None
        try:
            return self.find(setting.spec.in_mode(mode, max_num_seqs=max_num_seqs))
        except ConfigError:
            # Plain decoding has no draft model for a baseline that drafts.
            return None


def load_study(folder: Path) -> Study:
    """Read a results folder.

    Raises:
        ConfigError: it holds no plan, or a damaged or foreign file; the error names it.
    """
    results_folder = ResultsFolder(path=folder)
    plan = results_folder.plan()
    report = ReportPlan.from_mapping(plan.report)
    runs = [RunSpec.from_mapping(each) for each in plan.runs]
    results = results_folder.results()
    planned = {spec.identity for spec in runs}
    settings = tuple(group_by_setting(runs, results))
    failures = results_folder.failures()
    return Study(
        folder=folder,
        name=plan.name,
        description=plan.description,
        report=report,
        settings=settings,
        labels=_labels(report, [each.spec for each in settings]),
        missing=tuple(spec for spec in runs if spec.identity not in results),
        failures=tuple(
            each for name, each in failures.items() if name in planned and name not in results
        ),
        strangers=len(results.keys() - planned),
    )


def group_by_setting(runs: Sequence[RunSpec], results: Mapping[str, Result]) -> Iterator[Setting]:
    """The settings of `runs` that have results, in the order of `runs`."""
    groups: dict[str, tuple[RunSpec, dict[int, Result]]] = {}
    for spec in runs:
        if spec.identity in results:
            _, by_repeat = groups.setdefault(spec.setting, (replace(spec, repeat=0), {}))
            by_repeat[spec.repeat] = results[spec.identity]
    for spec, by_repeat in groups.values():
        yield Setting(spec=spec, by_repeat=dict(sorted(by_repeat.items())))


def varying_fields(specs: Sequence[RunSpec]) -> list[str]:
    """Dotted names of what differs between those of `specs` whose mode uses it."""
    paths = dict.fromkeys(path for spec in specs for path in flatten(spec.to_full_mapping()))
    return [
        path
        for path in paths
        # A table that only some have is told by what is in it.
        if not any(other.startswith(f"{path}.") for other in paths)
        and len({repr(spec.value(path)) for spec in specs if not spec.ignores(path)}) > 1
    ]


def _labels(report: ReportPlan, specs: Sequence[RunSpec]) -> tuple[str, ...]:
    """The plan's rows, then what else differs, then the series."""
    named = (*report.rows, report.series)
    others = (path for path in varying_fields(specs) if path not in named)
    return (*report.rows, *others, report.series)
