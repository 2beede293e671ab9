"""Owns the rule that docs/paper_map.md names what exists."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

ROW = re.compile(
    r"^\| (?P<item>[^|]+) \| `(?P<symbol>[\w.]+)` \| `(?P<test>[^`]+)` \| (?P<run>[^|]+) \|$"
)
_MIN_ROWS = 30


def _rows(root: Path) -> Iterator[re.Match[str]]:
    text = (root / "docs/paper_map.md").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("| ") and "`" in line:
            found = ROW.match(line)
            assert found, f"no row of the map: {line}"
            yield found


def _exists(symbol: str, src: Path) -> bool:
    """Whether the name can be imported; a module of the plugin only has to be there as a file."""
    parts = symbol.split(".")
    if (src / Path(*parts).with_suffix(".py")).is_file():
        return True
    for cut in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        missing = object()
        return (
            reduce(lambda at, name: getattr(at, name, missing), parts[cut:], module) is not missing
        )
    return False


def _has_test(root: Path, test: str) -> bool:
    path, _, name = test.partition("::")
    if not (root / path).is_file():
        return False
    tree = ast.parse((root / path).read_text(encoding="utf-8"))
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return name in functions if name else any(each.startswith("test_") for each in functions)


def test_every_row_names_what_exists(root: Path, src: Path) -> None:
    rows = list(_rows(root))
    assert len(rows) >= _MIN_ROWS
    for row in rows:
        assert _exists(row["symbol"], src), f"no symbol {row['symbol']}"
        assert _has_test(root, row["test"]), f"no test {row['test']}"
        experiment = row["run"].strip(" `")
        assert experiment == "-" or (root / experiment).is_file(), f"no file {experiment}"


def test_every_experiment_of_the_paper_is_in_the_map(root: Path) -> None:
    named = {row["run"].strip(" `") for row in _rows(root)}
    files = {f"experiments/{each.name}" for each in (root / "experiments").glob("paper_*.toml")}
    assert files
    assert files <= named


def test_the_checks_can_fail(root: Path, src: Path) -> None:
    assert not _exists("minedraft.theory.no_such_thing", src)
    assert not _exists("minedraft.nowhere", src)
    assert not _has_test(root, "tests/theory/test_lead.py::test_that_is_not_there")
    assert not _has_test(root, "tests/nowhere.py")
