"""Summaries of records whose right answers are worked out by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minedraft.trace import StepRecord, TraceHeader, summarize
from minedraft.trace.summary import steady_pairs

StepFactory = Callable[..., StepRecord]


def test_empty_trace_has_no_averages(header: TraceHeader) -> None:
    summary = summarize(header, [])
    assert summary.num_steps == 0
    assert summary.steps_by_mode == {}
    assert summary.acceptance_per_position == []
    assert summary.wait_ms == 0
    averages = [
        summary.acceptance_rate,
        summary.tokens_per_step,
        summary.tokens_per_request_step,
        summary.draft_ms,
        summary.verify_ms,
        summary.two_batch_verify_ms,
        summary.steady_interval_ms,
        summary.steady_max_ms,
        summary.steady_ratio,
        summary.overlap_fraction,
        summary.steady_overlap_fraction,
        summary.wall_s,
    ]
    assert averages == [None] * len(averages)


def test_header_is_carried_over(header: TraceHeader) -> None:
    summary = summarize(header, [])
    assert (summary.mode, summary.num_speculative_tokens) == ("two-batch", 2)
    assert summary.emulated


def test_token_counts(header: TraceHeader, make_step: StepFactory) -> None:
    steps = [
        make_step(
            0,
            (0, 1),
            mode="prefill",
            batch=None,
            num_requests=0,
            num_prefill_requests=2,
            num_prefill_tokens=9,
            num_output_tokens=2,
            proposed_per_position=[],
            accepted_per_position=[],
        ),
        make_step(
            1,
            (1, 2),
            num_requests=3,
            num_output_tokens=7,
            proposed_per_position=[3, 2, 2],
            accepted_per_position=[2, 1, 1],
        ),
        make_step(
            2,
            (2, 3),
            mode="sequential",
            batch=None,
            num_requests=1,
            num_output_tokens=1,
            proposed_per_position=[1],
            accepted_per_position=[0],
        ),
        # Prompt tokens in the pass: its output tokens count per step, not per request.
        make_step(
            3,
            (3, 4),
            num_requests=2,
            num_prefill_requests=1,
            num_prefill_tokens=5,
            num_output_tokens=6,
            proposed_per_position=[2, 0, 0],
            accepted_per_position=[1, 0, 0],
        ),
    ]
    summary = summarize(header, steps)
    assert summary.num_steps == 4
    assert summary.steps_by_mode == {"prefill": 1, "two-batch": 2, "sequential": 1}
    assert summary.num_drafts == 6
    assert summary.num_proposed_tokens == 10
    assert summary.num_accepted_tokens == 5
    assert summary.acceptance_rate == 0.5
    assert summary.acceptance_per_position == [3 / 6, 1 / 2, 1 / 2]
    assert summary.num_output_tokens == 16
    assert summary.tokens_per_step == 4
    assert summary.tokens_per_request_step == 8 / 4


def test_position_never_proposed_has_no_rate(header: TraceHeader, make_step: StepFactory) -> None:
    step = make_step(0, (0, 1), proposed_per_position=[1, 0], accepted_per_position=[1, 0])
    assert summarize(header, [step]).acceptance_per_position == [1.0, None]


def test_times(header: TraceHeader, make_step: StepFactory) -> None:
    steps = [
        make_step(0, (10, 14), mode="plain", batch=None, wait_ns=1_500_000),
        make_step(1, (14, 20), draft_ms=(8, 13), wait_ns=500_000),
        make_step(2, (20, 30), draft_ms=(14, 21)),
    ]
    summary = summarize(header, steps)
    assert summary.draft_ms == 6
    assert summary.verify_ms == pytest.approx(20 / 3)
    assert summary.two_batch_verify_ms == 8
    assert summary.wait_ms == 2
    assert summary.wall_s == 0.02
    # Only step 2 is steady: step 1 follows a plain one.
    assert summary.num_steady_steps == 1
    assert summary.steady_interval_ms == 10
    assert summary.steady_max_ms == 10
    assert summary.steady_ratio == 1
    # Drafts [8, 13] and [14, 21]: 12 ms, of which passes [10, 30] cover 10 ms.
    assert summary.overlap_fraction == 10 / 12
    assert summary.steady_overlap_fraction == 1


def test_sequential_drafting_hides_nothing(header: TraceHeader, make_step: StepFactory) -> None:
    steps = [
        make_step(i, (10 * i + 4, 10 * i + 10), draft_ms=(10 * i, 10 * i + 4), mode="sequential")
        for i in range(5)
    ]
    summary = summarize(header, steps)
    assert summary.overlap_fraction == 0
    assert summary.steady_overlap_fraction is None
    assert summary.steady_interval_ms is None


def test_shared_draft_interval_counts_once(header: TraceHeader, make_step: StepFactory) -> None:
    # One draft [0, 4] serves two passes; passes cover 2 of its 4 ms, and 1 of [20, 21].
    steps = [
        make_step(0, (2, 8), draft_ms=(0, 4)),
        make_step(1, (8, 12), draft_ms=(0, 4)),
        make_step(2, (19, 30), draft_ms=(20, 21)),
    ]
    assert summarize(header, steps).overlap_fraction == 3 / 5


def test_steady_interval_counts_gaps(header: TraceHeader, make_step: StepFactory) -> None:
    # Passes of 4 ms every 6 ms; t = 5 ms is the longer of t and V.
    steps = [make_step(i, (6 * i, 6 * i + 4), draft_ms=(6 * i - 6, 6 * i - 1)) for i in range(9)]
    summary = summarize(header, steps)
    assert summary.num_steady_steps == 8
    assert summary.steady_interval_ms == 6
    assert summary.steady_max_ms == 5
    assert summary.steady_ratio == 6 / 5
    # Of a steady draft [0, 5] after a pass [0, 4], 4 of 5 ms are hidden.
    assert summary.steady_overlap_fraction == 4 / 5


def test_prompt_tokens_break_a_steady_run(make_step: StepFactory) -> None:
    steps = [make_step(i, (i, i + 1), num_prefill_tokens=7 * (i == 3)) for i in range(7)]
    assert [step.step for _, step in steady_pairs(steps)] == [1, 2, 5, 6]


@pytest.mark.parametrize(
    ("count", "first", "last"), [(19, 1, 19), (20, 3, 18), (29, 3, 27), (30, 4, 27)]
)
def test_ends_are_cut_from_20_steady_steps_on(
    make_step: StepFactory, count: int, first: int, last: int
) -> None:
    steps = [make_step(i, (i, i + 1)) for i in range(count + 1)]
    numbers = [step.step for _, step in steady_pairs(steps)]
    assert numbers == list(range(first, last + 1))


def test_zero_length_steps_do_not_divide_by_zero(
    header: TraceHeader, make_step: StepFactory
) -> None:
    summary = summarize(header, [make_step(i, (1, 1), draft_ms=(1, 1)) for i in range(3)])
    assert summary.steady_max_ms == 0
    assert summary.steady_ratio is None
    assert summary.overlap_fraction is None
    assert summary.wall_s == 0


def test_sample_run(header: TraceHeader, steps: list[StepRecord]) -> None:
    summary = summarize(header, steps)
    assert summary.num_steady_steps == 39 - 2 * 3
    assert summary.steady_interval_ms == 10
    assert summary.steady_max_ms == 9
    # Drafts [1, 9] of each 10 ms lie within passes [1, 10] (the first within [0, 10]).
    assert summary.overlap_fraction == 1


def test_hidden_states_are_counted_over_the_passes_that_left_any(
    header: TraceHeader, make_step: StepFactory
) -> None:
    steps = [
        make_step(0, (0, 4), hidden_state_bytes=3000, hidden_state_ns=1_000_000),
        make_step(1, (4, 8)),
        make_step(2, (8, 12), hidden_state_bytes=1000, hidden_state_ns=3_000_000),
    ]
    summary = summarize(header, steps)
    assert summary.hidden_state_bytes == 2000
    assert summary.hidden_state_share == 0.5
    assert summarize(header, steps[1:2]).hidden_state_bytes is None
    assert summarize(header, steps[1:2]).hidden_state_share is None
