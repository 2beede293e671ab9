"""Standard speculative decoding: all requests are drafted, then all are verified.

Implements: arXiv:2603.18016, T_SD = R (t + V) / f(t); its baseline.
"""

from __future__ import annotations

from minedraft.batching import Batch
from minedraft.policies.base import States, StepPlan, is_draftable, pending, runnable, undrafted


class SequentialPolicy:
    """One group; the target waits while it is drafted."""

    name = "sequential"
    max_concurrent_batches = 1

    def admit(self, request_id: str, just_verified: Batch | None) -> None:
        """Nothing to remember: the group is whatever decodes."""

    def remove(self, request_id: str) -> None:
        """Nothing to forget."""

    def select(self, states: States, *, busy: bool) -> StepPlan:
        """All requests, once no drafts are awaited; until then those without drafts."""
        awaited, sizes = pending(states), (len(states), 0)
        if not awaited:
            return StepPlan(verify=runnable(states), batch_sizes=sizes)
        if fillers := undrafted(states):
            return StepPlan(verify=fillers, batch_sizes=sizes)
        return StepPlan(wait_for=awaited, batch_sizes=sizes)

    def next_drafts(self, states: States) -> list[tuple[str, ...]]:
        """Everyone, as soon as nobody holds or awaits drafts."""
        return [tuple(states)] if is_draftable(states) else []
