"""The way between an engine and a drafter.

Owns how long a message is under way; what it says is others'.
"""

from __future__ import annotations

from dataclasses import dataclass

from minedraft.simulator.clock import Action, Clock
from minedraft.validation import check_number

BYTES_PER_REQUEST = 24
"""Of a message, for each request that it names: id, version, length."""
BYTES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkModel:
    """A delay, and the time that the bytes take; None: none."""

    delay_ms: float = 0.0
    mb_per_s: float | None = None

    def __post_init__(self) -> None:
        check_number("link.delay_ms", self.delay_ms, 0.0, 60_000.0)
        check_number("link.mb_per_s", self.mb_per_s, 1e-6, optional=True)


class Link:
    """One direction of a connection. Messages arrive in the order in which they were sent."""

    def __init__(self, clock: Clock, model: LinkModel) -> None:
        self._clock = clock
        self._model = model
        self._free_at_ms = 0.0
        self.num_bytes = 0

    def send(self, num_requests: int, num_tokens: int, arrive: Action) -> None:
        """Run `arrive` at the other end."""
        self._clock.at(self.arrival_ms(num_requests, num_tokens), arrive)

    def arrival_ms(self, num_requests: int, num_tokens: int) -> float:
        """Send a message that wakes nobody; returns when it arrives."""
        num_bytes = num_requests * BYTES_PER_REQUEST + num_tokens * BYTES_PER_TOKEN
        self.num_bytes += num_bytes
        # Bytes go one after the other, delays beside one another.
        free_at_ms, now_ms = self._free_at_ms, self._clock.now_ms
        if free_at_ms < now_ms:
            free_at_ms = now_ms
        if self._model.mb_per_s is not None:
            free_at_ms += num_bytes / self._model.mb_per_s / 1e3
        self._free_at_ms = free_at_ms
        return free_at_ms + self._model.delay_ms
