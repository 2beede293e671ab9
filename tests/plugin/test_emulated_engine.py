"""What the modes reach in a running engine whose devices are modelled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engines import draft_options, random_prompts, running_engine
from minedraft.trace import read_trace

pytestmark = pytest.mark.vllm

K = 4
IN_FLIGHT = 4
TOKENS = 100
#: A step leaves the drafter many times the k + 1 passes that it needs, since machines are noisy.
SLOW_TARGET = {
    "target": {"fixed_ms": 200.0},
    "draft": {"fixed_ms": 4.0},
    "acceptance": [1.0],
}


@pytest.mark.parametrize("mode", ["pearl", "wait-free"])
def test_a_perfect_drafter_yields_k_plus_one_tokens_a_step(
    mode: str, pairs: dict[str, Any], tmp_path: Path
) -> None:
    options = draft_options(pairs["high"], mode=mode, num_speculative_tokens=K, emulate=SLOW_TARGET)
    trace = tmp_path / "trace.jsonl"
    with running_engine(pairs["high"].target, trace, **options) as engine:
        run = engine.run(random_prompts(IN_FLIGHT, 5, longest=100), max_tokens=TOKENS)
    assert all(len(tokens) == TOKENS for tokens in run.token_ids)
    _, steps = read_trace(trace)
    full = [each for each in steps if each.num_requests == IN_FLIGHT]
    # The first steps have no drafts yet; the last ones verify more than is left of max_tokens.
    steady = full[3 : TOKENS // (K + 1) - 2]
    assert len(steady) > 10
    # On a busy machine the drafter may be late, which costs wait-free drafts and pearl time.
    assert max(each.num_output_tokens / each.num_requests for each in steady) == K + 1
    assert all(each.accepted_per_position == each.proposed_per_position for each in steady)
