"""What a simulated run gave: the figures of requests, and the counts of engines and drafters.

Owns their derivation; the figures of requests are `bench.metrics`'.
"""

from __future__ import annotations

from dataclasses import dataclass

from minedraft.bench.metrics import Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Shares are of the time until the last request ended (for drafters, which may guess on for
    a moment, until the last pass did), over all devices of a kind."""

    figures: Figures
    tokens_per_s: float
    """Output tokens over the time from the first arrival to the last end."""
    num_steps: int
    tokens_per_step: float
    mean_step_ms: float
    """Mean time of a target pass (V)."""
    num_proposed: int
    num_accepted: int
    num_preemptions: int
    target_busy_share: float
    drafter_busy_share: float
    num_link_bytes: int
    peak_kv_blocks: int
    """The most that one engine held."""
    num_events: int

    @property
    def success_rate(self) -> float | None:
        """Accepted over verified draft tokens; None if none were."""
        return self.num_accepted / self.num_proposed if self.num_proposed else None
