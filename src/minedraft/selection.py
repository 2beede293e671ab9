"""Which of the drafts at hand are verified, when there may be more than the target should take.

Owns the choice of a length for each request's draft; it sees numbers only.
Implements: TETRIS (arXiv:2502.15197) as MineDraft combines it (arXiv:2603.18016): draft
k + e tokens for each request, verify the best k·m over a step of m requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

Confidences = Mapping[str, Sequence[float]]
"""By request: for each draft token the natural logarithm of how likely the drafter held its
best guess there to be, at most 0. It is known before the token is drawn: were the drawn
token's own probability used, tokens would be kept for what they are, and at a temperature
above 0 the output would no longer have the target's distribution."""


class Selection(Protocol):
    """Chooses how many of each request's draft tokens are verified."""

    def lengths(self, drafts: Confidences) -> dict[str, int]:
        """How many leading draft tokens of each request of a step to keep."""
        ...


class TakeAll:
    """Everything that was drafted."""

    def lengths(self, drafts: Confidences) -> dict[str, int]:
        """The whole of every draft."""
        return {request_id: len(each) for request_id, each in drafts.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tetris:
    """The most promising draft tokens of a step, by what they and those before them promise.

    `capacity` is how many in a step; None: `k` for each request of it. With fewer than
    `min_requests` requests every draft is cut to `k`.
    """

    k: int
    capacity: int | None = None
    min_requests: int = 1

    def lengths(self, drafts: Confidences) -> dict[str, int]:
        """See Selection; a request may be left with none, and decodes plainly then."""
        if len(drafts) < self.min_requests:
            return {request_id: min(self.k, len(each)) for request_id, each in drafts.items()}
        capacity = self.k * len(drafts) if self.capacity is None else self.capacity
        # Sums only fall along a draft, so that the best tokens are always leading ones. Equal
        # sums go to the earlier position: a long draft must not starve the others.
        ranked = sorted(
            (-total, position, order, request_id)
            for order, (request_id, each) in enumerate(drafts.items())
            for position, total in enumerate(accumulate(each))
        )
        kept = dict.fromkeys(drafts, 0)
        for _, _, _, request_id in ranked[: max(0, capacity)]:
            kept[request_id] += 1
        return kept


def make_selection(
    *, k: int, extra_tokens: int, capacity: int | None, min_requests: int
) -> Selection:
    """TETRIS if more is drafted than k, else all that is drafted."""
    if extra_tokens == 0:
        return TakeAll()
    return Tetris(k=k, capacity=capacity, min_requests=min_requests)
