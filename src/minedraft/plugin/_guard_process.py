"""The guard of a launch (see `launch_guard`): a program of its own, with nothing but Python.

Looks which processes its parent spawns. When the parent is gone before it said that the launch
is over, the guard asks them to end, as their parent would have done. Linux only, as `/proc` is.
"""

from __future__ import annotations

import os
import signal
import sys
import time

OVER = b"over"
SPAWNED = b"--multiprocessing-fork"  # in the command of what Python's multiprocessing spawned
_POLL_S = 0.05
_INPUT = 0


def main(parent: int, known: set[int]) -> None:
    """Guard the children of `parent`, `known` ones excepted, until it says `OVER` or is gone."""
    # A terminal sends Ctrl-C to the whole group, the guard included.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.set_blocking(_INPUT, False)
    children: set[int] = set()
    while os.getppid() == parent:
        if OVER in _read_input():
            return
        # The kernel may leave some out while others end.
        children |= children_of(parent)
        time.sleep(_POLL_S)
    # What it said before it was gone counts. The end of the input would say nothing: forked
    # processes hold its other end too.
    if OVER not in _read_input():
        _end(children - known)


def _read_input() -> bytes:
    try:
        return os.read(_INPUT, 1 << 16)
    except BlockingIOError:
        return b""


def children_of(parent: int) -> set[int]:
    """Children of a process, by whichever of its threads."""
    tasks = f"/proc/{parent}/task"
    try:
        names = [f"{tasks}/{task}/children" for task in os.listdir(tasks)]
    except OSError:
        return set()
    return {int(pid) for name in names for pid in _read(name).split()}


def _end(pids: set[int]) -> None:
    for pid in pids:
        # Orphans of one parent get the same new one; another process that got the id has its own.
        is_orphan = _parent(pid) == os.getppid()
        # Later they take titles of their own, and look after themselves.
        if is_orphan and SPAWNED in _read(f"/proc/{pid}/cmdline"):
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                continue


def _parent(pid: int) -> int | None:
    # What is before it, the name, may hold blanks and brackets.
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[1]) if len(fields) > 1 else None


def _read(name: str) -> bytes:
    try:
        with open(name, "rb") as file:
            return file.read()
    except OSError:
        return b""


if __name__ == "__main__":
    main(int(sys.argv[1]), {int(pid) for pid in sys.argv[2:]})
