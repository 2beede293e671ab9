"""SIGTERM as an exception, so that whatever a command has started ends with it.

Owns the handler for as long as a context is open; who ends what is the callers' business.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Let SIGTERM raise SystemExit (143, as a shell says it) in the main thread.

    Python's default ends the process on the spot, without `finally`. In another thread,
    which Python allows no handler, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _exit(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
