"""Owns the rule that docs/support.md is what the table says, and that its tests exist.

Does not judge whether a test shows what its row claims.
"""

from __future__ import annotations

import ast
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from minedraft.support import ROWS, Row, Verdict, render


def _name(row: Row) -> str:
    return f"{row.area}: {row.feature}"


def test_the_page_is_the_table(root: Path) -> None:
    page = (root / "docs" / "support.md").read_text(encoding="utf-8")
    assert page == render(ROWS), "run: python -m minedraft.support > docs/support.md"


@pytest.mark.parametrize("row", ROWS, ids=_name)
def test_every_verdict_names_a_test_that_exists(row: Row, root: Path) -> None:
    if row.verdict is Verdict.UNTESTED:
        assert row.test is None, "a row with a test has a verdict"
        return
    assert row.test is not None, f"{row.verdict.value} needs a test"
    file, _, name = row.test.partition("::")
    tree = ast.parse((root / file).read_text(encoding="utf-8"))
    assert name in {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}


def test_no_row_is_doubled() -> None:
    assert [name for name, count in Counter(map(_name, ROWS)).items() if count > 1] == []


def test_areas_are_together() -> None:
    areas = [row.area for row in ROWS]
    changes = sum(a != b for a, b in pairwise(areas))
    assert changes == len(set(areas)) - 1


def test_the_page_has_every_row() -> None:
    page = render(ROWS)
    assert all(f"| {row.feature} | {row.verdict.value} |" in page for row in ROWS)
