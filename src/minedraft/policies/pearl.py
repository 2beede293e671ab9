"""Drafting goes on during verification: the baseline PEARL, for a batch of requests.

While the target verifies, the drafter guesses the token that the target will add, and k
more. A request whose guesses were all right needs no pass for its next drafts; those that
missed are waited for.
Implements: PEARL (arXiv:2408.11850), post-verify. Its pre-verify (the first draft token is
verified while the others are drafted) is not here: in a batch, requests that missed wait.
"""

from __future__ import annotations

from minedraft.batching import Batch
from minedraft.policies.base import Drafting, States, StepPlan, draft_together, verify_together


class PearlPolicy:
    """One group, as in standard speculative decoding, and a drafter that is ahead of it."""

    name = "pearl"
    drafting = Drafting.AHEAD
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
