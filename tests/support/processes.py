"""Finding the processes and socket files that a command leaves behind."""

from __future__ import annotations

import os
import signal
import stat
import time
from contextlib import suppress
from pathlib import Path

MARK = "MINEDRAFT_TEST_MARK"


def marked(mark: str) -> dict[int, str]:
    """Live processes whose environment carries `mark`, with their commands.

    Not vLLM's engine cores and workers: the titles that they take overwrite it.
    """
    wanted = f"{MARK}={mark}".encode()
    return {
        pid: command
        for pid, command in _live().items()
        if wanted in _read(pid, "environ").split(b"\0")
    }


def in_session(session: int) -> dict[int, str]:
    """Live processes of a session (see `subprocess.Popen`, `start_new_session`)."""
    return {pid: command for pid, command in _live().items() if _stat(pid)[3:4] == [str(session)]}


def wait_until_gone(session: int, timeout_s: float) -> dict[int, str]:
    """Wait for a session's processes to end; what is left after `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while (left := in_session(session)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def kill_session(session: int) -> None:
    """Kill what is left of a session."""
    for pid in in_session(session):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _live() -> dict[int, str]:
    """All processes but zombies, with their commands."""
    pids = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
    commands = {pid: _read(pid, "cmdline").replace(b"\0", b" ") for pid in pids}
    return {
        pid: command.decode(errors="replace").strip()
        for pid, command in commands.items()
        if _stat(pid)[:1] not in ([], ["Z"])
    }


def _stat(pid: int) -> list[str]:
    """A process's state, parent, process group, session and so on; empty if it is gone."""
    return _read(pid, "stat").decode(errors="replace").rpartition(")")[2].split()


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def sockets_under(folder: Path) -> list[Path]:
    """Socket files below a folder."""
    return [
        Path(root) / name
        for root, _, names in os.walk(folder)
        for name in names
        if stat.S_ISSOCK((Path(root) / name).lstat().st_mode)
    ]
