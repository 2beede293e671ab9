"""How long a pass takes, as the closed forms ask for it.

Owns the Protocol, and its linear case from two latency models; it measures nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from minedraft.emulation import LatencyModel
from minedraft.validation import check_number


class PairTimes(Protocol):
    """t and V of a target and its drafter, by the size of a pass; sizes may be means."""

    def verify_ms(self, num_requests: float, num_tokens: float) -> float:
        """V: a target pass over `num_tokens` tokens of `num_requests` requests, in ms."""
        ...

    def draft_pass_ms(self, num_requests: float, num_tokens: float) -> float:
        """A draft pass over `num_tokens` tokens of `num_requests` requests, in ms.

        t is k of them.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearTimes:
    """Two latency models, with `context` tokens of each request in both KV caches."""

    target: LatencyModel
    draft: LatencyModel
    context: float = 0.0

    def __post_init__(self) -> None:
        check_number("context", self.context, 0.0)

    def verify_ms(self, num_requests: float, num_tokens: float) -> float:
        """See PairTimes."""
        return self.target.pass_ms(num_tokens, num_requests, num_requests * self.context)

    def draft_pass_ms(self, num_requests: float, num_tokens: float) -> float:
        """See PairTimes."""
        return self.draft.pass_ms(num_tokens, num_requests, num_requests * self.context)
