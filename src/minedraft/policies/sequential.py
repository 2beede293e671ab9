"""Standard speculative decoding: all requests are drafted, then all are verified.

Implements: arXiv:2603.18016, T_SD = R (t + V) / f(t); its baseline.
"""

from __future__ import annotations

from minedraft.batching import Batch
from minedraft.policies.base import Drafting, States, StepPlan, draft_together, verify_together


class SequentialPolicy:
    """One group; the target waits while it is drafted."""

    name = "sequential"
    drafting = Drafting.ON_DEMAND
    max_concurrent_batches = 1

    def admit(self, request_id: str, just_verified: Batch | None) -> None:
        """Nothing to remember: the group is whatever decodes."""

    def remove(self, request_id: str) -> None:
        """Nothing to forget."""

    def select(self, states: States, *, busy: bool) -> StepPlan:
        """All requests, once no drafts are awaited; until then those without drafts."""
        return verify_together(states)

    def next_drafts(self, states: States) -> list[tuple[str, ...]]:
        """See draft_together."""
        return draft_together(states)
