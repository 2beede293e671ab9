"""minedraft's drafter process, which also says on a signal what it holds: for leak checks.

Owns the report; everything else is `minedraft.plugin.drafter_main`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sized
from pathlib import Path
from typing import Any

import msgspec

from minedraft.plugin import drafter_main

MODULE = "fuzzing.drafter"
REPORT_FOLDER = "MINEDRAFT_FUZZ_REPORTS"
"""Environment variable: where reports go, in a file named after the process."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What the drafter holds."""

    number: int
    """Counts the reports of a process, so that an old one is not taken for a new one."""
    free_blocks: int
    requests: int
    """Requests that hold blocks, or that a drafter without a model knows."""


def report_path(folder: Path, pid: int) -> Path:
    """The file to which the drafter with this pid reports."""
    return folder / f"{pid}.json"


def main() -> int:
    """As drafter_main's, with the report installed once the model is loaded."""
    open_device = drafter_main._open_device

    def open_and_watch(*args: Any) -> Any:
        device = open_device(*args)
        _report_on_signal(device)
        return device

    drafter_main._open_device = open_and_watch
    return drafter_main.main()


def _report_on_signal(device: Any) -> None:
    path = report_path(Path(os.environ[REPORT_FOLDER]), os.getpid())
    number = 0

    def report(*_: object) -> None:
        nonlocal number
        number += 1
        known = _known(device)
        held = Report(number=number, free_blocks=device.num_free_blocks, requests=len(known))
        scratch = path.with_suffix(".new")
        scratch.write_bytes(msgspec.json.encode(held))
        scratch.replace(path)

    signal.signal(signal.SIGUSR1, report)


def _known(device: Any) -> Sized:
    """Requests that it holds anything for."""
    (found,) = (
        getattr(device, name) for name in ("_held", "_lengths", "_latest") if hasattr(device, name)
    )
    known: Sized = found
    return known


if __name__ == "__main__":
    sys.exit(main())
