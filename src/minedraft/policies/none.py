"""Plain decoding: every request, every step, no drafts. It is the baseline of every claim."""

from __future__ import annotations

from minedraft.batching import Batch
from minedraft.policies.base import Drafting, DraftState, States, StepPlan, runnable


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
        """Everyone at once; nobody while others decode, so that newcomers join the rest."""
        decoding = busy and DraftState.IN_FLIGHT in states.values()
        verify = () if decoding else runnable(states)
        return StepPlan(verify=verify, batch_sizes=(len(states), 0))

    def next_drafts(self, states: States) -> list[tuple[str, ...]]:
        """None."""
        return []
