"""One way to run a pair, and what it brings.

Owns the figures of a row of the plan's table; which rows there are is `rows`'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from minedraft.bench.metrics import Slo
from minedraft.theory import Steady

_IDLE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A mode at one k on its devices."""

    mode: str
    k: int
    """0 where nothing is drafted."""
    placement: str
    """What stands on the devices."""
    num_devices: int
    steady: Steady
    ttft_ms: float
    """Estimate for a request that need not queue: the pass under way, and one with its prompt."""
    slo: Slo | None

    @property
    def tokens_per_s(self) -> float:
        """Output tokens of all requests, prompts paid for."""
        return self.steady.tokens_per_s

    @property
    def tokens_per_s_per_device(self) -> float:
        """The same over the devices, the drafter's included."""
        return self.steady.tokens_per_s_per_device(self.num_devices)

    @property
    def ms_per_token(self) -> float:
        """Mean TPOT."""
        return self.steady.ms_per_token

    @property
    def slo_excess(self) -> float:
        """The larger of latency over bound; 1 or less keeps the SLO, 0 if there is none."""
        if self.slo is None:
            return 0.0
        bounds = ((self.ttft_ms, self.slo.ttft_ms), (self.ms_per_token, self.slo.tpot_ms))
        return max(found / bound for found, bound in bounds if bound is not None)

    @property
    def keeps_slo(self) -> bool:
        """Whether mean TPOT and the estimate of TTFT are within their bounds."""
        return self.slo_excess <= 1.0

    def rank(self, goal: str) -> tuple[float, float]:
        """Greater is better: keeping the SLO, or nearest to it, comes before the goal."""
        return -max(1.0, self.slo_excess), GOALS[goal](self)

    @property
    def engines_per_drafter(self) -> float | None:
        """How many such targets fill one drafter's time; None without a drafter, or with one
        that works next to no time."""
        share = self.steady.drafter_share
        return 1 / share if share > _IDLE else None


GOALS: Mapping[str, Callable[[Row], float]] = {
    "throughput": lambda row: row.tokens_per_s,
    "per-device": lambda row: row.tokens_per_s_per_device,
}
"""What a recommendation makes the most of."""
