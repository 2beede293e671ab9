"""Owns the rule that the tests named in docs/vllm_scenarios.md exist.

Does not judge whether a test shows the scenario of its row.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROW = re.compile(
    r"^\| (?P<what>[^|]+) \| (?P<theirs>`[^|]+`) \| (?P<ours>[^|]+) \|(?P<note>[^|]*)\|$"
)
_HEAD = ("| scenario | in vLLM | here | note |", "|---|---|---|---|")
_PAGE = Path(__file__).parents[2] / "docs" / "vllm_scenarios.md"


def _rows() -> list[str]:
    lines = _PAGE.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith("|") and line not in _HEAD]


def test_the_page_has_rows() -> None:
    assert len(_rows()) > 30


@pytest.mark.parametrize("line", _rows(), ids=lambda line: line.split("|")[1].strip())
def test_every_row_names_a_test_or_says_why_there_is_none(line: str, root: Path) -> None:
    row = ROW.match(line)
    assert row, f"no row of the page: {line}"
    ours = row["ours"].strip()
    if ours == "-":
        assert row["note"].strip(), "a row without a test says why"
        return
    file, _, name = ours.strip("`").partition("::")
    tree = ast.parse((root / file).read_text(encoding="utf-8"))
    tests = {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
    assert name in tests if name else any(each.startswith("test_") for each in tests)
