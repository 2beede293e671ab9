"""Prompts in the closed forms, and the work of the drafter: written out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minedraft.config import MODES
from minedraft.emulation import LatencyModel
from minedraft.errors import ConfigError
from minedraft.theory import Acceptance, LinearTimes, Load, Prompts, steady_of

TIMES = LinearTimes(
    target=LatencyModel(fixed_ms=30.0, per_token_ms=0.1),
    draft=LatencyModel(fixed_ms=5.0, per_token_ms=0.05),
)
BARE = Load(times=TIMES, acceptance=Acceptance((0.5,)), in_flight=16)
# 4 prompt tokens an output token; the drafter takes a prompt in with a pass of 5 + 20 ms.
LOAD = replace(BARE, prompts=Prompts(tokens=400, outputs=100))


@pytest.mark.parametrize("mode", MODES)
def test_empty_prompts_are_no_prompts(mode: str) -> None:
    empty = replace(BARE, prompts=Prompts(tokens=0, outputs=10))
    assert steady_of(mode, empty, 2) == steady_of(mode, BARE, 2)


def test_each_output_token_brings_its_share_of_prompts() -> None:
    found = steady_of("none", LOAD, 2)
    assert found.round_ms == pytest.approx(30 + 0.1 * (16 + 16 * 4))
    assert (found.drafter_ms, found.pass_ms) == (0.0, found.round_ms)


def test_sequential_takes_prompts_in_while_it_verifies() -> None:
    tokens = 1.75
    draft_ms = (5 + 0.05 * 16 * 1.25) + (5 + 0.05 * 16)
    verify_ms = 30 + 0.1 * (16 * 3 + 16 * tokens * 4)
    prompts_ms = 16 * tokens / 100 * 25
    found = steady_of("sequential", LOAD, 2)
    assert found.round_ms == pytest.approx(draft_ms + verify_ms)
    assert found.drafter_ms == pytest.approx(draft_ms + prompts_ms)
    assert found.drafter_share == pytest.approx((draft_ms + prompts_ms) / (draft_ms + verify_ms))
    # Answers of three tokens: the drafter cannot take the prompts in beside V.
    short = replace(LOAD, prompts=Prompts(tokens=400, outputs=3))
    verify_ms = 30 + 0.1 * (16 * 3 + 16 * tokens * 400 / 3)
    slow = replace(short, times=replace(TIMES, draft=LatencyModel(fixed_ms=100.0)))
    assert steady_of("sequential", slow, 2).round_ms == pytest.approx(
        200 + max(verify_ms, 16 * tokens / 3 * 100)
    )


def test_two_batch_pays_for_prompts_where_the_drafter_has_no_rest() -> None:
    tokens = 1.75
    draft_ms = 2 * ((5 + 0.05 * 8 * 1.25) + (5 + 0.05 * 8))
    verify_ms = 2 * (30 + 0.1 * (8 * 3 + 8 * tokens * 4))
    found = steady_of("two-batch", LOAD, 2)
    assert found.round_ms == pytest.approx(verify_ms)
    assert found.pass_ms == pytest.approx(verify_ms / 2)
    assert found.drafter_ms == pytest.approx(draft_ms + 16 * tokens / 100 * 25)
    slow = replace(LOAD, times=replace(TIMES, draft=LatencyModel(fixed_ms=40.0)))
    found = steady_of("two-batch", slow, 2)
    assert found.round_ms == found.drafter_ms == pytest.approx(160 + 16 * tokens / 100 * 40)
    assert found.drafter_share == 1.0


def test_guesses_wait_for_prompts() -> None:
    # pearl: three passes fit a step, and do not beside prompts.
    tight = replace(BARE, times=replace(TIMES, draft=LatencyModel(fixed_ms=11.0)))
    assert steady_of("pearl", tight, 2).drafter_share > 0.7
    with pytest.raises(ConfigError, match="draft passes and prompts take"):
        steady_of("pearl", replace(tight, prompts=Prompts(tokens=40, outputs=10)), 2)
    # wait-free: with less time for guesses fewer drafts are there.
    crowded = replace(BARE, prompts=Prompts(tokens=1, outputs=5))
    bare, found = (steady_of("wait-free", load, 4) for load in (BARE, crowded))
    assert found.tokens_per_round < bare.tokens_per_round
    assert found.drafter_share == 1.0, "a drafter that has no time for all passes never rests"


def test_work_of_a_wait_free_drafter_is_what_brings_something() -> None:
    found = steady_of("wait-free", BARE, 2)
    assert found.drafter_ms == pytest.approx(3 * (5 + 0.05 * 16))


@pytest.mark.parametrize(("tokens", "outputs"), [(-1.0, 10.0), (10.0, 0.5), (float("nan"), 1.0)])
def test_bad_prompts(tokens: float, outputs: float) -> None:
    with pytest.raises(ConfigError, match=r"prompts\."):
        Prompts(tokens=tokens, outputs=outputs)
