"""The planner's figures against the simulator, prompts, arrivals and all."""

from __future__ import annotations

from typing import Any

import pytest

from minedraft.config import MODES
from minedraft.planner import Row, make_plan
from minedraft.simulator import Outcome
from plans import question
from simulated import run

#: Requests begin without drafts, and the last ones run in a batch that is not full.
_MOST_ABOVE = 0.10
_LATENCY = 0.06
LOADS = {"short prompts": (100, 200), "long prompts": (800, 100)}


def _both(prompt_tokens: int, output_tokens: int, mode: str) -> tuple[Row, Outcome]:
    asked = question(prompt_tokens=prompt_tokens, output_tokens=output_tokens)
    (row,) = (row for row in make_plan(asked).rows if row.mode == mode)
    outcome, _ = run(
        mode=mode,
        num_speculative_tokens=row.k or 1,
        load={"kind": "closed-loop", "in_flight": asked.in_flight},
        requests=_requests(prompt_tokens, output_tokens),
    )
    return row, outcome


def _requests(prompt_tokens: int, output_tokens: int) -> dict[str, Any]:
    lengths = {"low": output_tokens // 2, "high": output_tokens * 3 // 2}
    return {"count": 240, "prompt_tokens": prompt_tokens, "output_tokens": lengths}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("load", LOADS)
def test_figures_are_near_and_above(load: str, mode: str) -> None:
    row, outcome = _both(*LOADS[load], mode)
    assert (1 - _MOST_ABOVE) * row.tokens_per_s <= outcome.tokens_per_s <= row.tokens_per_s
    tpot, ttft = outcome.figures.tpot_ms, outcome.figures.ttft_ms
    assert tpot is not None
    assert ttft is not None
    assert row.ms_per_token == pytest.approx(tpot.median, rel=_LATENCY)
    # Half of the requests wait for less, and one in ten for more or little less.
    assert 0.85 * ttft.median <= row.ttft_ms <= 1.15 * ttft.p90


def test_a_drafter_serves_as_many_targets_as_the_plan_says() -> None:
    models = {"target": (30.0, 0.0), "draft": (4.0, 0.0)}
    asked = question(**models, prompt_tokens=20, max_k=2)  # type: ignore[arg-type]
    (row,) = (row for row in make_plan(asked).rows if row.mode == "two-batch")
    assert row.engines_per_drafter is not None
    whole = int(row.engines_per_drafter)
    assert whole == 3

    def rate(num_engines: int) -> float:
        outcome, _ = run(
            mode="two-batch",
            num_speculative_tokens=row.k,
            engines=[{"target": {"fixed_ms": 30.0}, "max_num_seqs": 16, "count": num_engines}],
            drafters=[{"draft": {"fixed_ms": 4.0}}],
            requests={"count": 120 * num_engines, "prompt_tokens": 20, "output_tokens": 200},
        )
        return outcome.tokens_per_s / num_engines

    alone = rate(1)
    assert rate(whole) > 0.95 * alone
    assert rate(whole + 1) < 0.95 * alone
