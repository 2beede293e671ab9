"""Questions to the planner for tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minedraft.emulation import LatencyModel
from minedraft.planner import Question
from minedraft.theory import Acceptance, LinearTimes, PairTimes, ScaledDraft


@dataclass(frozen=True, slots=True)
class LinearSource:
    """Times from two latency models, given as (fixed, per token)."""

    target: tuple[float, float]
    draft: tuple[float, float]
    factor: float = 1.0
    title: str = "linear times"

    def times(self, context: float) -> PairTimes:
        """See Source."""
        target, draft = (
            LatencyModel(fixed_ms=fixed, per_token_ms=per_token)
            for fixed, per_token in (self.target, self.draft)
        )
        times = LinearTimes(target=target, draft=draft, context=context)
        return ScaledDraft(times, self.factor)


def question(
    *,
    target: tuple[float, float] = (30.0, 0.1),
    draft: tuple[float, float] = (5.0, 0.05),
    rate: float = 0.8,
    factor: float = 1.0,
    **changes: Any,
) -> Question:
    """A question with small defaults."""
    given: dict[str, Any] = {
        "source": LinearSource(target, draft, factor),
        "acceptance": Acceptance((rate,)),
        "in_flight": 16,
        "prompt_tokens": 100.0,
        "output_tokens": 200.0,
        "max_k": 4,
    }
    return Question(**{**given, **changes})
