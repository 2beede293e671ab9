"""What is asked of the planner: a pair, its devices, a load and what answers must keep to.

Owns the fields and their ranges; it plans nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from minedraft.bench.metrics import Slo
from minedraft.planner.row import GOALS
from minedraft.planner.source import Source
from minedraft.theory import MAX_DRAFT_TOKENS, Acceptance, Load, PairTimes, Prompts
from minedraft.validation import check_choice, check_int, check_number

_MAX_IN_FLIGHT = 8192
_MAX_DEVICES = 65_536
_MAX_TOKENS = 1e8
_MAX_MS = 60_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A pair under a load that does not change."""

    source: Source
    acceptance: Acceptance
    in_flight: int
    """Decoding requests, both batches together."""
    prompt_tokens: float
    """Mean length of a prompt."""
    output_tokens: float
    """Mean length of an answer."""
    slo: Slo | None = None
    num_target_devices: int = 1
    num_draft_devices: int = 1
    max_k: int = 8
    overhead_ms: float = 0.0
    """Of each step of the target, hidden behind nothing."""
    round_trip_ms: float = 0.0
    """Of asking the drafter, its passes left out; paid by the modes that wait for drafts."""
    goal: str = "throughput"
    """One of `row.GOALS`."""
    times: PairTimes = field(init=False, repr=False)
    """At the mean context: the prompt and half of the answer."""

    def __post_init__(self) -> None:
        check_int("in_flight", self.in_flight, 1, _MAX_IN_FLIGHT)
        check_number("prompt_tokens", self.prompt_tokens, 0.0, _MAX_TOKENS)
        check_number("output_tokens", self.output_tokens, 1.0, _MAX_TOKENS)
        check_int("num_target_devices", self.num_target_devices, 1, _MAX_DEVICES)
        check_int("num_draft_devices", self.num_draft_devices, 1, _MAX_DEVICES)
        check_int("max_k", self.max_k, 1, MAX_DRAFT_TOKENS)
        check_number("overhead_ms", self.overhead_ms, 0.0, _MAX_MS)
        check_number("round_trip_ms", self.round_trip_ms, 0.0, _MAX_MS)
        check_choice("goal", self.goal, GOALS)
        times = self.source.times(self.prompt_tokens + self.output_tokens / 2)
        object.__setattr__(self, "times", times)

    @property
    def num_devices(self) -> int:
        """Target and drafter together."""
        return self.num_target_devices + self.num_draft_devices

    def load(self, in_flight: int) -> Load:
        """The load with so many requests in flight, prompts included."""
        return Load(
            times=self.times,
            acceptance=self.acceptance,
            in_flight=in_flight,
            overhead_ms=self.overhead_ms,
            round_trip_ms=self.round_trip_ms,
            prompts=Prompts(tokens=self.prompt_tokens, outputs=self.output_tokens),
        )
