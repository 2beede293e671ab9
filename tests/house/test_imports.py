"""Owns the rule which part of minedraft may import which; not what the parts export."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

#: Only these parts may use torch, or need what `HEAVY` names in order to be imported.
HEAVY_PARTS = {"plugin", "models", "heads"}
HEAVY = ("torch", "vllm", "transformers")
#: The pure core knows neither how it is plugged in nor how it is called.
CORE_PARTS = (
    "errors",
    "config",
    "methods",
    "batching",
    "policies",
    "transport",
    "drafter",
    "trace",
    "theory",
    "hardware",
    "planner",
    "profiles",
    "simulator",
)
OUTER_PARTS = {"plugin", "cli"}

#: Each of these builds on those before it alone (docs/architecture.md).
LAYERS = ("theory", "hardware", "bench", "profiles", "simulator", "planner")

_IMPORT_WITHOUT_HEAVY = """
import importlib, sys, traceback
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))  # None there: importing the name fails
failed = 0
for name in sys.argv[2:]:
    try:
        importlib.import_module(name)
    except ImportError:
        failed += 1
        print(name)
        traceback.print_exc()
sys.exit(failed > 0)
"""


def _module(source: Path, src: Path) -> list[str]:
    parts = list(source.relative_to(src).with_suffix("").parts)
    return parts[:-1] if parts[-1] == "__init__" else parts


def _part(source: Path, src: Path) -> str:
    """The name directly below the root package: a module's, or that of the package it is in."""
    return (*_module(source, src), "")[1]


def _imports(source: Path, src: Path) -> Iterator[str]:
    """Every name that the file imports, at whatever depth, in full.

    `from a import b` counts as `a.b`, since `b` may be a module.
    """
    package = list(source.relative_to(src).parent.parts)
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = [*above, *([node.module] if node.module else [])]
            yield from (".".join([*base, alias.name]) for alias in node.names)
        elif isinstance(node, ast.Call) and _is_import_call(node.func):
            yield from _literals(node.args[:1])


def _is_import_call(function: ast.expr) -> bool:
    return ast.unparse(function) in {"__import__", "import_module", "importlib.import_module"}


def _literals(arguments: list[ast.expr]) -> Iterator[str]:
    for argument in arguments:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            yield argument.value


def _tops(source: Path, src: Path) -> set[str]:
    return {name.partition(".")[0] for name in _imports(source, src)}


def test_pure_modules_import_without_torch_and_vllm(src: Path) -> None:
    # __main__ modules run the command line when they are imported.
    names = [
        ".".join(_module(source, src))
        for source in sorted((src / "minedraft").rglob("*.py"))
        if _part(source, src) not in HEAVY_PARTS and source.name != "__main__.py"
    ]
    assert "minedraft.theory" in names
    command = [sys.executable, "-c", _IMPORT_WITHOUT_HEAVY, ",".join(HEAVY), *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"need one of {HEAVY} to be imported: {done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("layer", LAYERS)
def test_layers_build_on_those_before_them(layer: str, src: Path) -> None:
    files = sorted((src / "minedraft" / layer).rglob("*.py"))
    assert files, f"src/minedraft has no {layer}"
    later = {("minedraft", each) for each in LAYERS[LAYERS.index(layer) + 1 :]}
    wrong = {
        f"{file.relative_to(src)}: {name}"
        for file in files
        for name in _imports(file, src)
        if tuple(name.split(".")[:2]) in later
    }
    assert not wrong


def test_only_the_plugin_imports_vllm(source: Path, src: Path) -> None:
    if _part(source, src) != "plugin":
        assert "vllm" not in _tops(source, src), "vLLM is used in src/minedraft/plugin alone"


def test_only_plugin_and_models_import_torch(source: Path, src: Path) -> None:
    if _part(source, src) not in HEAVY_PARTS:
        assert "torch" not in _tops(source, src), f"torch is used in {HEAVY_PARTS} alone"


@pytest.mark.parametrize("part", CORE_PARTS)
def test_the_core_never_imports_plugin_or_command_line(part: str, src: Path) -> None:
    home = src / "minedraft"
    files = [*home.glob(f"{part}.py"), *(home / part).rglob("*.py")]
    assert files, f"src/minedraft has no {part}"
    forbidden = {("minedraft", outer) for outer in OUTER_PARTS}
    wrong = {
        f"{file.relative_to(src)}: {name}"
        for file in files
        for name in _imports(file, src)
        if tuple(name.split(".")[:2]) in forbidden
    }
    assert not wrong
