"""What a simulation costs: work is counted, not timed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minedraft.config import MODES
from minedraft.simulator import Outcome, simulate
from minedraft.simulator.drafter import SimDrafter
from minedraft.simulator.drafter_work import Pass
from minedraft.simulator.lane import Lane
from minedraft.simulator.messages import Update
from simulated import Sink, run, scenario

_LENGTHS = {"prompt_tokens": {"low": 5, "high": 90}, "output_tokens": {"low": 20, "high": 60}}
_ENDLESS_BUT_COUNTED = 1_000_000_000
"""Blocks: a pool that is never full, but of which nobody knows that."""


def _outcome(mode: str, count: int, in_flight: int = 16, **changes: Any) -> Outcome:
    load = {"kind": "closed-loop", "in_flight": in_flight}
    return simulate(
        scenario(mode=mode, load=load, requests={**_LENGTHS, "count": count}, **changes)
    )


@pytest.mark.parametrize("mode", MODES)
def test_twice_the_requests_are_twice_the_events(mode: str) -> None:
    once, twice = (_outcome(mode, count).num_events for count in (300, 600))
    assert twice / once == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize("mode", MODES)
def test_a_fleet_has_the_events_of_its_engines(mode: str) -> None:
    """Engines with drafters of their own: four times as many, with four times the requests."""
    alone, fleet = (
        _outcome(
            mode,
            count=100 * size,
            in_flight=8 * size,
            engines=[{"target": {"fixed_ms": 30.0}, "count": size}],
            drafters=[{"draft": {"fixed_ms": 5.0}, "count": size}],
        ).num_events
        for size in (1, 4)
    )
    assert fleet / alone == pytest.approx(4.0, rel=0.1)


@pytest.mark.parametrize("mode", MODES)
def test_a_step_has_as_many_events_however_many_requests_it_has(mode: str) -> None:
    few, many = (_outcome(mode, 40 * size, in_flight=size) for size in (8, 32))
    assert many.tokens_per_step > 3 * few.tokens_per_step
    per_step = [each.num_events / each.num_steps for each in (few, many)]
    # Arrivals and ends are events too, and there are more of them in a step of more requests.
    assert per_step[1] < 1.6 * per_step[0]


@settings(max_examples=40, deadline=None)
@given(
    mode=st.sampled_from([each for each in MODES if each != "none"]),
    k=st.integers(1, 5),
    rates=st.sampled_from([[0.0], [0.8], [1.0], [0.9, 0.5]]),
    budget=st.integers(8, 400),
    max_num_seqs=st.sampled_from([3, 1024]),
    max_model_len=st.sampled_from([60, 1 << 20]),
    delay_ms=st.sampled_from([0.0, 0.3, 40.0]),
    in_flight=st.integers(1, 12),
    failure=st.one_of(st.none(), st.floats(0.0, 2.0)),
    num_kv_blocks=st.sampled_from([None, 11, 16]),
    seed=st.integers(0, 3),
)
def test_lockstep_is_the_same_as_rows_one_by_one(
    mode: str,
    k: int,
    rates: list[float],
    budget: int,
    max_num_seqs: int,
    max_model_len: int,
    delay_ms: float,
    in_flight: int,
    failure: float | None,
    num_kv_blocks: int | None,
    seed: int,
) -> None:
    """Where the pool may be full, the drafter looks at each row of each pass, and a ticket's
    passes are events of their own if none is told of those like it.

    A small pool of the target preempts requests, so that members leave in the middle of a draft.
    """

    def outcome(drafter_blocks: int | None) -> tuple[Outcome, Sink]:
        return run(
            mode=mode,
            num_speculative_tokens=k,
            acceptance=rates,
            engines=[
                {
                    "target": {"fixed_ms": 20.0, "per_token_ms": 0.2},
                    "num_kv_blocks": num_kv_blocks,
                    "count": 2,
                }
            ],
            drafters=[
                {
                    "draft": {"fixed_ms": 2.1, "per_token_ms": 0.03, "per_kv_token_ms": 0.001},
                    "max_num_batched_tokens": budget,
                    "max_num_seqs": max_num_seqs,
                    "max_model_len": max_model_len,
                    "num_kv_blocks": drafter_blocks,
                }
            ],
            load={"kind": "closed-loop", "in_flight": in_flight},
            link={"delay_ms": delay_ms, "mb_per_s": 1.0},
            requests={**_LENGTHS, "count": 16},
            failures=[] if failure is None else [{"drafter": 0, "at_s": failure, "for_s": 0.5}],
            seed=seed,
        )

    lockstep = outcome(None)
    with _one_pass_at_a_time():
        one_by_one = outcome(_ENDLESS_BUT_COUNTED)
    assert _but_events(lockstep) == _but_events(one_by_one)


@contextmanager
def _one_pass_at_a_time() -> Iterator[None]:
    """Every pass of a ticket ends by itself, whatever follows."""

    def alone(self: SimDrafter, end_ms: float, lane: Lane) -> list[float]:
        return [end_ms]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimDrafter, "_with_those_alike", alone)
        yield


def _but_events(found: tuple[Outcome, Sink]) -> tuple[Outcome, Sink]:
    """All but the count of events, which is what passes as one save."""
    return replace(found[0], num_events=0), found[1]


def test_members_leave_in_the_middle_of_a_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the comparison above is about does happen there, in the mode that does not wait."""
    shortened = []
    cut_short = SimDrafter._cut_short

    def noted(self: SimDrafter, work: Pass, update: Update) -> None:
        cut_short(self, work, update)
        if self._running is not work:
            shortened.append(len(work.ends_ms))

    monkeypatch.setattr(SimDrafter, "_cut_short", noted)
    devices: dict[str, Any] = {
        "engines": [{"target": {"fixed_ms": 20.0, "per_token_ms": 0.2}, "num_kv_blocks": 11}],
        "drafters": [{"draft": {"fixed_ms": 6.0}}],
    }
    together = _outcome("two-batch", 30, in_flight=8, **devices)
    assert len(shortened) > 3
    with _one_pass_at_a_time():
        alone = _outcome("two-batch", 30, in_flight=8, **devices)
    assert alone.num_events > together.num_events
    assert replace(alone, num_events=0) == replace(together, num_events=0)


@pytest.mark.parametrize("mode", MODES)
def test_requests_leave_no_cycles_behind(mode: str) -> None:
    """Memory is given back without a search for cycles, which is off meanwhile."""
    found = []
    for count in (40, 120):
        gc.collect()
        gc.disable()
        try:
            _outcome(mode, count)
            found.append(gc.collect())
        finally:
            gc.enable()
    assert found[1] < found[0] + 40


def test_the_search_for_cycles_is_left_as_it_was() -> None:
    for is_on in (False, True):
        (gc.enable if is_on else gc.disable)()
        _outcome("wait-free", 4)
        assert gc.isenabled() is is_on
