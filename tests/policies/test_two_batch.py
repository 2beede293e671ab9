"""Batch parallelism: alternation, its fallback, and newcomers that make no third group."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minedraft.batching import Batch
from minedraft.policies import DraftState, TwoBatchPolicy

NONE, PENDING, READY, IN_FLIGHT = (
    DraftState.NONE,
    DraftState.PENDING,
    DraftState.READY,
    DraftState.IN_FLIGHT,
)
TOKENS = 60
K = 4
ROUNDS = math.ceil((TOKENS - 1) / (K + 1))
TIMES = {"draft_ms": st.integers(1, 40), "verify_ms": st.integers(1, 40)}
#: Steps that a newcomer may cost: the plain decode with its batch, and the move of another.
WAY_IN = 4


def _policy(*names: str) -> TwoBatchPolicy:
    policy = TwoBatchPolicy()
    for name in names:
        policy.admit(name, None)
    return policy


# -- single decisions ----------------------------------------------------------------


def test_the_batches_take_turns() -> None:
    policy = _policy("a", "b", "c", "d")
    states = dict.fromkeys("abcd", READY)
    plans = [policy.select(states, busy=True) for _ in range(4)]
    assert [plan.batch for plan in plans] == [Batch.ZERO, Batch.ONE] * 2
    assert [set(plan.verify) for plan in plans] == [{"a", "c"}, {"b", "d"}] * 2
    assert {plan.batch_sizes for plan in plans} == {(2, 2)}


def test_the_other_batch_goes_first_if_only_it_is_ready() -> None:
    policy = _policy("a", "b")
    plan = policy.select({"a": PENDING, "b": READY}, busy=False)
    assert (plan.batch, plan.verify) == (Batch.ONE, ("b",))
    assert policy.select({"a": READY, "b": READY}, busy=False).batch is Batch.ZERO


def test_it_waits_for_the_batch_whose_turn_it_is() -> None:
    policy = _policy("a", "b", "c")
    plan = policy.select({"a": PENDING, "b": PENDING, "c": READY}, busy=True)
    assert (plan.verify, plan.wait_for) == ((), ("a",))
    plan = policy.select({"a": IN_FLIGHT, "b": PENDING, "c": IN_FLIGHT}, busy=True)
    assert (plan.verify, plan.wait_for) == ((), ("b",))


def test_an_idle_target_runs_what_has_no_drafts_and_a_busy_one_keeps_the_batch_whole() -> None:
    states = {"a": PENDING, "b": PENDING, "c": NONE}
    plan = _policy("a", "b", "c").select(states, busy=False)
    assert (plan.verify, plan.batch) == (("c",), None)
    plan = _policy("a", "b", "c").select(states, busy=True)
    assert (plan.verify, plan.wait_for) == ((), ("a",))


def test_a_filler_step_does_not_count_as_a_turn() -> None:
    policy = _policy("a", "b", "c")
    policy.select({"a": PENDING, "b": PENDING, "c": NONE}, busy=False)
    assert policy.batches.next_to_verify is Batch.ZERO


def test_requests_without_drafts_run_with_their_batch() -> None:
    plan = _policy("a", "b", "c").select({"a": READY, "b": PENDING, "c": NONE}, busy=True)
    assert (plan.batch, set(plan.verify)) == (Batch.ZERO, {"a", "c"})


@pytest.mark.parametrize("state", [PENDING, READY, IN_FLIGHT])
def test_a_batch_is_drafted_whole_or_not_at_all(state: DraftState) -> None:
    policy = _policy("a", "b", "c", "d")
    assert policy.next_drafts({"a": NONE, "b": NONE, "c": NONE, "d": state}) == [("a", "c")]


def test_drafts_are_asked_in_the_order_of_the_turns() -> None:
    policy = _policy("a", "b")
    states = {"a": NONE, "b": NONE}
    assert policy.next_drafts(states) == [("a",), ("b",)]
    policy.batches.verified(Batch.ZERO)
    assert policy.next_drafts(states) == [("b",), ("a",)]


def test_imbalance_is_repaired_by_requests_without_drafts_only() -> None:
    policy = TwoBatchPolicy()
    for name in "abcd":
        policy.admit(name, Batch.ZERO)
    policy.next_drafts({"a": IN_FLIGHT, "b": NONE, "c": IN_FLIGHT, "d": READY})
    assert set(policy.batches.members(Batch.ONE)) == {"b"}


# -- whole runs ----------------------------------------------------------------------


def _names(num: int) -> set[str]:
    return {f"r{number}" for number in range(num)}


def _steady(run: Any, first: int) -> list[Any]:
    """Steps from `first` until the first request ends: rounds of equal length, no endings."""
    last = ROUNDS * 2 - 2
    return list(run.records[first:last])


def _check_in_turn(records: list[Any], requests: set[str]) -> None:
    for record in records:
        zero, one = record.plan.batch_sizes
        assert zero + one == len(requests)
        assert abs(zero - one) <= 1
        assert record.batch is not None, "a third group"
        assert len(record.verify) == (zero, one)[record.batch.value]
        assert record.drafted == set(record.verify), "drafts for everyone"
    for one_record, next_record in pairwise(records):
        assert next_record.batch is one_record.batch.other
        assert not set(one_record.verify) & set(next_record.verify)
        assert set(one_record.verify) | set(next_record.verify) == requests


@given(num=st.integers(2, 9), **TIMES)
@settings(max_examples=60, deadline=None)
def test_two_batches_in_turn_at_the_pace_of_the_slower_device(
    simulate: Callable[..., Any], num: int, draft_ms: int, verify_ms: int
) -> None:
    run = simulate(
        TwoBatchPolicy(), [{"tokens": TOKENS}] * num, draft_ms=draft_ms, verify_ms=verify_ms
    )
    assert len(run.records) == 1 + 2 * ROUNDS
    steady = _steady(run, 1)
    assert len(steady) >= 10
    _check_in_turn(steady, _names(num))
    pace = {later.start - sooner.start for sooner, later in pairwise(steady[2:])}
    assert pace == {max(draft_ms, verify_ms)}


@given(
    gaps=st.lists(st.integers(0, 60), min_size=2, max_size=8),
    lengths=st.lists(st.integers(0, 1), min_size=8, max_size=8),
    **TIMES,
)
@settings(max_examples=150, deadline=None)
def test_staggered_arrivals_make_no_third_group(
    simulate: Callable[..., Any], gaps: list[int], lengths: list[int], **times: int
) -> None:
    """Once the last is there, two steps serve everyone: at most a few more than at once.

    Plain decodes of newcomers on a target that would idle are apart: they delay nobody.
    """
    specs = [
        {"tokens": TOKENS + lengths[number], "arrival": sum(gaps[:number])}
        for number in range(len(gaps))
    ]
    run = simulate(TwoBatchPolicy(), specs, **times)
    rest = run.records[max(run.admitted_at.values()) :]
    fillers = [each for each in rest if each.batch is None]
    assert len(rest) - len(fillers) <= 2 * ROUNDS + WAY_IN
    assert len(fillers) <= 2 * math.ceil(times["draft_ms"] / times["verify_ms"]) + 1


@given(gaps=st.lists(st.integers(0, 40), min_size=1, max_size=7), **TIMES)
@example(gaps=[0, 34, 1, 10, 20], draft_ms=31, verify_ms=3)
@settings(max_examples=100, deadline=None)
def test_newcomers_settle_into_two_even_batches(
    simulate: Callable[..., Any], gaps: list[int], draft_ms: int, verify_ms: int
) -> None:
    num = len(gaps) + 1
    last = sum(gaps)
    specs = [{"tokens": 10**4, "arrival": sum(gaps[:number])} for number in range(num)]
    options = {"draft_ms": draft_ms, "verify_ms": verify_ms}
    max_steps = 40 + last // min(options.values())
    run = simulate(TwoBatchPolicy(), specs, max_steps=max_steps, **options)
    settled = max(run.admitted_at.values()) + 8
    steady = run.records[settled : settled + 20]
    assert len(steady) == 20
    _check_in_turn(steady, _names(num))


@given(**TIMES)
@settings(max_examples=30, deadline=None)
def test_one_request_alone_is_sequential_and_a_second_brings_two_batches_back(
    simulate: Callable[..., Any], draft_ms: int, verify_ms: int
) -> None:
    period = draft_ms + verify_ms
    joins = verify_ms + 10 * period
    specs = [{"tokens": 400}, {"tokens": 100, "arrival": joins}]
    run = simulate(TwoBatchPolicy(), specs, draft_ms=draft_ms, verify_ms=verify_ms)
    alone = [each for each in run.records[1:] if each.end <= joins]
    assert len(alone) >= 9
    for sooner, later in pairwise(alone):
        assert later.start - sooner.start == period
        assert later.plan.batch_sizes in ((1, 0), (0, 1))
        assert later.drafted == {"r0"}
    together = [each for each in run.records if each.plan.batch_sizes == (1, 1)]
    assert len(together) >= 2 * 18
    _check_in_turn(together[6:36], _names(2))
    pace = {later.start - sooner.start for sooner, later in pairwise(together[6:36])}
    assert pace == {max(draft_ms, verify_ms)}
    after = run.records[-10:]
    assert all(each.drafted == {"r0"} for each in after), "alone again once the second is done"
    assert {later.start - sooner.start for sooner, later in pairwise(after)} == {period}


@given(
    ends=st.lists(st.integers(50, 300), min_size=3, max_size=7),
    preempts=st.lists(st.integers(50, 300), min_size=1, max_size=3),
    draft_ms=st.integers(3, 40),
    verify_ms=st.integers(3, 40),
)
@settings(max_examples=60, deadline=None)
def test_balance_is_repaired_after_aborts_and_preemptions(
    simulate: Callable[..., Any], ends: list[int], preempts: list[int], **times: int
) -> None:
    specs: list[dict[str, Any]] = [{"tokens": 10**4, "abort_at": end} for end in ends]
    specs += [{"tokens": 10**4, "preempt_at": (at,)} for at in preempts]
    specs += [{"tokens": 10**4}] * 2
    run = simulate(TwoBatchPolicy(), specs, max_steps=40 + 300 // min(times.values()), **times)
    left = {f"r{number}" for number in range(len(specs))} - run.aborted
    assert len(left) == len(preempts) + 2
    last = max(*ends, *preempts)
    calm = [each for each in run.records if each.start > last][10:26]
    assert len(calm) == 16
    _check_in_turn(calm, left)


@given(**TIMES)
@settings(max_examples=20, deadline=None)
def test_a_request_that_is_never_drafted_runs_with_its_batch(
    simulate: Callable[..., Any], **times: int
) -> None:
    specs = [{"tokens": 60, "accepts": (-1,)}, {"tokens": 60}, {"tokens": 60}]
    run = simulate(TwoBatchPolicy(), specs, **times)
    assert run.done["r0"] == 59
    assert run.done["r1"] == run.done["r2"] == ROUNDS
