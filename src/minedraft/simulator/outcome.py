"""What a simulated run gave: the figures of requests, and the counts of engines and drafters.

Owns their derivation; the figures of requests are `bench.metrics`'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minedraft.bench.metrics import Figures, RequestTimes, figures
from minedraft.simulator.request import SimRequest


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


def request_times(requests: Sequence[SimRequest]) -> list[RequestTimes]:
    """The requests as benchmarks know them."""
    return [
        RequestTimes(
            id=each.id,
            arrival_s=each.arrival_ms / 1e3,
            first_token_s=_seconds(each.first_token_ms),
            finish_s=_seconds(each.finish_ms),
            token_s=[(time_ms / 1e3, count) for time_ms, count in each.deliveries],
            num_prompt_tokens=each.num_prompt_tokens,
            num_output_tokens=each.num_tokens - each.num_prompt_tokens,
            finish_reason="length" if each.finish_ms is not None else "abort",
        )
        for each in requests
    ]


def figures_of(requests: Sequence[SimRequest], num_targets: int, num_drafters: int) -> Figures:
    """The figures of a run."""
    devices = {"target": num_targets, "draft": num_drafters}
    return figures(request_times(requests), devices=devices)


def _seconds(time_ms: float | None) -> float | None:
    return None if time_ms is None else time_ms / 1e3
