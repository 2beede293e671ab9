"""Whole simulated runs: nothing is lost, everything is counted, and the seed decides."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minedraft.config import MODES
from minedraft.simulator import header_of, simulate
from minedraft.trace import read_trace, summarize
from minedraft.trace.writer import TraceWriter
from simulated import run, scenario

LOADS = st.one_of(
    st.just({}),
    st.builds(lambda n: {"kind": "closed-loop", "in_flight": n}, st.integers(1, 8)),
    st.builds(lambda rate: {"kind": "poisson", "rate_per_s": rate}, st.floats(0.5, 100.0)),
)


@settings(max_examples=60, deadline=None)
@given(
    mode=st.sampled_from(MODES),
    k=st.integers(1, 6),
    rate=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    load=LOADS,
    num_kv_blocks=st.one_of(st.none(), st.integers(15, 40)),
    draft_blocks=st.one_of(st.none(), st.integers(4, 40)),
    max_num_seqs=st.integers(1, 8),
    budget=st.integers(8, 300),
    fleet=st.tuples(st.integers(1, 3), st.integers(1, 2)),
    delay_ms=st.sampled_from([0.0, 0.3, 40.0]),
    failure=st.one_of(st.none(), st.floats(0.0, 2.0)),
    seed=st.integers(0, 5),
)
def test_every_request_gets_its_tokens(
    mode: str,
    k: int,
    rate: float,
    load: dict[str, object],
    num_kv_blocks: int | None,
    draft_blocks: int | None,
    max_num_seqs: int,
    budget: int,
    fleet: tuple[int, int],
    delay_ms: float,
    failure: float | None,
    seed: int,
) -> None:
    engine = {
        "target": {"fixed_ms": 20.0, "per_token_ms": 0.2},
        "count": fleet[0],
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": budget,
        "num_kv_blocks": num_kv_blocks,
    }
    drafter = {"draft": {"fixed_ms": 4.0}, "count": fleet[1], "num_kv_blocks": draft_blocks}
    outcome, steps = run(
        mode=mode,
        num_speculative_tokens=k,
        acceptance=[rate],
        load=load,
        engines=[engine],
        drafters=[drafter],
        link={"delay_ms": delay_ms},
        requests={
            "count": 12,
            "prompt_tokens": {"low": 1, "high": 150},
            "output_tokens": {"low": 1, "high": 60},
        },
        failures=[] if failure is None else [{"drafter": 0, "at_s": failure, "for_s": 0.5}],
        seed=seed,
    )
    figures = outcome.figures
    assert figures.num_completed == 12
    assert outcome.num_accepted <= outcome.num_proposed
    assert 0.0 < outcome.target_busy_share <= 1.0 + 1e-9
    assert 0.0 <= outcome.drafter_busy_share <= 1.0 + 1e-9
    if rate == 1.0:
        assert outcome.num_accepted == outcome.num_proposed
    for before, after in itertools.pairwise(steps):
        assert before.verify_end_ns <= after.verify_start_ns
    if fleet[0] == 1:
        total = sum(each.num_output_tokens for each in steps)
        assert total == figures.num_output_tokens


@pytest.mark.parametrize("mode", MODES)
def test_one_seed_gives_one_course(mode: str) -> None:
    requests = {"count": 20, "prompt_tokens": {"low": 5, "high": 90}, "output_tokens": 30}
    load = {"kind": "poisson", "rate_per_s": 20.0}
    first, other, third = (
        run(mode=mode, requests=requests, load=load, seed=seed) for seed in (3, 3, 4)
    )
    assert first[1] == other[1]
    assert first[0] == other[0]
    assert first[1] != third[1]


def test_the_seed_decides_what_all_modes_are_asked() -> None:
    requests = {
        "count": 20,
        "prompt_tokens": {"low": 5, "high": 90},
        "output_tokens": {"low": 5, "high": 90},
    }
    asked = {run(mode=mode, requests=requests)[0].figures.num_output_tokens for mode in MODES}
    assert len(asked) == 1


@pytest.mark.parametrize("mode", ["pearl", "wait-free"])
def test_a_perfect_drafter_yields_k_and_one_tokens_a_step(mode: str) -> None:
    _, steps = run(
        mode=mode,
        acceptance=[1.0],
        requests={"count": 4, "prompt_tokens": 1, "output_tokens": 2000},
    )
    steady = [each for each in steps if each.num_requests == 4][10:-10]
    assert len(steady) > 300
    assert {each.num_output_tokens for each in steady} == {20}


def test_two_batches_alternate_and_overlap() -> None:
    _, steps = run(requests={"count": 8, "prompt_tokens": 1, "output_tokens": 400})
    full = (each for each in steps if each.batch_sizes == (4, 4) and each.mode == "two-batch")
    steady = list(full)[10:-10]
    assert len(steady) > 100
    assert all(a.batch != b.batch for a, b in itertools.pairwise(steady))
    # 4 passes of 5.2 ms hide behind a verification of 32 ms.
    gaps = [b.verify_start_ns - a.verify_end_ns for a, b in itertools.pairwise(steady)]
    assert set(gaps) == {0}


def test_a_lost_drafter_leaves_plain_decoding() -> None:
    _, steps = run(
        requests={"count": 8, "prompt_tokens": 1, "output_tokens": 400},
        failures=[{"drafter": 0, "at_s": 1.0, "for_s": 1.0}],
    )
    lost = [each for each in steps if 1.1e9 < each.verify_start_ns < 1.95e9]
    back = [each for each in steps if each.verify_start_ns > 2.2e9]
    assert lost
    assert not any(any(each.proposed_per_position) for each in lost)
    assert any(each.mode == "two-batch" for each in back)


def test_a_slow_link_costs_what_it_delays() -> None:
    delays = {}
    for delay_ms in (0.0, 10.0):
        _, steps = run(
            mode="sequential",
            link={"delay_ms": delay_ms},
            requests={"count": 4, "prompt_tokens": 1, "output_tokens": 400},
        )
        steady = [each for each in steps if each.num_requests == 4][5:-5]
        span_ms = (steady[-1].verify_end_ns - steady[0].verify_end_ns) / 1e6
        delays[delay_ms] = span_ms / (len(steady) - 1)
    assert delays[10.0] - delays[0.0] == pytest.approx(20.0, abs=0.2)


def test_bytes_take_their_time() -> None:
    fast, slow = (
        run(
            link={"mb_per_s": speed},
            requests={"count": 4, "prompt_tokens": 900, "output_tokens": 40},
        )
        for speed in (1000.0, 0.1)
    )
    assert slow[0].num_link_bytes == pytest.approx(fast[0].num_link_bytes, rel=0.2)
    assert slow[0].tokens_per_s < fast[0].tokens_per_s


def test_pressure_on_the_pool_preempts() -> None:
    engine = {"target": {"fixed_ms": 30.0}, "num_kv_blocks": 20}
    outcome, _ = run(
        engines=[engine], requests={"count": 12, "prompt_tokens": 60, "output_tokens": 100}
    )
    assert outcome.num_preemptions > 0
    assert outcome.peak_kv_blocks <= 20
    assert outcome.figures.num_completed == 12


def test_nobody_gives_way_to_one_who_does_not_fit_all_the_same() -> None:
    outcome, _ = run(
        num_speculative_tokens=1,
        acceptance=[0.3],
        engines=[{"target": {"fixed_ms": 10.0}}],
        drafters=[{"draft": {"fixed_ms": 0.001}, "num_kv_blocks": 40, "block_size": 1}],
        requests={"count": 8, "prompt_tokens": 3, "output_tokens": 15},
    )
    assert outcome.figures.num_completed == 8
    assert outcome.num_events < 10_000


def test_one_drafter_serves_many_engines() -> None:
    engines = [{"target": {"fixed_ms": 30.0, "per_token_ms": 0.1}, "count": 4}]
    requests = {"count": 32, "prompt_tokens": 1, "output_tokens": 300}
    shared, _ = run(engines=engines, requests=requests)
    own, _ = run(
        engines=engines,
        requests=requests,
        drafters=[{"draft": {"fixed_ms": 5.0, "per_token_ms": 0.05}, "count": 4}],
    )
    assert shared.drafter_busy_share > 0.95
    assert shared.tokens_per_s < own.tokens_per_s


def test_stretches_of_easy_text_are_more_than_their_mean() -> None:
    """With one rate by stretches more chains go far, and more end at once, than by their mean."""
    markov = {"easy": 0.95, "hard": 0.05, "to_hard": 0.02, "to_easy": 0.02}
    mean, stretches = (
        run(
            mode="sequential",
            acceptance=acceptance,
            num_speculative_tokens=8,
            requests={"count": 8, "prompt_tokens": 1, "output_tokens": 3000},
        )[0].success_rate
        for acceptance in ([0.5], markov)
    )
    assert mean is not None and stretches is not None
    assert mean == pytest.approx(sum(0.5**n for n in range(1, 9)) / 8, rel=0.05)
    assert stretches > 1.5 * mean


def test_traces_are_those_of_real_runs(tmp_path: Path) -> None:
    chosen = scenario(requests={"count": 8, "prompt_tokens": 1, "output_tokens": 200})
    path = tmp_path / "trace.jsonl"
    with TraceWriter(path, header_of(chosen)) as sink:
        outcome = simulate(chosen, sink=sink)
    summary = summarize(*read_trace(path))
    assert summary.acceptance_rate == pytest.approx(outcome.success_rate)
    assert summary.overlap_fraction == pytest.approx(1.0, abs=0.05)
    assert summary.verify_ms == pytest.approx(outcome.mean_step_ms, rel=0.2)


@pytest.mark.parametrize("mode", MODES)
def test_latencies_are_known_where_they_are_wanted(mode: str) -> None:
    outcome = simulate(scenario(mode=mode), keeps_deliveries=True)
    figures = outcome.figures
    assert figures.inter_token_ms is not None and figures.inter_token_ms.median > 0
    assert figures.ttft_ms is not None and figures.ttft_ms.median >= 30.0
    assert simulate(scenario(mode=mode)).figures.inter_token_ms is None
    assert math.isfinite(outcome.tokens_per_s)
