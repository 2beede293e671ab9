"""docs/support.md from the table; it claims nothing of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from minedraft.support.row import Row

_HEAD = """\
# What works with what

Made by `python -m minedraft.support`; change the table there. *Works* and *works without drafts*
mean that the named test shows it, *refused* that the test shows the refusal (at start unless the
note says otherwise), and *untested* that no test does: it may work.
"""


def render(rows: tuple[Row, ...]) -> str:
    """The table as Markdown, one section per area."""
    return "\n".join([_HEAD, *_lines(rows)])


def _lines(rows: tuple[Row, ...]) -> Iterator[str]:
    for area, group in groupby(rows, key=lambda row: row.area):
        yield f"## {area}\n"
        yield "| | | note | test |"
        yield "|---|---|---|---|"
        for row in group:
            test = "" if row.test is None else f"`{row.test}`"
            yield f"| {row.feature} | {row.verdict.value} | {row.note} | {test} |"
        yield ""
