"""Plans: the choice, its margin, both conventions, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minedraft.bench.metrics import Slo
from minedraft.bench.paper_settings import SETTINGS
from minedraft.config import MODES
from minedraft.errors import ConfigError
from minedraft.planner import (
    GOALS,
    DeviceSource,
    ProfileSource,
    Question,
    gain_sentence,
    make_plan,
    text_of,
)
from minedraft.profiles import PassProfile
from minedraft.theory import CLOSED_FORMS, Acceptance, Load, best_k, steady_of
from plans import question
from profiles import make_profile, point

# V = 10 and a draft pass 1 ms whatever their size, two in flight, one draft token, half right.
HAND = question(
    target=(10.0, 0.0),
    draft=(1.0, 0.0),
    rate=0.5,
    in_flight=2,
    prompt_tokens=0.0,
    output_tokens=100.0,
    max_k=1,
)
SOMEBODY_MISSED = 1 - 0.25**2


def test_a_plan_by_hand() -> None:
    plan = make_plan(HAND)
    rates = {row.mode: row.tokens_per_s for row in plan.rows}
    pearl_ms = 10 + SOMEBODY_MISSED
    assert rates == {
        "none": pytest.approx(2e3 / 10),
        "sequential": pytest.approx(3e3 / 11),
        "two-batch": pytest.approx(3e3 / 20),
        "pearl": pytest.approx(3e3 / pearl_ms),
        "wait-free": pytest.approx(2e3 * 1.2 / 10),
    }
    assert (plan.recommended.mode, plan.recommended.k) == ("pearl", 1)
    assert plan.next_best is not None
    assert plan.next_best.mode == "sequential"
    assert plan.margin == pytest.approx(11 / pearl_ms)
    assert plan.recommended.tokens_per_s_per_device == pytest.approx(1.5e3 / pearl_ms)
    assert plan.recommended.ms_per_token == pytest.approx(pearl_ms / 1.5)
    assert plan.recommended.ttft_ms == pytest.approx(20)
    assert plan.replicas.tokens_per_s == pytest.approx(200)
    # Two batches of two against one: four in flight take 20 ms for both, too.
    assert plan.gain.paper == pytest.approx((6 / 20) / (3 / 11))
    assert plan.gain.fair == pytest.approx((3 / 20) / (3 / 11))
    assert plan.paper_winner.mode == "two-batch"
    assert "but would not at equal requests in flight (2): 0.55 times" in gain_sentence(plan)
    assert "By the paper's convention two-batch is the fastest of all" in text_of(plan)


def test_close_margins_are_called_so() -> None:
    assert "too close to tell" in text_of(make_plan(HAND))
    clear = question()
    assert (make_plan(clear).margin or 0.0) > 1.1
    assert "too close to tell" not in text_of(make_plan(clear))


def test_per_device_a_drafter_must_pay_for_its_device() -> None:
    plan = make_plan(replace(HAND, goal="per-device"))
    assert (plan.recommended.mode, plan.recommended.num_devices) == ("none", 1)
    assert plan.margin == pytest.approx(200 / (1.5e3 / (10 + SOMEBODY_MISSED)))


def test_what_keeps_the_slo_comes_first() -> None:
    slow = make_plan(replace(HAND, slo=Slo(tpot_ms=7.3)))
    assert [row.mode for row in slow.rows if row.keeps_slo] == ["pearl"]
    assert (slow.next_best, slow.margin) == (None, None)
    assert "no other mode keeps the SLO" in text_of(slow)
    none = make_plan(replace(HAND, slo=Slo(tpot_ms=5.0)))
    assert not none.recommended.keeps_slo
    assert none.recommended.slo_excess == pytest.approx((10 + SOMEBODY_MISSED) / 1.5 / 5)
    assert "NOTHING keeps the SLO (TPOT 5 ms)" in text_of(none)
    first = make_plan(replace(HAND, slo=Slo(ttft_ms=20.0)))
    assert all(row.keeps_slo for row in first.rows)


def test_a_bound_on_ttft_shortens_drafts() -> None:
    heavy = question(target=(10.0, 1.0), rate=0.9, in_flight=4, max_k=8, prompt_tokens=0.0)
    free = {row.mode: row for row in make_plan(heavy).rows}
    bound = free["sequential"].ttft_ms - 4
    held = {row.mode: row for row in make_plan(replace(heavy, slo=Slo(ttft_ms=bound))).rows}
    assert held["sequential"].k < free["sequential"].k
    assert held["sequential"].keeps_slo


def test_replicas_are_a_choice_where_they_are_whole() -> None:
    # Bound by compute, and nothing is ever right: a second target is worth its device.
    useless = question(target=(1.0, 1.0), rate=0.0, in_flight=8, prompt_tokens=0.0)
    plan = make_plan(useless)
    assert plan.recommended is plan.replicas or plan.recommended.mode == "none"
    assert plan.recommended.placement == "2 targets"
    assert plan.recommended.tokens_per_s == pytest.approx(8e3 / (1 + 4))
    part = make_plan(replace(useless, num_target_devices=4))
    assert part.recommended.placement == "target"
    assert part.replicas.placement == "1.25 targets"
    assert part.replicas.tokens_per_s == pytest.approx(8e3 / (1 + 8 * 4 / 5))


def test_one_drafter_for_as_many_targets_as_fill_its_time() -> None:
    # Two batches of 8: 2 x 20 ms of verifying, 2 x 3 ms of drafting.
    asked = question(target=(20.0, 0.0), draft=(3.0, 0.0), rate=0.9, prompt_tokens=0.0, max_k=1)
    (row,) = (row for row in make_plan(asked).rows if row.mode == "two-batch")
    assert row.engines_per_drafter == pytest.approx(40 / 6)
    assert make_plan(asked).rows[0].engines_per_drafter is None


def test_modes_without_a_form_are_named() -> None:
    plan = make_plan(question(draft=(40.0, 0.0)))
    assert [mode for mode, _ in plan.missing] == ["pearl"]
    assert "No row for pearl: pearl has no closed form here" in text_of(plan)


def _profiled(largest: float, *, requests: float = 8, **changes: Any) -> Question:
    """Of a profile whose draft passes have up to so many tokens and requests."""
    pytest.importorskip("scipy")
    points = [point(1, 1, 512, 3.0), point(requests, largest, 512, 4.0)]
    source = ProfileSource(make_profile(draft=PassProfile.of(points)))
    return question(source=source, in_flight=4, **changes)


def test_without_any_drafted_row_there_is_a_plan_still() -> None:
    # The drafter was never seen to take a prompt in.
    plan = make_plan(_profiled(16.0, prompt_tokens=100.0))
    assert [row.mode for row in plan.rows] == ["none"]
    assert {mode for mode, _ in plan.missing} == set(MODES) - {"none"}
    text, why = text_of(plan), "draft num_tokens (measured to 16) = 100"
    assert f"cannot be compared: sequential has no row at 4 in flight, {why}" in text
    assert "Per device:" not in text
    # Two targets are whole engines, and so the other candidate.
    assert "times the next best, none" in text


def test_why_two_modes_cannot_be_compared() -> None:
    # Passes of two requests are answered: halves of four, but not four.
    plan = make_plan(_profiled(2.0, requests=1, prompt_tokens=0.0, max_k=1))
    assert "two-batch" in {row.mode for row in plan.rows}
    assert gain_sentence(plan).startswith(
        "Two-batch and sequential cannot be compared: sequential has no row at 4 in flight, "
        "draft num_requests (measured to 1) = 4 is not allowed"
    )
    single = make_plan(replace(plan.question, in_flight=2))
    assert single.gain is not None


def test_one_candidate_has_nothing_to_be_compared_to() -> None:
    alone = replace(_profiled(16.0), num_target_devices=2)
    plan = make_plan(alone)
    assert plan.candidates == plan.rows
    assert "there is no other row to compare it to" in text_of(plan)
    assert "SLO is" not in text_of(plan)
    assert "no other mode keeps the SLO" not in text_of(plan)


def test_the_best_k_is_of_those_that_the_times_are_known_for() -> None:
    # Verified with k = 7, 16 requests have 128 tokens, which is twice 64; with k = 8, more.
    pytest.importorskip("scipy")
    points = [point(1, 1, 512, 30.0), point(16, 64, 512, 31.0)]
    source = ProfileSource(make_profile(target=PassProfile.of(points)))
    asked = question(source=source, rate=1.0, prompt_tokens=0.0, max_k=16)
    rows = {row.mode: row for row in make_plan(asked).rows}
    assert rows["sequential"].k == 7
    load = asked.load(asked.in_flight)
    assert best_k(CLOSED_FORMS["sequential"], load, 16)[0] == 7


def test_ttft_is_that_of_one_pass() -> None:
    # Eight of 16 requests, two tokens each and a share of a prompt of 100, and all of a prompt.
    asked = question(source=_Bent(), in_flight=16, max_k=1, rate=0.0, prompt_tokens=100.0)
    (row,) = (row for row in make_plan(asked).rows if row.mode == "two-batch")
    assert row.ttft_ms == pytest.approx(2 * (16 + 4) ** 2 + (16 + 100) ** 2 - 16**2)


class _Bent:
    """A target whose passes take the square of their tokens, and a drafter of 1 ms."""

    title = "bent"

    def times(self, context: float) -> _Bent:
        return self

    def verify_ms(self, num_requests: float, num_tokens: float) -> float:
        return num_tokens**2

    def draft_pass_ms(self, num_requests: float, num_tokens: float) -> float:
        return 1.0


SLOS = st.one_of(
    st.none(), st.builds(Slo, ttft_ms=st.floats(1.0, 500.0), tpot_ms=st.floats(1.0, 100.0))
)
QUESTIONS = st.builds(
    question,
    target=st.tuples(st.floats(0.5, 60.0), st.floats(0.0, 2.0)),
    draft=st.tuples(st.floats(0.0, 30.0), st.floats(0.0, 1.0)),
    rate=st.floats(0.0, 1.0),
    in_flight=st.integers(1, 48),
    prompt_tokens=st.floats(0.0, 500.0),
    output_tokens=st.floats(1.0, 500.0),
    overhead_ms=st.floats(0.0, 5.0),
    num_target_devices=st.integers(1, 4),
    slo=SLOS,
    goal=st.sampled_from(sorted(GOALS)),
)


@given(QUESTIONS)
@settings(max_examples=50)
def test_the_recommendation_is_the_best_of_the_table(asked: Question) -> None:
    plan = make_plan(asked)
    value = GOALS[asked.goal]
    keeping = [row for row in plan.candidates if row.keeps_slo]
    best = plan.recommended
    assert best in plan.candidates
    if keeping:
        assert best.keeps_slo
        assert value(best) == max(map(value, keeping))
    else:
        assert best.slo_excess == min(row.slo_excess for row in plan.candidates)
    assert {row.mode for row in plan.rows} | {mode for mode, _ in plan.missing} == set(MODES)
    if plan.margin is not None and keeping:
        assert plan.margin >= 1.0
    assert text_of(plan)


@given(QUESTIONS)
@settings(max_examples=25)
def test_without_an_slo_nothing_that_was_not_tried_is_better(asked: Question) -> None:
    asked = replace(asked, slo=None, goal="throughput")
    load, tried = asked.load(asked.in_flight), []
    for mode in MODES:
        for k in range(1, asked.max_k + 1):
            try:
                tried.append(CLOSED_FORMS[mode].steady(load, k).tokens_per_s)
            except ConfigError:
                continue
    plan = make_plan(asked)
    assert max(row.tokens_per_s for row in plan.rows) == max(tried)


def _best(mode: str, load: Load) -> float:
    return max(steady_of(mode, load, k).tokens_per_s for k in range(1, 6))


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_the_paper(name: str) -> None:
    setting = SETTINGS[name]
    asked = Question(
        source=DeviceSource(setting.pair),
        acceptance=Acceptance(setting.acceptance),
        in_flight=setting.requests,
        prompt_tokens=200,
        output_tokens=256,
        num_target_devices=4,
        max_k=5,
    )
    plan = make_plan(asked)
    one, two = asked.load(setting.requests), asked.load(2 * setting.requests)
    sequential = _best("sequential", one)
    assert plan.gain.paper == pytest.approx(_best("two-batch", two) / sequential)
    assert plan.gain.fair == pytest.approx(_best("two-batch", one) / sequential)
    assert plan.gain.paper > 1, "the paper's convention gains in all of its settings"
    paper = {row.mode: row.tokens_per_s for row in plan.paper_rows}
    assert paper["two-batch"] > paper["sequential"]
    loses = name in ("1", "2", "6", "7", "extra")
    assert (plan.gain.fair <= 1) == loses
    assert ("but would not at equal requests in flight" in gain_sentence(plan)) == loses


def test_context_is_the_mean_one() -> None:
    pair = SETTINGS["1"].pair
    times = question(source=DeviceSource(pair), prompt_tokens=100, output_tokens=56).times
    assert times == replace(pair, context=128).linear_times


def test_sentences_of_the_other_cases() -> None:
    compute_bound = question(target=(0.1, 1.0), draft=(5.0, 0.0), rate=0.9, prompt_tokens=0.0)
    assert gain_sentence(make_plan(compute_bound)).startswith("Two-batch wins over sequential, by")
    single = question(target=(30.0, 0.0), draft=(0.0, 0.0), in_flight=2)
    assert gain_sentence(make_plan(single)).startswith("Two-batch does not win over sequential")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"in_flight": 0}, r"in_flight = 0 .* from 1 to"),
        ({"in_flight": 2.5}, "in_flight = 2.5"),
        ({"prompt_tokens": -1.0}, "prompt_tokens = -1.0"),
        ({"output_tokens": 0.0}, "output_tokens = 0.0"),
        ({"output_tokens": float("inf")}, "output_tokens = inf"),
        ({"num_target_devices": 0}, "num_target_devices = 0"),
        ({"num_draft_devices": -2}, "num_draft_devices = -2"),
        ({"max_k": 65}, "max_k = 65"),
        ({"overhead_ms": -0.1}, r"overhead_ms = -0.1 .* \[0.0, 60000.0\]"),
        ({"goal": "speed"}, "goal = 'speed' .* throughput, per-device"),
    ],
)
def test_bad_questions(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        question(**change)


def test_a_target_that_takes_no_time() -> None:
    with pytest.raises(ConfigError, match="verification time"):
        make_plan(question(target=(0.0, 0.0)))


def test_a_drafter_that_takes_no_time_keeps_up_with_any_number_of_targets() -> None:
    asked = question(target=(1.0, 0.0), draft=(0.0, 1e-313), rate=1.0, in_flight=1)
    plan = make_plan(asked)
    assert plan.recommended.k and plan.recommended.engines_per_drafter is None
    assert "Drafters:" not in text_of(plan)
