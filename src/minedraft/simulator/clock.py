"""Simulated time: what happens next, and when.

Owns the order of events; it knows nothing of what they do. A heap of callbacks rather than
a framework of coroutines: a fleet has millions of events, and each of them is one call.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

Action = Callable[[], None]


class Clock:
    """Runs actions in the order of their times; those of one time in the order of asking."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.num_events = 0
        """Actions run so far."""
        self._due: list[tuple[float, int, Action]] = []
        self._num_asked = 0

    def at(self, time_ms: float, action: Action) -> None:
        """Run `action` at `time_ms`, not before now."""
        self._num_asked += 1
        heapq.heappush(self._due, (time_ms, self._num_asked, action))

    def run(self) -> None:
        """Run until nothing is left to do."""
        due = self._due
        while due:
            self.now_ms, _, action = heapq.heappop(due)
            self.num_events += 1
            action()
