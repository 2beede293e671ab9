"""Figures, computed by hand from a few requests and steps; and what is missing gives None."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from minedraft import ConfigError
from minedraft.bench.metrics import Figures, Quantiles, RequestTimes, Slo, figures
from minedraft.trace import StepRecord, Summary, TraceHeader, summarize

MS = 1_000_000
DEVICES = {"target": 4, "draft": 1}
COUNTS = {"num_requests", "num_completed", "num_output_tokens", "num_devices"}
HEADER = TraceHeader(
    mode="two-batch",
    num_speculative_tokens=2,
    target="big",
    draft="small",
    emulated=True,
    versions={},
)
# The run: a answers in two deliveries, b in four, c is a single token, d is given up.
A = RequestTimes(
    id="a",
    arrival_s=10.0,
    first_token_s=10.5,
    finish_s=12.5,
    token_s=[(10.5, 1), (12.5, 4)],
    num_prompt_tokens=7,
    num_output_tokens=5,
    finish_reason="length",
)
B = RequestTimes(
    id="b",
    arrival_s=11.0,
    first_token_s=12.0,
    finish_s=15.0,
    token_s=[(12.0, 1), (13.0, 2), (14.5, 1), (15.0, 0)],
    num_prompt_tokens=9,
    num_output_tokens=4,
    finish_reason="stop",
)
C = RequestTimes(
    id="c",
    arrival_s=14.0,
    first_token_s=16.0,
    finish_s=16.0,
    token_s=[(16.0, 1)],
    num_prompt_tokens=2,
    num_output_tokens=1,
    finish_reason="length",
)
D = RequestTimes(
    id="d",
    arrival_s=14.0,
    first_token_s=15.0,
    finish_s=18.0,
    token_s=[(15.0, 1), (18.0, 1)],
    num_prompt_tokens=2,
    num_output_tokens=2,
    finish_reason="abort",
)


def _step(verify_ms: tuple[int, int], **fields: Any) -> StepRecord:
    start, end = fields.pop("draft_ms", None) or (None, None)
    values: dict[str, Any] = {
        "step": 0,
        "mode": "two-batch",
        "batch": 0,
        "batch_sizes": (1, 1),
        "num_requests": 1,
        "num_prefill_requests": 0,
        "num_prefill_tokens": 0,
        "num_decode_tokens": 3,
        "num_output_tokens": 2,
        "proposed_per_position": [1, 1],
        "accepted_per_position": [1, 0],
        "draft_start_ns": None if start is None else start * MS,
        "draft_end_ns": None if end is None else end * MS,
        "draft_passes": 2,
        "verify_start_ns": verify_ms[0] * MS,
        "verify_end_ns": verify_ms[1] * MS,
        "wait_ns": 0,
    }
    return StepRecord(**(values | fields))


def _prompt(verify_ms: tuple[int, int], **fields: Any) -> StepRecord:
    values: dict[str, Any] = {
        "mode": "prefill",
        "batch": None,
        "num_requests": 0,
        "num_prefill_requests": 2,
        "num_prefill_tokens": 64,
        "num_output_tokens": 2,
        "proposed_per_position": [],
        "accepted_per_position": [],
    }
    return _step(verify_ms, **(values | fields))


def _of(steps: list[StepRecord], **more: Any) -> Figures:
    return figures([], summarize(HEADER, steps), steps, None, more.get("devices", {}))


def _quantiles(median: float, p90: float, p99: float, num_values: int) -> Any:
    expected = Quantiles(median=median, p90=p90, p99=p99, num_values=num_values)
    return pytest.approx(msgspec.structs.asdict(expected), rel=1e-12)


def _plain(quantiles: Quantiles | None) -> dict[str, Any] | None:
    return None if quantiles is None else msgspec.structs.asdict(quantiles)


def test_rates() -> None:
    found = figures([A, B, C, D], None, None, None, DEVICES)
    assert (found.num_requests, found.num_completed) == (4, 3)
    assert found.num_output_tokens == 12
    assert found.num_devices == 5
    # First arrival at 10, last token at 18.
    assert found.makespan_s == 8.0
    assert found.output_tokens_per_s == 12 / 8
    assert found.output_tokens_per_s_per_device == 12 / 8 / 5
    assert found.requests_per_s == 3 / 8
    assert found.makespan_per_request_ms == 8000 / 3
    assert (found.decode_tokens_per_s, found.goodput_requests_per_s) == (None, None)


def test_latencies_are_of_completed_requests() -> None:
    found = figures([A, B, C, D])
    # TTFT 500, 1000, 2000: 0.9 of the way is position 1.8, 0.99 is 1.98.
    assert _plain(found.ttft_ms) == _quantiles(1000, 1800, 1980, 3)
    # TPOT 2000 / 4 and 3000 / 3; c has one token, and so none.
    assert _plain(found.tpot_ms) == _quantiles(750, 950, 995, 2)
    # Gaps: a 2000; b 1000, 1500 (its last delivery brings no token).
    assert _plain(found.inter_token_ms) == _quantiles(1500, 1900, 1990, 3)
    # End to end 2500, 4000, 2000.
    assert _plain(found.end_to_end_ms) == _quantiles(2500, 3700, 3970, 3)


def test_latency_is_not_the_papers_e2el() -> None:
    both = [msgspec.structs.replace(A, id=str(number)) for number in range(2)]
    found = figures(both)
    assert found.makespan_per_request_ms == 2500 / 2
    assert found.end_to_end_ms is not None
    assert found.end_to_end_ms.median == 2500


@pytest.mark.parametrize(
    ("slo", "kept"),
    [
        (Slo(ttft_ms=1000), 2),
        (Slo(ttft_ms=999), 1),
        (Slo(tpot_ms=999), 2),
        (Slo(tpot_ms=1000), 3),
        (Slo(ttft_ms=1000, tpot_ms=500), 1),
        (Slo(ttft_ms=1), 0),
    ],
)
def test_goodput(slo: Slo, kept: int) -> None:
    found = figures([A, B, C, D], slo=slo)
    assert found.goodput_requests_per_s == kept / 8
    assert found.slo_share == kept / 4, "a request that is cut short is missed"


def test_nothing_gives_none() -> None:
    found = msgspec.structs.asdict(figures([], summarize(HEADER, []), [], Slo(ttft_ms=1), {}))
    assert {name for name, value in found.items() if value is not None} == COUNTS
    assert {found[name] for name in COUNTS} == {0}
    assert figures([]) == figures([], None, None, None, {})


def test_a_request_that_got_nothing() -> None:
    lost = RequestTimes(id="x", arrival_s=1.0, num_prompt_tokens=3, num_output_tokens=0)
    found = figures([lost], slo=Slo(ttft_ms=1))
    assert (found.num_requests, found.num_completed, found.makespan_s) == (1, 0, 0.0)
    assert found.output_tokens_per_s is None
    assert found.ttft_ms is None
    assert found.makespan_per_request_ms is None
    assert found.slo_share == 0.0
    # Beside others it lengthens nothing, but has an arrival.
    assert figures([lost, A]).makespan_s == 11.5


def test_what_the_summary_says() -> None:
    steps = [
        _prompt((0, 10)),
        _step((12, 20), draft_ms=(10, 14)),
        _step((20, 30), draft_ms=(14, 20)),
    ]
    summary: Summary = summarize(HEADER, steps)
    found = _of(steps)
    assert found.verification_success_rate == summary.acceptance_rate == 0.5
    assert found.tokens_per_step == summary.tokens_per_step == 2.0
    assert found.tokens_per_request_step == summary.tokens_per_request_step == 2.0
    assert found.draft_ms == summary.draft_ms == 5.0
    assert found.verify_ms == summary.verify_ms == 28 / 3
    # Drafts cover [10, 20], of which passes cover [12, 20].
    assert found.overlap_fraction == summary.overlap_fraction == 0.8


def test_decoding_alone_is_charged_the_gaps_between_passes() -> None:
    steps = [
        _prompt((0, 10)),
        _step((12, 20)),  # 10 ms from the end of the prompts
        _step((21, 30), num_output_tokens=3),  # 10 ms
        _prompt((100, 120)),  # idle before it: not charged to decoding
        _step((120, 125), num_output_tokens=5),  # 5 ms
        _step((125, 130), num_prefill_tokens=1, num_output_tokens=9),  # has prompt tokens
    ]
    found = _of(list(reversed(steps)), devices=DEVICES)
    assert found.decode_tokens_per_s == pytest.approx((2 + 3 + 5) / 0.025)
    assert found.decode_tokens_per_s_per_device == pytest.approx((2 + 3 + 5) / 0.025 / 5)


def test_the_first_step_begins_with_its_drafts() -> None:
    assert _of([_step((4, 10), draft_ms=(0, 4))]).decode_tokens_per_s == 2 / 0.010
    assert _of([_step((4, 10))]).decode_tokens_per_s == pytest.approx(2 / 0.006)


def test_prompts_alone_have_no_decoding_rate() -> None:
    assert _of([_prompt((0, 10))]).decode_tokens_per_s is None


def test_only_verification_parallelises() -> None:
    steps = [
        _prompt((0, 10)),
        _step((10, 16), draft_ms=(4, 10)),
        _step((16, 20), draft_ms=(10, 14)),
        _step((20, 24), mode="plain", proposed_per_position=[], accepted_per_position=[]),
        _step((26, 30), draft_ms=(22, 26)),
    ]
    found = _of(steps)
    # Drafts [4, 14] and [22, 26]: all but [24, 26] beside a pass, [10, 14] beside verification.
    assert found.overlap_fraction == 12 / 14
    assert found.parallelised_share == 4 / 14
    # Between 4 and 26, 14 of 22 ms are drafted; passes leave [24, 26] of [0, 30].
    assert found.drafter_bubble_share == pytest.approx(8 / 22)
    assert found.verifier_bubble_share == pytest.approx(2 / 30)


def test_sequential_and_fully_hidden_drafting() -> None:
    sequential = _of(
        [_step((10 * i + 4, 10 * i + 10), draft_ms=(10 * i, 10 * i + 4)) for i in (0, 1)]
    )
    assert sequential.parallelised_share == 0.0
    assert sequential.drafter_bubble_share == pytest.approx(6 / 14)
    assert sequential.verifier_bubble_share == pytest.approx(4 / 16)
    hidden = _of([_step((10 * i, 10 * i + 10), draft_ms=(10 * i - 10, 10 * i)) for i in (1, 2, 3)])
    # The first drafts have nothing to hide behind.
    assert hidden.parallelised_share == 2 / 3
    assert (hidden.drafter_bubble_share, hidden.verifier_bubble_share) == (0.0, 0.0)


def test_no_drafts_and_work_without_length() -> None:
    plain = _of([_step((0, 5), mode="plain", proposed_per_position=[], accepted_per_position=[])])
    assert plain.parallelised_share is None
    assert plain.drafter_bubble_share is None
    assert plain.verifier_bubble_share == 0.0
    empty = _of([_step((1, 1), draft_ms=(1, 1))])
    assert (empty.parallelised_share, empty.verifier_bubble_share) == (None, None)
    assert empty.decode_tokens_per_s is None


def test_one_value_is_all_its_quantiles() -> None:
    assert _plain(figures([A]).ttft_ms) == _quantiles(500, 500, 500, 1)


def test_structs_survive_json() -> None:
    found = figures([A, B, C, D], slo=Slo(ttft_ms=1000))
    assert msgspec.json.decode(msgspec.json.encode(found), type=Figures) == found
    assert msgspec.json.decode(msgspec.json.encode(A), type=RequestTimes) == A


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({}, "slo is empty"),
        (1, "slo = 1 is not allowed"),
        ({"ttft": 1}, "did you mean 'ttft_ms'"),
        ({"ttft_ms": 0}, "slo.ttft_ms = 0"),
        ({"tpot_ms": "50"}, "slo.tpot_ms = '50'"),
    ],
)
def test_bad_slos(table: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Slo.from_mapping(table)


def test_slo_mappings_round_trip() -> None:
    for table in ({"ttft_ms": 200.0}, {"ttft_ms": 200.0, "tpot_ms": 50.0}):
        assert Slo.from_mapping(table).to_mapping() == table
