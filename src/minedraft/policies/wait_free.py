"""Wait-free drafting: every request is verified in every step, with the drafts that are here.

A request with k drafts, with fewer, or with none (then it decodes plainly) is in every
step; nothing waits but the drafter, which is always ahead on its own guesses.
"""

from __future__ import annotations

from minedraft.batching import Batch
from minedraft.policies.base import Drafting, States, StepPlan, run_all


class WaitFreePolicy:
    """Runs what can run; asks for no drafts, since they come by themselves."""

    name = "wait-free"
    drafting = Drafting.UNASKED
    max_concurrent_batches = 1

    def admit(self, request_id: str, just_verified: Batch | None) -> None:
        """Nothing to remember."""

    def remove(self, request_id: str) -> None:
        """Nothing to forget."""

    def select(self, states: States, *, busy: bool) -> StepPlan:
        """See run_all."""
        return run_all(states, busy=busy)

    def next_drafts(self, states: States) -> list[tuple[str, ...]]:
        """None: nobody is asked."""
        return []
