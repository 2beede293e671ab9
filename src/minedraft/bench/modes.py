"""The modes side by side: which is best where, and where drafting does not pay.

Owns that table of a report; the figures are the study's.
"""

from __future__ import annotations

from collections.abc import Sequence

from minedraft.bench import markdown
from minedraft.bench.estimates import Estimate, Method, estimate
from minedraft.bench.spec import RunSpec
from minedraft.bench.study import Setting, Study
from minedraft.errors import ConfigError

_PLAIN = "none"
_REFERENCE = "sequential"
_FEWEST_MODES = 3
BELOW_PLAIN = "*"


def modes_table(study: Study, method: Method) -> list[str]:
    """Lines with a row for each setting and a column for each mode; none for fewer than three
    modes. The best of a row is bold, and one below plain decoding has `BELOW_PLAIN`."""
    modes = list(dict.fromkeys(each.spec.mode for each in study.settings))
    if len(modes) < _FEWEST_MODES:
        return []
    labels = [each for each in study.labels if each != "mode"]
    rows = [
        [
            *(markdown.plain(spec.value(each)) for each in labels),
            *_cells(study, spec, modes, method),
        ]
        for spec in _settings_of_drafting(study.settings)
    ]
    note = (
        f"Medians of {study.report.throughput} at equal requests in flight: the best of a row is "
        f"bold; {BELOW_PLAIN} is below plain decoding."
    )
    return [note, "", *markdown.table([*labels, *modes], rows)] if rows else []


def _settings_of_drafting(settings: Sequence[Setting]) -> list[RunSpec]:
    """What is told apart by more than the mode, each as a run that drafts."""
    found: dict[str, RunSpec] = {}
    for each in settings:
        if each.spec.ignores("draft_device"):
            continue
        spec = each.spec.in_mode(_REFERENCE)
        found.setdefault(spec.setting, spec)
    return list(found.values())


def _cells(study: Study, spec: RunSpec, modes: Sequence[str], method: Method) -> list[str]:
    found = {mode: _median(study, spec, mode, method) for mode in modes}
    values = [each.middle for each in found.values() if each is not None]
    plain = found.get(_PLAIN)
    return [_cell(each, max(values, default=0.0), plain) for each in found.values()]


def _cell(found: Estimate | None, best: float, plain: Estimate | None) -> str:
    text = markdown.middle(found)
    if found is None:
        return text
    if found.middle == best:
        return f"**{text}**"
    return text + BELOW_PLAIN * (plain is not None and found.middle < plain.middle)


def _median(study: Study, spec: RunSpec, mode: str, method: Method) -> Estimate | None:
    try:
        setting = study.find(spec.in_mode(mode))
    except ConfigError:
        return None
    if setting is None:
        return None
    return estimate(list(setting.values(study.report.throughput).values()), method)
