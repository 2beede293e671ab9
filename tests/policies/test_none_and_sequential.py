"""Plain decoding and standard speculative decoding."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from minedraft.policies import DraftState, NonePolicy, SequentialPolicy

NONE, PENDING, READY, IN_FLIGHT = (
    DraftState.NONE,
    DraftState.PENDING,
    DraftState.READY,
    DraftState.IN_FLIGHT,
)


def test_none_runs_all_that_can_run_and_never_drafts() -> None:
    policy = NonePolicy()
    states = {"a": NONE, "b": READY, "c": PENDING, "d": IN_FLIGHT}
    assert policy.select(states, busy=False).verify == ("a", "b")
    assert policy.select(states, busy=True).verify == ()
    assert policy.next_drafts({"a": NONE}) == []


@given(num=st.integers(1, 6), tokens=st.integers(2, 30), verify_ms=st.integers(1, 30))
@settings(max_examples=30, deadline=None)
def test_none_takes_one_step_a_token(
    simulate: Callable[..., Any], num: int, tokens: int, verify_ms: int
) -> None:
    run = simulate(NonePolicy(), [{"tokens": tokens}] * num, draft_ms=1, verify_ms=verify_ms)
    assert len(run.records) == tokens
    assert run.now == tokens * verify_ms
    assert not run.asked


def test_sequential_waits_for_the_whole_group() -> None:
    policy = SequentialPolicy()
    plan = policy.select({"a": READY, "b": PENDING}, busy=False)
    assert (plan.verify, plan.wait_for) == ((), ("b",))
    assert policy.select({"a": READY, "b": READY}, busy=False).verify == ("a", "b")


def test_sequential_runs_newcomers_while_it_waits_and_with_the_rest_once_it_need_not() -> None:
    policy = SequentialPolicy()
    assert policy.select({"a": PENDING, "b": NONE}, busy=False).verify == ("b",)
    assert policy.select({"a": READY, "b": NONE}, busy=False).verify == ("a", "b")


def test_sequential_drafts_everyone_or_nobody() -> None:
    policy = SequentialPolicy()
    assert policy.next_drafts({"a": NONE, "b": NONE}) == [("a", "b")]
    for state in (PENDING, READY, IN_FLIGHT):
        assert policy.next_drafts({"a": NONE, "b": state}) == []


@given(
    num=st.integers(1, 6),
    tokens=st.integers(2, 40),
    accepted=st.integers(0, 4),
    draft_ms=st.integers(1, 30),
    verify_ms=st.integers(1, 30),
)
@settings(max_examples=40, deadline=None)
def test_sequential_costs_draft_plus_verify_a_step(
    simulate: Callable[..., Any],
    num: int,
    tokens: int,
    accepted: int,
    draft_ms: int,
    verify_ms: int,
) -> None:
    specs = [{"tokens": tokens, "accepts": (accepted,)}] * num
    run = simulate(SequentialPolicy(), specs, draft_ms=draft_ms, verify_ms=verify_ms)
    rounds = math.ceil((tokens - 1) / (accepted + 1))
    assert len(run.records) == 1 + rounds
    assert run.now == verify_ms + rounds * (draft_ms + verify_ms)


@given(
    gaps=st.lists(st.integers(0, 60), min_size=2, max_size=6),
    draft_ms=st.integers(1, 30),
    verify_ms=st.integers(1, 30),
)
@settings(max_examples=60, deadline=None)
def test_sequential_brings_newcomers_into_the_one_group(
    simulate: Callable[..., Any], gaps: list[int], draft_ms: int, verify_ms: int
) -> None:
    specs = [{"tokens": 60, "arrival": sum(gaps[:number])} for number in range(len(gaps))]
    run = simulate(SequentialPolicy(), specs, draft_ms=draft_ms, verify_ms=verify_ms)
    rest = len(run.records) - max(run.admitted_at.values())
    fillers = math.ceil(draft_ms / verify_ms) + 1
    assert rest <= math.ceil(59 / 5) + fillers + 1, "one group, but for the way in"
