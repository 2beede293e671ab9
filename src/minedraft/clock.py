"""Clocks: the machine's, and one that stands still until something is modelled to take time.

Owns what "now" is for scheduler, drafter and emulated devices; what takes how long is the
latency models' business.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

_BEGIN_NS = 1_000_000_000
"""Of a virtual clock: in a trace 0 means "no time"."""


class Clock(Protocol):
    """Nanoseconds from an origin of its own; it never goes back."""

    def now_ns(self) -> int:
        """The time."""
        ...

    def sleep_until_ns(self, deadline_ns: int) -> None:
        """Return when the clock reads `deadline_ns` at least; at once if it has passed."""
        ...


class RealClock:
    """CLOCK_MONOTONIC."""

    def now_ns(self) -> int:
        """The time."""
        return time.monotonic_ns()

    def sleep_until_ns(self, deadline_ns: int) -> None:
        """Sleep."""
        while (left := deadline_ns - time.monotonic_ns()) > 0:
            time.sleep(left / 1e9)


class VirtualClock:
    """Reads what it was last put to: to sleep is to put it forward."""

    def __init__(self) -> None:
        self._now_ns = _BEGIN_NS

    def now_ns(self) -> int:
        """The time."""
        return self._now_ns

    def sleep_until_ns(self, deadline_ns: int) -> None:
        """Put it forward to `deadline_ns`."""
        self._now_ns = max(self._now_ns, deadline_ns)


_CLOCKS: dict[str, Callable[[], Clock]] = {"real": RealClock, "virtual": VirtualClock}
CLOCKS = tuple(_CLOCKS)


def clock_named(name: str) -> Clock:
    """A new clock; `name` is one of CLOCKS."""
    return _CLOCKS[name]()
