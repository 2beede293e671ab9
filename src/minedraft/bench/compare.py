"""Two results folders compared: the settings that both have, and how a figure changed.

Owns which change counts as a regression; repeats of two folders are independent samples.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from minedraft.bench import markdown
from minedraft.bench.estimates import Estimate, Method, choose_method, estimate, estimate_ratio
from minedraft.bench.results import Result, ResultsFolder
from minedraft.bench.spec import MODES, RunSpec
from minedraft.bench.study import Setting, device_label, group_by_setting, varying_fields
from minedraft.bench.tables import flatten
from minedraft.errors import ConfigError

TOLERANCE = 0.05
"""Change from which on a setting with a single run counts as changed."""
_TIME = re.compile(r"(?:^|_)(?:s|ms|us|ns)(?:_(?:mean|median|min|max|p\d+))?$")


class Verdict(Enum):
    """What became of a figure."""

    WORSE = "**worse**"
    BETTER = "better"
    UNCLEAR = "no clear change"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One figure of one setting, before and after; `ratio` is after over before."""

    setting: RunSpec
    figure: str
    before: Estimate
    after: Estimate
    ratio: Estimate | None
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Changes in the order of settings and figures, and what is in one folder only."""

    changes: tuple[Change, ...]
    only_before: tuple[RunSpec, ...]
    only_after: tuple[RunSpec, ...]
    versions: tuple[tuple[str, str, str], ...]
    """Name, before and after, where they differ."""
    method: str

    @property
    def regressions(self) -> tuple[Change, ...]:
        """The changes for the worse."""
        return tuple(each for each in self.changes if each.verdict is Verdict.WORSE)


def less_is_better(figure: str) -> bool:
    """Whether the figure is a time: its name ends in a unit of time that is divided by nothing."""
    return "_per_" not in figure and _TIME.search(figure) is not None


def compare(
    before: Path, after: Path, figures: Sequence[str], method: Method | None = None
) -> Comparison:
    """Compare `figures` of the settings that both folders have.

    Raises:
        ConfigError: a folder holds no result, or a damaged or foreign file; or the folders
            have no setting with one of the figures in common.
    """
    method = choose_method() if method is None else method
    sides = [_load(path) for path in (before, after)]
    old, new = ({each.spec.setting: each for each in side} for side in sides)
    changes = [
        change
        for key, setting in old.items()
        if key in new
        for figure in figures
        if (change := _change(setting, new[key], figure, method)) is not None
    ]
    if not changes:
        raise ConfigError.bad_value(
            "figures", list(figures), f"figures of settings in both {before} and {after}"
        )
    return Comparison(
        changes=tuple(changes),
        only_before=tuple(each.spec for key, each in old.items() if key not in new),
        only_after=tuple(each.spec for key, each in new.items() if key not in old),
        versions=tuple(_versions(*sides)),
        method=method.name,
    )


def render_comparison(comparison: Comparison, before: str, after: str) -> str:
    """The comparison as Markdown."""
    varying = varying_fields([each.setting for each in comparison.changes])
    labels = ["mode", *(path for path in varying if path != "mode")]
    head = [*labels, "device", "figure", "before", "after", "after / before", "n", "verdict"]
    rows = [
        [
            *(markdown.plain(each.setting.value(path)) for path in labels),
            device_label(each.setting),
            each.figure,
            markdown.middle(each.before),
            markdown.middle(each.after),
            markdown.ratio(each.ratio),
            f"{each.before.count}, {each.after.count}",
            each.verdict.value,
        ]
        for each in comparison.changes
    ]
    lines = [f"# {after} against {before}", "", *markdown.table(head, rows), ""]
    lines.append(
        f"Medians over repeats; 95 % intervals: {comparison.method}, of logarithms. Worse or "
        "better: the interval leaves out 1; without an interval, a change of "
        f"{TOLERANCE:.0%} or more."
    )
    lines += [f"- {name}: {old} before, {new} after" for name, old, new in comparison.versions]
    for side, specs in (("before", comparison.only_before), ("after", comparison.only_after)):
        if specs:
            lines.append(f"- {len(specs)} settings only {side}")
    return "\n".join([*lines, ""])


def _load(path: Path) -> list[Setting]:
    results = ResultsFolder(path=path).results()
    if not results:
        raise ConfigError.bad_value("results", str(path), "a folder with results")
    runs = [RunSpec.from_mapping(each.run) for each in results.values()]
    return sorted(group_by_setting(runs, results), key=_sort_key)


def _sort_key(setting: Setting) -> tuple[int, list[tuple[str, float, str]]]:
    # By what the settings are, since file names are hashes; 8 in flight comes before 16.
    values = sorted(flatten(setting.spec.to_full_mapping()).items())
    numbers = (int, float)
    return MODES.index(setting.spec.mode), [
        (path, value if isinstance(value, numbers) else 0.0, repr(value)) for path, value in values
    ]


def _change(old: Setting, new: Setting, figure: str, method: Method) -> Change | None:
    values = [list(each.values(figure).values()) for each in (old, new)]
    before, after = (estimate(each, method) for each in values)
    if before is None or after is None:
        return None
    ratio = estimate_ratio(values[1], values[0], method)
    return Change(
        setting=old.spec,
        figure=figure,
        before=before,
        after=after,
        ratio=ratio,
        verdict=_judge(ratio, less_is_better(figure)),
    )


def _judge(ratio: Estimate | None, less: bool) -> Verdict:
    if ratio is None:
        return Verdict.UNCLEAR
    if ratio.low is not None and ratio.high is not None:
        shrank, grew = ratio.high < 1, ratio.low > 1
    else:
        shrank, grew = ratio.middle <= 1 - TOLERANCE, ratio.middle >= 1 + TOLERANCE
    if not (shrank or grew):
        return Verdict.UNCLEAR
    return Verdict.BETTER if shrank == less else Verdict.WORSE


def _versions(old: list[Setting], new: list[Setting]) -> Iterable[tuple[str, str, str]]:
    sides = [[each for one in side for each in one.by_repeat.values()] for side in (old, new)]
    names = sorted({name for side in sides for each in side for name in each.provenance.versions})
    for name in names:
        before, after = (_version(side, name) for side in sides)
        if before != after:
            yield name, before, after
    commits = [sorted({str(each.provenance.git_commit) for each in side}) for side in sides]
    if commits[0] != commits[1]:
        yield "commit", ", ".join(commits[0]), ", ".join(commits[1])


def _version(results: list[Result], name: str) -> str:
    return ", ".join(sorted({each.provenance.versions.get(name, "none") for each in results}))
