"""Owns the rules on the tree as it is committed: what no file may hold, and sound scripts.

Does not look at what the package does.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import minedraft

MAX_BYTES = 20_000_000
#: Absolute paths that exist on somebody's machine only.
MACHINE_PATH = re.compile(r"(?<![\w./~<-])/(?:work|root|home|Users)/\w")
#: Registries and hubs are the user's to choose, by the settings of their own clients.
HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("debian", "org"),
        ("huggingface", "co"),
        ("hf", "co"),
        ("modelscope", "cn"),
    )
)
HOST = re.compile(r"(?<![\w-])(?:" + "|".join(map(re.escape, HOSTS)) + r")\b")
#: What git writes around the two sides of a merge.
CONFLICT = re.compile(r"^(?:<{7}|>{7}) ")
#: Other people's text, kept as it came.
VERBATIM = {".jsonl"}


def _lines(files: list[Path]) -> Iterator[tuple[Path, int, str]]:
    for path in files:
        if path.suffix in VERBATIM:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        yield from ((path, number, line) for number, line in enumerate(text.splitlines(), start=1))


def _hits(pattern: re.Pattern[str], files: list[Path], root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{number}: {line.strip()}"
        for path, number, line in _lines(files)
        if pattern.search(line)
    ]


def test_no_path_of_a_machine(tracked_files: list[Path], root: Path) -> None:
    assert not _hits(MACHINE_PATH, tracked_files, root)


def test_no_registry_or_hub_is_named(tracked_files: list[Path], root: Path) -> None:
    assert not _hits(HOST, tracked_files, root)


def test_no_conflict_is_left(tracked_files: list[Path], root: Path) -> None:
    assert not _hits(CONFLICT, tracked_files, root)


def test_no_large_file(tracked_files: list[Path]) -> None:
    large = {str(path): path.stat().st_size for path in tracked_files}
    assert not {path: size for path, size in large.items() if size > MAX_BYTES}


def test_scripts_can_be_run(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)
    if script.suffix == ".sh":
        return  # sourced, not run
    assert os.access(script, os.X_OK), f"{script.name} is not executable"
    assert script.read_text(encoding="utf-8").startswith("#!/usr/bin/env bash\n")
    assert "set -euo pipefail" in script.read_text(encoding="utf-8")


def test_changelog_begins_with_unreleased_or_this_version(root: Path) -> None:
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    heads = re.findall(r"^## \[?([^\]\s]+)\]?", text, flags=re.MULTILINE)
    assert heads, "CHANGELOG.md has no section"
    assert heads[0].lower() in {"unreleased", minedraft.__version__}
