"""The modes side by side: which is best where, and where drafting does not pay.

Owns that table of a report; the figures are the study's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from minedraft.bench import markdown
from minedraft.bench.estimates import Estimate, Method, estimate
from minedraft.bench.spec import RunSpec
from minedraft.bench.study import Setting, Study
from minedraft.errors import ConfigError

_PLAIN = "none"
_RANK = {"vllm-sd": 1, _PLAIN: 2}
"""The less of a run a mode uses, the later."""
_FEWEST_MODES = 3
BELOW_PLAIN = "*"


def modes_table(study: Study, method: Method) -> list[str]:
    """Lines with a row for each setting and a column for each mode; none for fewer than three
    modes. The best of a row is bold, and one below plain decoding has `BELOW_PLAIN`."""
    modes = list(dict.fromkeys(each.spec.mode for each in study.settings))
    if len(modes) < _FEWEST_MODES:
        return []
    labels = [each for each in study.labels if each != "mode"]
    rows = []
    for spec, found in _rows(study, modes):
        told = [markdown.plain(spec.value(each)) for each in labels]
        rows.append([*told, *_cells(found, study.report.throughput, method)])
    note = (
        f"Medians of {study.report.throughput} at equal requests in flight: the best of a row is "
        f"bold; {BELOW_PLAIN} is below plain decoding."
    )
    return [note, "", *markdown.table([*labels, *modes], rows)] if rows else []


def _rows(study: Study, modes: Sequence[str]) -> Iterator[tuple[RunSpec, list[Setting | None]]]:
    """For each row a run that it stands for, and its setting in each mode.

    Rows of modes that use more of a run's fields come first; one of plain decoding or vLLM's
    own drafting is left for what no row has yet.
    """
    shown: set[str] = set()
    for setting in sorted(study.settings, key=lambda each: _RANK.get(each.spec.mode, 0)):
        if setting.spec.setting in shown:
            continue
        found = [_in_mode(study, setting, mode) for mode in modes]
        shown |= {each.spec.setting for each in found if each is not None}
        yield setting.spec, found


def _in_mode(study: Study, setting: Setting, mode: str) -> Setting | None:
    if setting.spec.mode == mode:
        return setting
    try:
        return study.find(setting.spec.in_mode(mode))
    except ConfigError:
        # Plain decoding has no draft model for a mode that drafts.
        return None


def _cells(found: Sequence[Setting | None], figure: str, method: Method) -> list[str]:
    values = {
        each.spec.mode: estimate(list(each.values(figure).values()), method)
        for each in found
        if each is not None
    }
    best = max((each.middle for each in values.values() if each is not None), default=0.0)
    return [
        _cell(None if each is None else values[each.spec.mode], best, values.get(_PLAIN))
        for each in found
    ]


def _cell(found: Estimate | None, best: float, plain: Estimate | None) -> str:
    text = markdown.middle(found)
    if found is None:
        return text
    if found.middle == best:
        return f"**{text}**"
    return text + BELOW_PLAIN * (plain is not None and found.middle < plain.middle)
