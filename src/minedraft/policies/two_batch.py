"""Batch parallelism: one batch is verified while the other is drafted, then they swap.

Owns the paper's alternation; membership is the batch manager's.
Implements: arXiv:2603.18016, T_PSD = R max(t, V) / f(t), with its fallback to sequential
steps while one batch is empty.
"""

from __future__ import annotations

from minedraft.batching import Batch, BatchManager
from minedraft.policies.base import (
    Drafting,
    States,
    StepPlan,
    is_draftable,
    is_selectable,
    pending,
    undrafted,
)


class TwoBatchPolicy:
    """A batch is one unit: it is verified whole, and drafted whole.

    So a request that joins a batch whose drafts are under way runs with that batch as a
    plain decode once and is drafted with it from then on; it never makes a third group.
    """

    name = "two-batch"
    drafting = Drafting.ON_DEMAND
    max_concurrent_batches = 2

    def __init__(self, batches: BatchManager | None = None) -> None:
        self.batches = batches if batches is not None else BatchManager()

    def admit(self, request_id: str, just_verified: Batch | None) -> None:
        """Put the request in the batch that is drafted next."""
        self.batches.admit(request_id, just_verified)

    def remove(self, request_id: str) -> None:
        """Take the request out of its batch."""
        self.batches.remove(request_id)

    def select(self, states: States, *, busy: bool) -> StepPlan:
        """The batch whose turn it is, or the other one if only that is ready.

        While no batch is ready an idle target runs the requests that have and await no
        drafts; a busy one gets nothing, so that they stay with their batch.
        """
        turn = self._turn()
        sizes = self.batches.size(Batch.ZERO), self.batches.size(Batch.ONE)
        for batch in turn:
            members = self.batches.members(batch)
            if is_selectable([states[each] for each in members]):
                self.batches.verified(batch)
                return StepPlan(verify=members, batch=batch, batch_sizes=sizes)
        fillers = undrafted(states)
        if fillers and not busy:
            return StepPlan(verify=fillers, batch_sizes=sizes)
        awaited = (pending(self._of(batch, states)) for batch in turn)
        wait_for: tuple[str, ...] = next((each for each in awaited if each), ())
        return StepPlan(wait_for=wait_for, batch_sizes=sizes)

    def next_drafts(self, states: States) -> list[tuple[str, ...]]:
        """Each batch of which no request holds or awaits anything, evened out before."""
        if abs(self.batches.balance) > 1:
            self.batches.rebalance(undrafted(states))
        groups = [self.batches.members(batch) for batch in self._turn()]
        return [group for group in groups if is_draftable([states[each] for each in group])]

    def _turn(self) -> tuple[Batch, Batch]:
        return self.batches.next_to_verify, self.batches.next_to_verify.other

    def _of(self, batch: Batch, states: States) -> States:
        return {each: states[each] for each in self.batches.members(batch)}
