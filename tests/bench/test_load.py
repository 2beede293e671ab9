"""Arrivals of every kind, over any course of a run; and what their spec and trace refuse."""

from __future__ import annotations

import random
from collections import deque
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minedraft import ConfigError
from minedraft.bench.load import (
    LOAD_KINDS,
    Arrivals,
    ClosedLoopArrivals,
    LoadSpec,
    TimedArrivals,
    make_arrivals,
    read_arrival_times,
)

TIMES = st.lists(st.floats(0, 100), max_size=40).map(sorted)
PAUSES = st.lists(st.floats(0, 5), min_size=1, max_size=20)


def _run(arrivals: Arrivals, total: int, pauses: list[float], in_flight: int) -> list[float]:
    """Drive a run in which a look at the clock, and a finished request, come every pause.

    Returns the arrival times of the requests that started.
    """
    now_s, started, open_now = 0.0, list[float](), deque[float]()
    turn = 0
    while arrivals.num_left or open_now:
        left, expected_at_s = arrivals.num_left, arrivals.next_at_s()
        times_s = arrivals.due(now_s, len(open_now))
        assert arrivals.num_left == left - len(times_s)
        assert all(time_s <= now_s for time_s in times_s)
        if expected_at_s is not None:
            assert bool(times_s) == (expected_at_s <= now_s)
        assert arrivals.due(now_s, len(open_now) + len(times_s)) == [], "not started twice"
        started += times_s
        open_now.extend(times_s)
        assert len(open_now) <= in_flight
        if open_now:
            open_now.popleft()
            now_s += pauses[turn % len(pauses)]
        elif (next_at_s := arrivals.next_at_s()) is not None:
            assert next_at_s > now_s
            now_s = next_at_s
        turn += 1
    assert len(started) == total
    assert arrivals.next_at_s() is None
    return started


@given(times_s=TIMES, pauses=PAUSES)
def test_timed_requests_start_once_each_with_their_own_times(
    times_s: list[float], pauses: list[float]
) -> None:
    arrivals = TimedArrivals(times_s)
    assert _run(arrivals, len(times_s), pauses, in_flight=len(times_s)) == times_s


@given(total=st.integers(0, 40), in_flight=st.integers(1, 8), pauses=PAUSES)
def test_closed_loop_starts_each_once_and_never_has_more_open(
    total: int, in_flight: int, pauses: list[float]
) -> None:
    arrivals = make_arrivals(
        LoadSpec(kind="closed-loop", in_flight=in_flight), total, random.Random(0)
    )
    _run(arrivals, total, pauses, in_flight)


def test_closed_loop_by_hand() -> None:
    arrivals = ClosedLoopArrivals(5, in_flight=2)
    assert arrivals.next_at_s() is None
    assert arrivals.due(1.0, 0) == [1.0, 1.0]
    assert arrivals.due(2.0, 2) == []
    assert arrivals.due(3.0, 1) == [3.0]
    assert arrivals.due(4.0, 3) == [], "more open than allowed is not this object's doing"
    assert arrivals.due(5.0, 0) == [5.0, 5.0]
    assert arrivals.due(6.0, 0) == []
    assert arrivals.num_left == 0


def test_offline_starts_all_at_once() -> None:
    arrivals = make_arrivals(LoadSpec(), 3, random.Random(0))
    assert arrivals.next_at_s() == 0.0
    assert arrivals.due(0.25, 0) == [0.0, 0.0, 0.0]
    assert arrivals.next_at_s() is None


def test_poisson_has_its_mean_rate_and_spread() -> None:
    spec = LoadSpec(kind="poisson", rate_per_s=4)
    arrivals = make_arrivals(spec, 20_000, random.Random(7))
    times_s = arrivals.due(1e9, 0)
    assert len(times_s) == 20_000
    gaps_s = [b - a for a, b in zip([0.0, *times_s], times_s, strict=False)]
    assert min(gaps_s) >= 0
    mean_s = sum(gaps_s) / len(gaps_s)
    # The standard error of the mean of n exponential gaps is their mean over sqrt(n): 0.7 %.
    assert mean_s == pytest.approx(0.25, rel=0.02)
    spread_s = (sum((gap - mean_s) ** 2 for gap in gaps_s) / len(gaps_s)) ** 0.5
    assert spread_s == pytest.approx(0.25, rel=0.04)


def test_poisson_is_that_of_the_seed() -> None:
    spec = LoadSpec(kind="poisson", rate_per_s=2.0)
    one, same, other = (
        make_arrivals(spec, 10, random.Random(seed)).due(1e9, 0) for seed in (1, 1, 2)
    )
    assert one == same != other
    # -ln(1 - u) / 2 with u = 0.13436424411240122, the first draw of random.Random(1).
    assert one[0] == pytest.approx(0.07214555, abs=1e-7)


def test_trace_takes_the_first_arrivals(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('0.5\n{"arrival_s": 1, "user": 3}\n\n7\n', encoding="utf-8")
    spec = LoadSpec(kind="trace", path=str(path))
    arrivals = make_arrivals(spec, 2, random.Random(0))
    assert arrivals.next_at_s() == 0.5
    assert arrivals.due(0.9, 0) == [0.5]
    assert arrivals.due(100.0, 1) == [1.0]
    with pytest.raises(ConfigError, match="has 3 arrivals for 4 requests"):
        make_arrivals(spec, 4, random.Random(0))


@pytest.mark.parametrize(
    "text", ["user,arrival_s\n1,0.5\n2,0.5\n\n1,2\n", "0.5\n0.5\n2.0\n", "0.5,1\n0.5,2\n2,1"]
)
def test_csv_traces(text: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.CSV"
    path.write_text(text, encoding="utf-8")
    assert read_arrival_times(path) == [0.5, 0.5, 2.0]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("t.jsonl", "1\n{", "line 2 is not JSON"),
        ("t.jsonl", '1\n{"at": 2}', "line 2 = None is not allowed"),
        ("t.jsonl", '"1"', "line 1 = '1' is not allowed"),
        ("t.jsonl", "2\n1", "line 2 = 1 is not allowed; allowed: a number in .2.0, 1000000000"),
        ("t.jsonl", "-1", "line 1 = -1"),
        ("t.jsonl", "NaN", "line 1 = nan"),
        ("t.jsonl", "true", "line 1 = True"),
        ("t.jsonl", "", "has no arrival"),
        ("t.csv", "", "has no arrival"),
        ("t.csv", "at,user\n1,2", "has the columns at, user; allowed: .*arrival_s"),
        ("t.csv", "arrival_s\nsoon", "line 2 = 'soon'"),
        ("t.csv", "user,arrival_s\n1", "line 2 = None"),
        ("t.csv", "1\ninf", "line 2 = inf"),
    ],
)
def test_bad_traces(name: str, text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=says):
        read_arrival_times(path)


def test_a_trace_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read load.path = .*missing"):
        read_arrival_times(tmp_path / "missing")


@pytest.mark.parametrize(
    "table",
    [
        {"kind": "offline"},
        {"kind": "closed-loop", "in_flight": 16},
        {"kind": "poisson", "rate_per_s": 1.5},
        {"kind": "trace", "path": "arrivals.csv"},
    ],
)
def test_mappings_round_trip(table: dict[str, object]) -> None:
    assert table["kind"] in LOAD_KINDS
    assert LoadSpec.from_mapping(table).to_mapping() == table
    assert LoadSpec.from_mapping({}) == LoadSpec(kind="offline")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ([], r"load = \[\] is not allowed"),
        ({"rate": 1}, "unknown option 'rate' in load"),
        ({"kind": "burst"}, "load.kind = 'burst' is not allowed; allowed: offline, closed-loop"),
        ({"kind": ["offline"]}, "load.kind = "),
        ({"in_flight": 2}, "load.in_flight = 2 is not allowed; allowed: nothing, since 'offline'"),
        ({"kind": "closed-loop"}, "load.in_flight is missing; 'closed-loop' needs it"),
        ({"kind": "closed-loop", "in_flight": 0}, "load.in_flight = 0"),
        ({"kind": "closed-loop", "in_flight": 2.0}, "load.in_flight = 2.0"),
        ({"kind": "poisson"}, "load.rate_per_s is missing"),
        ({"kind": "poisson", "rate_per_s": 0}, "load.rate_per_s = 0"),
        ({"kind": "poisson", "rate_per_s": float("inf")}, "load.rate_per_s = inf"),
        ({"kind": "poisson", "rate_per_s": 1, "path": "x"}, "load.path = 'x'"),
        ({"kind": "trace"}, "load.path is missing"),
        ({"kind": "trace", "path": " "}, "load.path = ' '"),
    ],
)
def test_bad_specs(table: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        LoadSpec.from_mapping(table)


def test_arrivals_that_nobody_would_wait_for_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "late.jsonl"
    path.write_text("1.0\n1e300\n")
    with pytest.raises(ConfigError, match=r"line 2 = 1e\+300.*1000000000"):
        read_arrival_times(path)
    for rate_per_s in (1e-300, 1e-10):
        spec = LoadSpec(kind="poisson", rate_per_s=rate_per_s)
        with pytest.raises(ConfigError, match=r"load.rate_per_s.*3 requests.*1e\+09 s"):
            make_arrivals(spec, 3, random.Random(0))
