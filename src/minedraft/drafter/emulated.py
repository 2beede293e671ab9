"""A draft device that takes as long as a latency model says.

Owns the sleeping; tokens and KV are the inner device's.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from minedraft.drafter.device import DraftDevice, Guess, Row
from minedraft.drafter.request import DraftedRequest
from minedraft.emulation import LatencyModel


def sleep_until_ns(deadline_ns: int) -> None:
    """Sleep until CLOCK_MONOTONIC reads `deadline_ns`; returns at once if it has passed."""
    while (left := deadline_ns - time.monotonic_ns()) > 0:
        time.sleep(left / 1e9)


class EmulatedDraftDevice:
    """Runs the inner device, then sleeps until the modelled time of the pass is over."""

    def __init__(self, inner: DraftDevice, model: LatencyModel) -> None:
        self._inner = inner
        self._model = model
        self.info = inner.info

    @property
    def num_free_blocks(self) -> int:
        """As the inner device."""
        return self._inner.num_free_blocks

    def num_held_blocks(self, request: DraftedRequest) -> int:
        """As the inner device."""
        return self._inner.num_held_blocks(request)

    def reserve(self, request: DraftedRequest, num_tokens: int, chunk: int) -> bool:
        """As the inner device."""
        return self._inner.reserve(request, num_tokens, chunk)

    def run(self, rows: Sequence[Row]) -> Mapping[str, Guess]:
        """As the inner device, but not faster than the model."""
        start_ns = time.monotonic_ns()
        guesses = self._inner.run(rows)
        pass_ms = self._model.pass_ms(sum(row.num_tokens for row in rows), len(rows))
        sleep_until_ns(start_ns + round(pass_ms * 1e6))
        return guesses

    def release(self, request: DraftedRequest) -> None:
        """As the inner device."""
        self._inner.release(request)

    def close(self) -> None:
        """As the inner device."""
        self._inner.close()
