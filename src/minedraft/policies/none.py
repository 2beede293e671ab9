"""Plain decoding: every request, every step, no drafts. It is the baseline of every claim."""

from __future__ import annotations

from minedraft.batching import Batch
from minedraft.policies.base import Drafting, States, StepPlan, run_all


class NonePolicy:
    """Runs what can run; asks for no drafts."""

    name = "none"
    drafting = Drafting.ON_DEMAND
    max_concurrent_batches = 1

    def admit(self, request_id: str, just_verified: Batch | None) -> None:
        """Nothing to remember."""

    def remove(self, request_id: str) -> None:
        """Nothing to forget."""

    def select(self, states: States, *, busy: bool) -> StepPlan:
        """See run_all."""
        return run_all(states, busy=busy)

    def next_drafts(self, states: States) -> list[tuple[str, ...]]:
        """None."""
        return []
