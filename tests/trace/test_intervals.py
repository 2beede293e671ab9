"""Interval arithmetic against counting cells one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from minedraft.trace.intervals import Interval, common_length, covered_fraction, length, union

INTERVALS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda pair: (pair[0], sum(pair))),
    max_size=8,
)


def _cells(intervals: list[Interval]) -> set[int]:
    return {cell for start, end in intervals for cell in range(start, end)}


@given(INTERVALS, INTERVALS)
def test_common_length_equals_brute_force(one: list[Interval], other: list[Interval]) -> None:
    assert common_length(union(one), union(other)) == len(_cells(one) & _cells(other))


@given(INTERVALS)
def test_union_is_disjoint_sorted_and_complete(intervals: list[Interval]) -> None:
    merged = union(intervals)
    assert _cells(merged) == _cells(intervals)
    assert length(merged) == len(_cells(intervals))
    bounds = [bound for interval in merged for bound in interval]
    assert bounds == sorted(set(bounds))


@given(INTERVALS, INTERVALS)
def test_covered_fraction_equals_brute_force(one: list[Interval], other: list[Interval]) -> None:
    wanted = _cells(one)
    expected = len(wanted & _cells(other)) / len(wanted) if wanted else None
    assert covered_fraction(one, other) == expected


def test_large_clock_values_stay_exact() -> None:
    base = 10**18
    assert common_length([(base, base + 3)], [(base + 1, base + 2)]) == 1
