"""Markdown tables and the way numbers stand in them; knows nothing of what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minedraft.bench.estimates import Estimate

NOTHING = "–"  # noqa: RUF001 (a dash for "none")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table; a bar in a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(_cell(each) for each in line) + " |" for line in lines]


def middle(found: Estimate | None) -> str:
    """The median in four digits."""
    return NOTHING if found is None else f"{found.middle:.4g}"


def interval(found: Estimate | None) -> str:
    """Both ends of the interval."""
    if found is None or found.low is None or found.high is None:
        return NOTHING
    return f"{found.low:.4g} to {found.high:.4g}"


def ratio(found: Estimate | None) -> str:
    """A ratio with its interval, in three decimals."""
    if found is None:
        return NOTHING
    if found.low is None or found.high is None:
        return f"{found.middle:.3f}"
    return f"{found.middle:.3f} ({found.low:.3f} to {found.high:.3f})"


def plain(value: Any) -> str:
    """A field's value."""
    return NOTHING if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")
