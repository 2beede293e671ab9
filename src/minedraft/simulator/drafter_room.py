"""What a simulated drafter's pass holds: tokens, requests, and the KV pool's blocks.

Owns who gets a row where not everyone does, and who gives way for it; whose turn it is, is
the drafter's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from minedraft.emulation import PassTimes
from minedraft.simulator.kv_pool import KvPool
from minedraft.simulator.request import DraftedSim, SimRequest

Rows = list[tuple[DraftedSim, int]]
"""Requests with the tokens that a pass takes in for each."""


@dataclass(slots=True, kw_only=True)
class DrafterLimits:
    """What the device holds and takes."""

    latency: PassTimes
    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int


class DrafterRoom:
    """Room for rows of the requests in `known`; those who lost their KV are in `victims`."""

    def __init__(
        self, limits: DrafterLimits, pool: KvPool, known: dict[SimRequest, DraftedSim]
    ) -> None:
        self._limits = limits
        self._pool = pool
        self._known = known
        self.victims: list[DraftedSim] = []

    @property
    def is_endless(self) -> bool:
        """Whether the pool has blocks for everyone."""
        return self._pool.num_free is None

    def left(self, drafted: DraftedSim) -> int:
        """Tokens that fit into the context behind its committed ones."""
        return self._limits.max_model_len - drafted.num_committed

    def release(self, drafted: DraftedSim) -> None:
        """Take all its blocks back."""
        self._pool.release(drafted)

    def fill(
        self,
        wanting: Iterable[DraftedSim],
        budget: int,
        taken: Collection[DraftedSim] = (),
        num_others: int = 0,
    ) -> Rows:
        """The next tokens of each, as far as the budget and the KV pool reach.

        `taken` and `num_others` more are in the same pass already.
        """
        rows: Rows = []
        num_others += len(taken)
        for each in wanting:
            if budget <= 0 or num_others + len(rows) >= self._limits.max_num_seqs:
                break
            if each in taken or self.left(each) <= 0:
                continue
            if self.reserve(each, each.length, rows, taken):
                size = min(each.num_missing, budget)
                rows.append((each, size))
                budget -= size
        return rows

    def reserve(
        self,
        drafted: DraftedSim,
        num_tokens: int,
        rows: Rows,
        taken: Collection[DraftedSim] = (),
    ) -> bool:
        """Room in the pool, taken from newer requests if need be; not from those of the pass."""
        if self.is_endless:
            return True
        num_tokens = max(num_tokens, drafted.num_committed)
        if self._pool.reserve(drafted, num_tokens):
            return True
        in_pass = {each for each, _ in rows}
        newer = [
            each
            for each in sorted(self._known.values(), key=lambda each: -each.order)
            if each.order > drafted.order
            and each.num_blocks
            and each not in in_pass
            and each not in taken
        ]
        # Nobody gives way for nothing: two that never fit would take turns for ever.
        if not self._pool.has(drafted, num_tokens, sum(each.num_blocks for each in newer)):
            return False
        for victim in newer:
            self._pool.release(victim)
            victim.forget_kv()
            self.victims.append(victim)
            if self._pool.reserve(drafted, num_tokens):
                return True
        return False
