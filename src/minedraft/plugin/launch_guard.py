"""Ending engines that still import vLLM when the front end that launches them is gone.

Owns the guard process; engines that have read their configuration watch for themselves
(`parent_watch`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from minedraft.plugin import _guard_process

_PATIENCE_S = 5.0


@contextmanager
def launch_guard() -> Iterator[None]:
    """End what this process spawns in the context if it is killed there.

    Importing vLLM takes a spawned process many seconds, in which no code of ours runs in it.
    So a small process looks on, which outlives this one for a moment. Without it the launch goes
    on all the same.

    Raises:
        OSError: no process can be started.
    """
    # What the embedding program has started before is none of our business.
    known = map(str, _guard_process.children_of(os.getpid()))
    # Run as a file, isolated: it must be there before an engine is, so it imports nothing.
    program = str(Path(_guard_process.__file__).resolve())
    command = [sys.executable, "-I", "-S", program, str(os.getpid()), *known]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0)
    try:
        yield
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    # A guard that was killed is missed only if this process is killed as well.
    with suppress(BrokenPipeError):
        process.stdin.write(_guard_process.OVER)
    process.stdin.close()
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
