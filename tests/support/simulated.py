"""Scenarios for the tests of the simulator."""

from __future__ import annotations

from typing import Any

from minedraft.simulator import Outcome, Scenario, simulate
from minedraft.trace import StepRecord


class Sink(list[StepRecord]):
    """Keeps what is written."""

    def write(self, record: StepRecord) -> None:
        """Keep one record."""
        self.append(record)

    def flush(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


def scenario(**changes: Any) -> Scenario:
    """A scenario from its mapping, with small defaults."""
    return Scenario.from_mapping(
        {
            "name": "test",
            "mode": "two-batch",
            "num_speculative_tokens": 4,
            "acceptance": [0.8],
            "engines": [{"target": {"fixed_ms": 30.0, "per_token_ms": 0.1}}],
            "drafters": [{"draft": {"fixed_ms": 5.0, "per_token_ms": 0.05}}],
            "requests": {"count": 12, "prompt_tokens": 50, "output_tokens": 40},
            **changes,
        }
    )


def run(**changes: Any) -> tuple[Outcome, Sink]:
    """A scenario's outcome and the records of its first engine's steps."""
    sink = Sink()
    return simulate(scenario(**changes), sink=sink), sink


def decode_rate(steps: list[StepRecord], in_flight: int) -> float:
    """Tokens per second of the steps with so many decoding requests and no prompt."""
    full = [
        each
        for each in steps
        if each.num_prefill_tokens == 0 and sum(each.batch_sizes) == in_flight
    ]
    full = full[len(full) // 50 + 4 : -1]
    tokens = sum(each.num_output_tokens for each in full[1:])
    return tokens / ((full[-1].verify_end_ns - full[0].verify_end_ns) / 1e9)
