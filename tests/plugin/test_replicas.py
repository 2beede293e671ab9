"""Data parallel engines: each has a drafter and a trace of its own, and answers as one alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import minedraft
from engines import draft_options, random_prompts
from minedraft.trace import read_trace
from scenarios import ENGINE

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

PROMPTS = random_prompts(6, seed=51, longest=100)
REPEATS = 3


async def _ask(llm: Any, name: str, prompt: list[int]) -> list[int]:
    from vllm import SamplingParams

    params = SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True)
    tokens: list[int] = []
    async for output in llm.generate({"prompt_token_ids": prompt}, params, name):
        tokens = list(output.outputs[0].token_ids)
    return tokens


async def _run(args: Any) -> tuple[list[list[int]], list[list[int]]]:
    """The answers of each prompt alone, and of all of them several times at once."""
    from vllm.v1.engine.async_llm import AsyncLLM

    llm = AsyncLLM.from_engine_args(args)
    try:
        alone = [await _ask(llm, f"alone-{at}", each) for at, each in enumerate(PROMPTS)]
        crowd = (_ask(llm, f"crowd-{at}", each) for at, each in enumerate(PROMPTS * REPEATS))
        return alone, await asyncio.gather(*crowd)
    finally:
        llm.shutdown()


def test_each_has_a_drafter(pairs: dict[str, Any], tmp_path: Path) -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs

    options = draft_options(pairs["high"], trace=str(tmp_path / "trace.jsonl"))
    args = AsyncEngineArgs(
        str(pairs["high"].target),
        **ENGINE,
        data_parallel_size=2,
        **minedraft.engine_args(**options),
    )
    alone, crowd = asyncio.run(_run(args))
    assert all(len(each) == 60 for each in alone)
    assert crowd == alone * REPEATS
    for name in ("trace.jsonl", "trace.1.jsonl"):
        _, steps = read_trace(tmp_path / name)
        assert sum(sum(step.accepted_per_position) for step in steps) > 20, name
