"""Owns the rule that what README.md tells people to type exists and is understood.

Does not run the commands: scripts/demo and the other tests do.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

MAX_LINES = 150
SHELL_FENCES = {"", "bash", "console", "sh", "shell"}
#: Other people's programs: that they exist is not ours to prove.
FOREIGN = {"cd", "curl", "export", "git", "pip", "python", "python3", "source", "vllm", "."}
#: These hand what they do not know to `vllm serve`.
PASS_THROUGH = {"profile", "serve", "doctor"}
#: Where scripts/setup puts commands.
ENVIRONMENT = ".venv/bin/"
_SEPARATORS = {"&&", "||", ";", "|", "&"}
_FENCE = re.compile(r"^```([\w-]*)[^\n]*\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)

Command = tuple[str, ...]


@pytest.fixture(scope="module")
def readme(root: Path) -> str:
    return (root / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def commands(readme: str) -> list[Command]:
    """Every command in a shell block, without prompts, comments and assignments before it."""
    blocks = (text for fence, text in _FENCE.findall(readme) if fence in SHELL_FENCES)
    return [command for block in blocks for command in _commands(block)]


def _commands(block: str) -> Iterator[Command]:
    for line in block.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            line = line[2:]
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        yield from filter(None, map(_without_assignments, _split(list(lexer))))


def _split(words: list[str]) -> Iterator[list[str]]:
    command: list[str] = []
    for word in words:
        if word in _SEPARATORS:
            yield command
            command = []
        else:
            command.append(word)
    yield command


def _without_assignments(words: list[str]) -> Command:
    while words and re.match(r"[A-Za-z_]\w*=", words[0]):
        words = words[1:]
    if words and words[0].startswith(ENVIRONMENT):
        words = [words[0].removeprefix(ENVIRONMENT), *words[1:]]
    return tuple(words)


def _own(commands: list[Command]) -> list[Command]:
    return [command for command in commands if command[0] == "minedraft"]


def _help(subcommand: str | None) -> str:
    command = [Path(sys.executable).with_name("minedraft"), *([subcommand] if subcommand else [])]
    done = subprocess.run(
        [*command, "--help"], capture_output=True, text=True, timeout=300, env=_wide()
    )
    assert done.returncode == 0, f"{command} --help exited {done.returncode}:\n{done.stderr}"
    return done.stdout


def _wide() -> dict[str, str]:
    return {**os.environ, "COLUMNS": "1000", "NO_COLOR": "1"}


def test_readme_is_short(readme: str) -> None:
    assert len(readme.splitlines()) <= MAX_LINES


def test_every_command_is_known(commands: list[Command]) -> None:
    assert commands, "README.md shows no command"
    unknown = [c for c in commands if "/" not in c[0] and c[0] not in {*FOREIGN, "minedraft"}]
    assert not unknown


def test_scripts_exist(commands: list[Command], root: Path) -> None:
    missing = [c[0] for c in commands if "/" in c[0] and not os.access(root / c[0], os.X_OK)]
    assert not missing


def test_own_commands_parse(commands: list[Command]) -> None:
    assert _own(commands), "README.md shows no minedraft command"
    known = {None: _help(None)}
    for _, *arguments in _own(commands):
        name = arguments[0] if arguments and not arguments[0].startswith("-") else None
        if name not in known:
            known[name] = _help(name)
        for argument in arguments:
            flag = argument.partition("=")[0]
            if flag.startswith("-") and name not in PASS_THROUGH:
                assert _mentions(known[name], flag), f"minedraft {name or ''} knows no {flag}"


def _mentions(text: str, flag: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", text) is not None


def test_options_for_vllm_are_json(commands: list[Command]) -> None:
    for command in commands:
        for flag, value in itertools.pairwise(command):
            if flag == "--additional-config":
                assert json.loads(value).keys() == {"minedraft"}


def test_python_blocks_compile(readme: str) -> None:
    for fence, text in _FENCE.findall(readme):
        if fence == "python":
            compile(text, "README.md", "exec")


def test_extras_exist(readme: str, root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {e for group in re.findall(r"minedraft\[([\w,]+)\]", readme) for e in group.split(",")}
    assert named <= project["optional-dependencies"].keys()


def test_links_into_the_tree_exist(readme: str, root: Path) -> None:
    targets = (target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", readme))
    missing = [t for t in targets if t and "://" not in t and not (root / t).exists()]
    assert not missing
