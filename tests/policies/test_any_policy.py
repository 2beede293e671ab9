"""Rules that hold for every policy, over any arrivals, finishes, aborts and preemptions.

The rules themselves stand in the simulation (conftest.py), which checks them at each turn:
nobody is verified while awaited or in flight, nobody is drafted twice, an idle target runs
whatever could run, nobody is passed over for more than a few steps, and all ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minedraft.errors import ConfigError
from minedraft.policies import (
    DraftState,
    NonePolicy,
    PearlPolicy,
    Policy,
    SequentialPolicy,
    TwoBatchPolicy,
    WaitFreePolicy,
    make_policy,
)

NAMES = ("none", "sequential", "two-batch", "pearl", "wait-free")
AT = st.integers(0, 300)
SPECS = st.fixed_dictionaries(
    {
        "arrival": AT,
        "tokens": st.integers(1, 40),
        "accepts": st.lists(st.integers(-1, 4), min_size=1, max_size=4).map(tuple),
        "abort_at": st.none() | AT,
        "preempt_at": st.lists(AT, max_size=2).map(tuple),
    }
)
TIMES = {"draft_ms": st.integers(1, 40), "verify_ms": st.integers(1, 40)}


@pytest.mark.parametrize("name", NAMES)
@given(specs=st.lists(SPECS, min_size=1, max_size=8), **TIMES)
@settings(max_examples=60, deadline=None)
def test_every_request_ends_and_no_rule_is_broken(
    simulate: Callable[..., Any], name: str, specs: list[dict[str, Any]], **options: Any
) -> None:
    run = simulate(make_policy(name), specs, **options)
    assert set(run.done) | run.aborted == {f"r{number}" for number in range(len(specs))}


@pytest.mark.parametrize("name", NAMES)
@given(specs=st.lists(SPECS, min_size=1, max_size=8), dies_at=AT, **TIMES)
@settings(max_examples=40, deadline=None)
def test_every_request_ends_if_the_drafter_dies(
    simulate: Callable[..., Any], name: str, specs: list[dict[str, Any]], **options: Any
) -> None:
    run = simulate(make_policy(name), specs, max_skipped=10**6, **options)
    assert set(run.done) | run.aborted == {f"r{number}" for number in range(len(specs))}


def test_prompts_do_not_starve_decodes_after_the_drafter_died(
    simulate: Callable[..., Any],
) -> None:
    specs = [*[{"tokens": 60}] * 2, *({"arrival": at} for at in range(84, 200, 10))]
    simulate(TwoBatchPolicy(), specs, draft_ms=5, verify_ms=10, dies_at=82)


@pytest.mark.parametrize("name", NAMES)
@given(states=st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(DraftState)))
@settings(max_examples=60, deadline=None)
def test_any_states_get_a_sound_plan(name: str, states: dict[str, DraftState]) -> None:
    for busy in (False, True):
        policy = make_policy(name)
        for request_id in states:
            policy.admit(request_id, None)
        plan = policy.select(states, busy=busy)
        usable = (DraftState.NONE, DraftState.READY)
        assert all(states[each] in usable for each in plan.verify)
        assert all(states[each] is DraftState.PENDING for each in plan.wait_for)
        assert sum(plan.batch_sizes) == len(states)
        groups = policy.next_drafts(states)
        assert all(states[each] is DraftState.NONE for group in groups for each in group)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_to_plan(name: str) -> None:
    policy = make_policy(name)
    for busy in (False, True):
        plan = policy.select({}, busy=busy)
        assert (plan.verify, plan.wait_for, plan.batch_sizes) == ((), (), (0, 0))
    assert policy.next_drafts({}) == []
    policy.remove("nobody")


@pytest.mark.parametrize(
    ("name", "cls", "queued"),
    [
        ("none", NonePolicy, 1),
        ("sequential", SequentialPolicy, 1),
        ("two-batch", TwoBatchPolicy, 2),
        ("pearl", PearlPolicy, 1),
        ("wait-free", WaitFreePolicy, 1),
    ],
)
def test_factory(name: str, cls: type[Policy], queued: int) -> None:
    policy = make_policy(name)
    assert type(policy) is cls
    assert policy.name == name
    assert policy.max_concurrent_batches == queued
    assert make_policy(name) is not policy


def test_factory_refuses_other_names() -> None:
    with pytest.raises(ConfigError, match=r"mode = 'pearls'.*allowed: none, sequential, two-batch"):
        make_policy("pearls")
