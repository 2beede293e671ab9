"""Owns where the house rules find the tree, and what they run over; states no rule itself.

A test that takes one of the arguments named in `_EACH` runs once for every such file.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_SRC = _ROOT / "src"


def _sources() -> list[Path]:
    return sorted((_SRC / "minedraft").rglob("*.py"))


def _packages() -> list[Path]:
    return [path for path in _sources() if path.name == "__init__.py"]


def _scripts() -> list[Path]:
    return [*sorted((_ROOT / "scripts").iterdir()), _ROOT / ".ci" / "run"]


_EACH: dict[str, Callable[[], list[Path]]] = {
    "source": _sources,
    "package": _packages,
    "script": _scripts,
}


def _label(path: Path) -> str:
    return path.relative_to(_ROOT).as_posix()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for argument, listing in _EACH.items():
        if argument in metafunc.fixturenames:
            metafunc.parametrize(argument, listing(), ids=_label)


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return _ROOT


@pytest.fixture(scope="session")
def src() -> Path:
    """The folder that holds the package."""
    return _SRC


@pytest.fixture(scope="session")
def tracked_files() -> list[Path]:
    """Every file that is, or would be, committed; skips the test outside a git checkout."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listing = subprocess.run(command, cwd=_ROOT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    paths = (_ROOT / name for name in listing.stdout.decode().split("\0") if name)
    return [path for path in paths if path.is_file()]
