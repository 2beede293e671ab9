"""The shrinker against predicates that need no engine."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuzzing.generate import generate
from fuzzing.plan import EngineSettings, EventKind, RunPlan
from fuzzing.shrink import shrink


@pytest.mark.parametrize("seed", range(20))
def test_two_long_prompts_are_all_that_is_left(seed: int) -> None:
    def fails(plan: RunPlan) -> bool:
        return sum(len(request.prompt) >= 31 for request in plan.requests) >= 2

    plan = generate(seed)
    if not fails(plan):
        pytest.skip("this plan has no two long prompts")
    small = shrink(plan, fails, most_tries=10_000)
    assert [len(request.prompt) for request in small.requests] == [31, 31]
    assert not small.events
    for request in small.requests:
        assert request.sampling.max_tokens == 1
        assert not request.again
        assert (request.abort_tokens, request.abort_turns) == (None, None)
        assert (request.arrival, request.priority) == (0, 0)
    kept = EngineSettings(mode=plan.engine.mode, pair=plan.engine.pair)
    assert small.engine == kept


def test_an_event_that_matters_stays_at_its_first_turn() -> None:
    def fails(plan: RunPlan) -> bool:
        kinds = {event.kind for event in plan.events if event.turn >= 5}
        return EventKind.RESET_RUNNING in kinds

    plan = next(plan for plan in map(generate, range(1000)) if fails(plan))
    (event,) = shrink(plan, fails, most_tries=10_000).events
    assert (event.kind, event.turn) == (EventKind.RESET_RUNNING, 5)


def test_settings_are_cut_down_token_by_token() -> None:
    def fails(plan: RunPlan) -> bool:
        return any((77,) in request.sampling.bad_words for request in plan.requests)

    plan = next(plan for plan in map(generate, range(5000)) if fails(plan))
    (request,) = shrink(plan, fails, most_tries=10_000).requests
    assert request.sampling.bad_words == ((77,),)
    assert request.sampling.allowed_token_ids == ()


def test_it_gives_up_after_so_many_tries(small_plan: Callable[..., RunPlan]) -> None:
    tries = []

    def fails(plan: RunPlan) -> bool:
        tries.append(plan)
        return len(tries) % 2 == 0

    shrink(small_plan(100, 100, 100), fails, most_tries=7)
    assert len(tries) == 7


def test_the_engine_can_be_kept(small_plan: Callable[..., RunPlan]) -> None:
    plan = small_plan(5)
    small = shrink(plan, lambda _: True, keep_engine=True)
    assert small.engine == plan.engine
