"""Finding the processes and socket files that a command leaves behind."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

MARK = "MINEDRAFT_TEST_MARK"


def marked(mark: str) -> dict[int, str]:
    """Live processes (zombies left out) whose environment carries `mark`, with their commands."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            command = (
                (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            )
        except OSError:
            continue
        if f"{MARK}={mark}".encode() in environment and state != "Z":
            found[int(folder.name)] = command.strip()
    return found


def wait_until_gone(mark: str, timeout_s: float) -> dict[int, str]:
    """Wait for all marked processes to end; what is left after `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def sockets_under(folder: Path) -> list[Path]:
    """Socket files below a folder."""
    return [
        Path(root) / name
        for root, _, names in os.walk(folder)
        for name in names
        if stat.S_ISSOCK((Path(root) / name).lstat().st_mode)
    ]
