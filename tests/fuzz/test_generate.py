"""Plans depend on their seed alone, survive JSON, and cover what they are made for."""

from __future__ import annotations

from dataclasses import replace

from fuzzing.generate import SETTINGS, generate
from fuzzing.plan import FAULTS, EventKind, RunPlan

PLANS = [generate(seed) for seed in range(300)]


def test_a_seed_always_gives_the_same_plan() -> None:
    assert [generate(seed) for seed in range(300)] == PLANS
    assert len({plan.requests for plan in PLANS}) == len(PLANS)


def test_a_plan_survives_json() -> None:
    assert [RunPlan.from_json(plan.to_json()) for plan in PLANS] == PLANS


def test_an_engine_or_no_faults_change_nothing_else() -> None:
    for seed, plan in enumerate(PLANS[:50]):
        other = generate(seed, SETTINGS[1], faults=False)
        kept = tuple(event for event in plan.events if event.kind not in FAULTS)
        assert other == replace(plan, engine=SETTINGS[1], events=kept)


def test_every_kind_of_event_and_engine_comes_up() -> None:
    assert {event.kind for plan in PLANS for event in plan.events} == set(EventKind)
    assert {plan.engine for plan in PLANS} == set(SETTINGS)


def test_every_setting_of_a_request_comes_up() -> None:
    requests = [request for plan in PLANS for request in plan.requests]
    for part, values in (
        ("request", requests),
        ("sampling", [request.sampling for request in requests]),
    ):
        for name in values[0].__slots__:
            assert len({getattr(value, name) for value in values}) > 1, f"{part}.{name}"


def test_settings_leave_a_token_to_choose() -> None:
    for sampling in (request.sampling for plan in PLANS for request in plan.requests):
        banned = {word[-1] for word in sampling.bad_words} | set(sampling.stop_token_ids)
        assert not sampling.allowed_token_ids or set(sampling.allowed_token_ids) - banned
        assert sampling.min_tokens <= sampling.max_tokens
        assert sampling.n == 1 or sampling.temperature > 0, "vLLM wants a temperature for n"
