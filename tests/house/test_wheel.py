"""Owns the proof that the wheel is complete: it is built, installed and run away from the tree.

Says nothing about what the commands do; only that nothing of them was left behind.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from minedraft import __version__

#: Beside the modules, these are needed at run time.
DATA = ("minedraft/py.typed", "minedraft/models/data/")
_SOURCE_TREE_VARIABLES = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}

_ORIGIN = "import minedraft; print(minedraft.__file__)"
_ENTRY_POINT = """
from importlib.metadata import entry_points
[found] = entry_points(group="vllm.general_plugins", name="minedraft")
register = found.load()
register(), register()  # vLLM may call it more than once in a process
"""
_AS_VLLM_LOADS_IT = """
from vllm.plugins import load_plugins_by_group
print(sorted(load_plugins_by_group("vllm.general_plugins")))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An environment that holds the wheel and its dependencies, and no trace of the tree."""

    home: Path

    def run(self, *command: str, timeout_s: float = 60) -> str:
        """Output of a command of the environment; fails the test unless it exits 0."""
        program, *arguments = command
        env = {k: v for k, v in os.environ.items() if k not in _SOURCE_TREE_VARIABLES}
        done = subprocess.run(
            [self.home / "bin" / program, *arguments],
            cwd=self.home,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
        )
        assert done.returncode == 0, f"{' '.join(command)} exited {done.returncode}:\n{done.stdout}"
        return done.stdout


def _call(command: Sequence[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="session")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, built with what is installed, so without a network."""
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, root]
    _call(build)
    [built] = out.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """A new environment with the wheel in it, beside links to all that is installed here.

    Links rather than a path to this environment's packages: that would show the editable
    installation's metadata too, and an entry point found there proves nothing of the wheel.
    """
    base = tmp_path_factory.mktemp("installed")
    home, dependencies = base / "env", base / "dependencies"
    venv.create(home, with_pip=False, symlinks=True)
    _call([*_pip(home), "install", "--quiet", "--no-deps", "--no-index", wheel])
    _link_dependencies(dependencies)
    [site_packages] = (home / "lib").glob("python*/site-packages")
    (site_packages / "dependencies.pth").write_text(f"{dependencies}\n", encoding="utf-8")
    return Installed(home=home)


def _pip(home: Path) -> list[str | Path]:
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", home]


def _link_dependencies(folder: Path) -> None:
    folder.mkdir()
    for kind in ("purelib", "platlib"):
        for entry in Path(sysconfig.get_path(kind)).iterdir():
            ours = "minedraft" in entry.name.lower()
            if not ours and entry.suffix != ".pth" and not (folder / entry.name).exists():
                (folder / entry.name).symlink_to(entry)


def test_wheel_holds_every_module_and_data_file(wheel: Path, src: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        path.relative_to(src).as_posix()
        for path in (src / "minedraft").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted <= held
    for data in DATA:
        assert any(name.startswith(data) for name in held), f"the wheel has no {data}"


def test_wheel_holds_nothing_else(wheel: Path) -> None:
    folders = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert folders == {"minedraft", f"minedraft-{__version__}.dist-info"}


def test_wheel_states_version_and_license(wheel: Path) -> None:
    metadata = zipfile.ZipFile(wheel).read(f"minedraft-{__version__}.dist-info/METADATA").decode()
    assert f"\nVersion: {__version__}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert "\nLicense-File: LICENSE\n" in metadata


def test_installed_package_is_the_wheels(installed: Installed, root: Path) -> None:
    origin = Path(installed.run("python", "-c", _ORIGIN).strip())
    assert origin.is_relative_to(installed.home)
    assert not origin.is_relative_to(root / "src")


def test_installed_command_runs(installed: Installed) -> None:
    assert __version__ in installed.run("minedraft", "--version")


@pytest.mark.vllm
def test_installed_plugin_loads(installed: Installed) -> None:
    installed.run("python", "-c", _ENTRY_POINT, timeout_s=300)
    assert "'minedraft'" in installed.run("python", "-c", _AS_VLLM_LOADS_IT, timeout_s=300)


@pytest.mark.vllm
def test_installed_doctor_is_content(installed: Installed) -> None:
    assert __version__ in installed.run("minedraft", "doctor", timeout_s=300)
