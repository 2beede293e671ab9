"""A draft device that takes as long as a latency model says, and is right as often as told.

Owns the sleeping and the emulated drafts; KV is the inner device's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from minedraft.clock import Clock, RealClock
from minedraft.drafter.device import DraftDevice, Guess, Row
from minedraft.drafter.request import DraftedRequest
from minedraft.emulated_text import CONTEXT, draft_token
from minedraft.emulation import Emulation


class EmulatedDraftDevice:
    """Sleeps by `clock` until the modelled time of a pass is over; the inner device runs it.

    With an emulated acceptance no model runs: it guesses itself, and the inner device only
    keeps the KV blocks.
    `vocab_size` is the target's; `k` is the number of drafts in a row, after which the target
    adds a token, and positions begin anew for guesses made ahead.
    """

    def __init__(
        self,
        inner: DraftDevice,
        emulation: Emulation,
        *,
        vocab_size: int,
        k: int,
        clock: Clock | None = None,
    ) -> None:
        self._clock = RealClock() if clock is None else clock
        self._k = k
        self._inner = inner
        self._emulation = emulation
        self._vocab_size = min(vocab_size, inner.info.vocab_size)
        self.info = inner.info

    @property
    def num_free_blocks(self) -> int:
        """As the inner device."""
        return self._inner.num_free_blocks

    def num_held_blocks(self, request: DraftedRequest) -> int:
        """As the inner device."""
        return self._inner.num_held_blocks(request)

    def num_ready(self, request: DraftedRequest) -> int:
        """As the inner device."""
        return self._inner.num_ready(request)

    def take_in(self) -> Collection[str]:
        """As the inner device."""
        return self._inner.take_in()

    def reserve(self, request: DraftedRequest, num_tokens: int, chunk: int) -> bool:
        """As the inner device."""
        return self._inner.reserve(request, num_tokens, chunk)

    def run(self, rows: Sequence[Row]) -> Mapping[str, Sequence[Guess]]:
        """The guesses of a pass, once its modelled time is over."""
        start_ns = self._clock.now_ns()
        guesses = self._guesses(rows) if self._emulation.acceptance else self._inner.run(rows)
        num_kv_tokens = sum(row.end for row in rows) if self.info.num_kv_blocks else 0
        pass_ns = self._emulation.draft.pass_ns(
            sum(row.num_tokens for row in rows), len(rows), num_kv_tokens
        )
        self._clock.sleep_until_ns(start_ns + pass_ns)
        return guesses

    def _guesses(self, rows: Sequence[Row]) -> Mapping[str, Sequence[Guess]]:
        """Without the inner device: a model that computes for nothing would take the
        processor from the engine beside it."""
        return {row.request.key: [self._guess(row)] for row in rows if row.is_last}

    def _guess(self, row: Row) -> Guess:
        context = row.request.tokens(max(0, row.end - CONTEXT), row.end)
        position = len(row.request.guesses) % (self._k + 1)
        acceptance = self._emulation.acceptance_at(position)
        return Guess(draft_token(context, row.end, self._vocab_size, acceptance))

    def release(self, request: DraftedRequest) -> None:
        """As the inner device."""
        self._inner.release(request)

    def close(self) -> None:
        """As the inner device."""
        self._inner.close()
