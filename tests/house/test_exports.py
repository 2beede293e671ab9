"""Owns the rules on public names and their documentation; not who may import whom."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path
from types import ModuleType

import minedraft


def _load(package: Path, src: Path) -> ModuleType:
    return importlib.import_module(".".join(package.parent.relative_to(src).parts))


def _public(module: ModuleType) -> set[str]:
    """What the module binds without an underscore and the package itself defines.

    Names that it only uses, from elsewhere, do not count; nor do submodules.
    """
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and _defined_in(value, module.__name__)
    }


def _defined_in(value: object, package: str) -> bool:
    home = getattr(value, "__module__", None)
    return isinstance(home, str) and f"{home}.".startswith(f"{package}.")


def _documented(name: str, value: object) -> bool:
    """Whether a class or function has a docstring of its own, not inherited or generated."""
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return True
    own = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    return bool(own and own.strip()) and not own.startswith(f"{name}(")


def test_packages_export_what_exists_and_is_documented(package: Path, src: Path) -> None:
    module = _load(package, src)
    exported = getattr(module, "__all__", [])
    missing = [name for name in exported if not hasattr(module, name)]
    assert not missing, f"{module.__name__}.__all__ names what is not there"
    silent = [name for name in exported if not _documented(name, getattr(module, name))]
    assert not silent, f"{module.__name__} exports these without a docstring"


def test_packages_declare_what_they_bind(package: Path, src: Path) -> None:
    module = _load(package, src)
    undeclared = _public(module) - set(getattr(module, "__all__", []))
    assert not undeclared, f"{module.__name__} binds public names that __all__ lacks"


def test_the_root_package_exports_its_public_names() -> None:
    # A name served on demand by __getattr__ is in __all__ and not bound: the test above holds it
    # to exist. What is bound must be declared, once.
    assert len(minedraft.__all__) == len(set(minedraft.__all__))
    assert _public(minedraft) <= set(minedraft.__all__)
    assert set(minedraft.__all__) <= set(dir(minedraft))
    assert minedraft.__version__


def test_modules_say_what_they_own(source: Path) -> None:
    text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8")))
    assert text and text.strip(), f"{source.name} has no module docstring"
