"""Acceptance per position equals that of vLLM's own `draft_model` method.

A drafter that loses context, or drafts from the wrong position, shows here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engines import Engine, draft_options, random_prompts, running_engine

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

K = 4
PROMPTS = random_prompts(8, seed=11, longest=200)


def _of_vllm(pair: Any) -> list[float]:
    """Accepted drafts at position 1..k, per draft, by vLLM's in-process method and counters."""
    from vllm import LLM

    llm = LLM(
        str(pair.target),
        dtype="float32",
        enforce_eager=True,
        max_model_len=1024,
        max_num_seqs=8,
        block_size=32,
        kv_cache_memory_bytes=2**28,
        disable_log_stats=False,
        speculative_config={
            "method": "draft_model",
            "model": str(pair.draft),
            "num_speculative_tokens": K,
        },
    )
    try:
        Engine(llm, Path()).run(PROMPTS, max_tokens=400)
        counters = {each.name: each for each in llm.get_metrics()}
    finally:
        llm.llm_engine.engine_core.shutdown()
    drafts = counters["vllm:spec_decode_num_drafts"].value
    accepted = counters["vllm:spec_decode_num_accepted_tokens_per_pos"].values
    return [each / drafts for each in accepted]


@pytest.fixture(scope="module")
def expected(pairs: dict[str, Any]) -> list[float]:
    return _of_vllm(pairs["low"])


@pytest.mark.parametrize("mode", ["sequential", "two-batch"])
def test_equals_vllms_own(
    mode: str, expected: list[float], pairs: dict[str, Any], tmp_path: Path
) -> None:
    options = draft_options(pairs["low"], num_speculative_tokens=K, mode=mode)
    trace = tmp_path / "trace.jsonl"
    with running_engine(
        pairs["low"].target, trace, engine={"max_model_len": 1024}, **options
    ) as engine:
        engine.run(PROMPTS, max_tokens=400)
    summary = engine.summary()
    assert summary.num_drafts > 500
    assert summary.acceptance_per_position == pytest.approx(expected, abs=0.01)
