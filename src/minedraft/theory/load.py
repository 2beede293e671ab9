"""A steady load of decoding requests, and what a mode brings under it.

Owns sizes of passes and units of figures; formulas by mode are `steady`'s.
"""

from __future__ import annotations

from dataclasses import dataclass

from minedraft.theory.acceptance import Acceptance
from minedraft.theory.times import PairTimes
from minedraft.validation import check_int, check_number


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """What every request brings before its output: means over the requests."""

    tokens: float
    """Of a prompt."""
    outputs: float
    """Tokens of an answer."""

    def __post_init__(self) -> None:
        check_number("prompts.tokens", self.tokens, 0.0)
        check_number("prompts.outputs", self.outputs, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A pair under a steady load.

    With `prompts`, a request that ends is followed by a new one: its prompt's tokens share the
    target's passes with the decoding requests, spread evenly, and the drafter takes each
    prompt in with one pass, while it has nothing else to do.
    """

    times: PairTimes
    acceptance: Acceptance
    in_flight: int
    """Decoding requests, both batches together."""
    overhead_ms: float = 0.0
    """O: of each step of the target, hidden behind nothing."""
    round_trip_ms: float = 0.0
    """R: what asking the drafter and hearing from it take beside its passes. Paid by who waits
    for drafts, as `profiles.Profile.round_trip_ms`."""
    prompts: Prompts | None = None
    """None: decoding alone."""

    def __post_init__(self) -> None:
        check_int("in_flight", self.in_flight, 1)
        check_number("overhead_ms", self.overhead_ms, 0.0)
        check_number("round_trip_ms", self.round_trip_ms, 0.0)

    def verify_ms(self, num_requests: float, num_drafts: float, num_outputs: float = 0.0) -> float:
        """V of a pass over `num_drafts` draft tokens in all, which brings `num_outputs` tokens."""
        share = 0.0 if self.prompts is None else self.prompts.tokens / self.prompts.outputs
        num_tokens = num_requests + num_drafts + share * num_outputs
        return self.times.verify_ms(num_requests, num_tokens)

    def step_ms(self, num_requests: float, num_drafts: float, num_outputs: float = 0.0) -> float:
        """V + O of such a pass."""
        return self.verify_ms(num_requests, num_drafts, num_outputs) + self.overhead_ms

    def draft_prompts_ms(self, num_outputs: float) -> float:
        """Passes of the drafter over the prompts that come with so many output tokens."""
        if self.prompts is None or not self.prompts.tokens:
            return 0.0
        passes = num_outputs / self.prompts.outputs
        return passes * self.times.draft_pass_ms(1, self.prompts.tokens)

    def draft_ms(self, num_requests: float, k: int) -> float:
        """t: k drafts for each of `num_requests` requests, from their last tokens on."""
        if k == 0:
            return 0.0
        first = num_requests * (1.0 + self.acceptance.survival(k))
        others = self.times.draft_pass_ms(num_requests, num_requests)
        return self.times.draft_pass_ms(num_requests, first) + (k - 1) * others


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """What a mode brings per round, in which every request is verified once."""

    round_ms: float
    tokens_per_round: float
    """Of one request."""
    in_flight: int
    drafter_ms: float = 0.0
    """Work of the drafter in a round; all of the round where it holds the target up."""
    pass_ms: float = 0.0
    """Mean time of a pass of the target, with the overhead that nothing hides."""
    pass_requests: int | None = None
    """Requests in one pass of the target, the larger of two batches; None: all in flight."""

    @property
    def tokens_per_s(self) -> float:
        """Output tokens of all requests."""
        return self.in_flight * self.tokens_per_round * 1e3 / self.round_ms

    @property
    def ms_per_token(self) -> float:
        """Mean latency of a token of one request (TPOT)."""
        return self.round_ms / self.tokens_per_round

    @property
    def drafter_share(self) -> float:
        """Share of the time in which the drafter works, from 0 to 1."""
        return self.drafter_ms / self.round_ms

    def tokens_per_s_per_device(self, num_devices: int) -> float:
        """Throughput over the devices of target and drafter together."""
        check_int("num_devices", num_devices, 1)
        return self.tokens_per_s / num_devices
