"""Hand-made headers and steps for the trace tests.

Owns the sample factories; it tests nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from minedraft.trace import StepRecord, TraceHeader

MS = 1_000_000
StepFactory = Callable[..., StepRecord]


def _step(number: int, verify_ms: tuple[float, float], **fields: Any) -> StepRecord:
    """Return a two-batch step of one request, with times in milliseconds."""
    start, end = fields.pop("draft_ms", None) or (None, None)
    values: dict[str, Any] = {
        "step": number,
        "mode": "two-batch",
        "batch": number % 2,
        "batch_sizes": (1, 1),
        "num_requests": 1,
        "num_prefill_requests": 0,
        "num_prefill_tokens": 0,
        "num_decode_tokens": 3,
        "num_output_tokens": 2,
        "proposed_per_position": [1, 1],
        "accepted_per_position": [1, 0],
        "draft_start_ns": None if start is None else round(start * MS),
        "draft_end_ns": None if end is None else round(end * MS),
        "draft_passes": 3,
        "verify_start_ns": round(verify_ms[0] * MS),
        "verify_end_ns": round(verify_ms[1] * MS),
        "wait_ns": 0,
    }
    return StepRecord(**(values | fields))


@pytest.fixture(scope="session")
def make_step() -> StepFactory:
    return _step


@pytest.fixture(scope="session")
def header() -> TraceHeader:
    return TraceHeader(
        mode="two-batch",
        num_speculative_tokens=2,
        target="big",
        draft="small",
        emulated=True,
        versions={"minedraft": "0.1", "vllm": "0.32.0", "torch": "2"},
    )


@pytest.fixture(scope="session")
def steps() -> list[StepRecord]:
    """A prompt step, then 40 two-batch steps of 10 ms, each with 8 ms of hidden drafting."""
    prompt = _step(
        0,
        (0, 10),
        mode="prefill",
        batch=None,
        batch_sizes=(0, 0),
        num_requests=0,
        num_prefill_requests=2,
        num_prefill_tokens=64,
        num_decode_tokens=0,
        proposed_per_position=[],
        accepted_per_position=[],
        draft_passes=0,
    )
    decode = [
        _step(i, (10 * i + 1, 10 * i + 10), draft_ms=(10 * i - 9, 10 * i - 1)) for i in range(1, 41)
    ]
    return [prompt, *decode]
