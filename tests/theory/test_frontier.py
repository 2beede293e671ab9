"""Frontiers: their shape, their optima against brute force, and what they refuse."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from minedraft.errors import ConfigError
from minedraft.theory import (
    ExponentialFrontier,
    TabulatedFrontier,
    parallel_optimum_ms,
    parallel_time_ms,
    sequential_time_ms,
)

POINTS = st.lists(
    st.tuples(st.floats(0.1, 100.0), st.floats(0.0, 1.0)), min_size=1, max_size=6
).filter(lambda points: any(rate > 1e-3 for _, rate in points))
FRONTIERS = st.one_of(
    st.builds(ExponentialFrontier, st.floats(1e-3, 10.0)), st.builds(TabulatedFrontier, POINTS)
)
MS = st.floats(0.1, 200.0)


@given(FRONTIERS, MS, st.floats(0.01, 500.0))
def test_no_drafting_time_beats_the_optima(
    frontier: ExponentialFrontier, verify_ms: float, other_ms: float
) -> None:
    own = frontier.sequential_optimum_ms(verify_ms)
    best = sequential_time_ms(frontier, 10.0, own, verify_ms)
    assert best <= sequential_time_ms(frontier, 10.0, other_ms, verify_ms) * (1 + 1e-9)
    shared = parallel_time_ms(frontier, 10.0, parallel_optimum_ms(verify_ms), verify_ms)
    assert shared <= parallel_time_ms(frontier, 10.0, other_ms, verify_ms) * (1 + 1e-9)
    # The ceiling holds for every frontier.
    assert shared <= best * (1 + 1e-9)
    assert best <= 2 * shared * (1 + 1e-9)


@given(FRONTIERS, MS, MS, st.floats(0.0, 1.0))
def test_success_is_concave_and_never_falls(
    frontier: ExponentialFrontier, left: float, right: float, share: float
) -> None:
    low, high = sorted((left, right))
    assert 0.0 <= frontier.success_rate(low) <= frontier.success_rate(high) <= 1.0
    middle = low + share * (high - low)
    chord = (1 - share) * frontier.success_rate(low) + share * frontier.success_rate(high)
    assert frontier.success_rate(middle) >= chord - 1e-9


@given(POINTS)
def test_a_table_lies_on_or_below_its_frontier(points: list[tuple[float, float]]) -> None:
    frontier = TabulatedFrontier(points)
    assert frontier.success_rate(0.0) == 0.0
    for time_ms, rate in points:
        assert frontier.success_rate(time_ms) >= rate - 1e-12
    assert set(frontier.corners[1:]) <= set(points)


def test_a_table_of_few_points() -> None:
    frontier = TabulatedFrontier([(4.0, 0.6), (2.0, 0.5), (3.0, 0.5), (8.0, 0.6)])
    assert frontier.corners == ((0.0, 0.0), (2.0, 0.5), (4.0, 0.6))
    assert frontier.success_rate(1.0) == 0.25
    assert frontier.success_rate(3.0) == pytest.approx(0.55)
    assert frontier.success_rate(100.0) == 0.6
    assert frontier.sequential_optimum_ms(1.0) == 2.0  # 3/0.5 against 5/0.6
    assert frontier.sequential_optimum_ms(100.0) == 4.0  # 102/0.5 against 104/0.6


@given(st.floats(1e-3, 10.0), MS)
def test_a_fine_table_of_the_exponential_has_its_optimum(alpha: float, verify_ms: float) -> None:
    exact = ExponentialFrontier(alpha)
    optimum = exact.sequential_optimum_ms(verify_ms)
    assume(exact.success_rate(optimum) < 1 - 1e-6)
    times = [optimum * (0.9 + step / 1000) for step in range(200)]
    table = TabulatedFrontier([(each, exact.success_rate(each)) for each in times])
    assert table.sequential_optimum_ms(verify_ms) == pytest.approx(optimum, rel=2e-3)


def test_no_drafting_takes_for_ever() -> None:
    frontier = ExponentialFrontier(0.1)
    assert sequential_time_ms(frontier, 1.0, 0.0, 30.0) == math.inf
    assert parallel_time_ms(frontier, 1.0, 0.0, 30.0) == math.inf
    assert sequential_time_ms(frontier, 100.0, 20.0, 30.0) == pytest.approx(
        100 * 50 / (1 - math.exp(-2))
    )
    assert parallel_time_ms(frontier, 100.0, 20.0, 30.0) == pytest.approx(
        100 * 30 / (1 - math.exp(-2))
    )


@pytest.mark.parametrize(
    ("points", "named"),
    [
        ([], "points"),
        ([(0.0, 0.5)], r"points\[0\]\.time_ms"),
        ([(1.0, 0.5), (2.0, 1.5)], r"points\[1\]\.rate"),
        ([(1.0, 0.0)], "points"),
    ],
)
def test_bad_tables_are_refused(points: list[tuple[float, float]], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        TabulatedFrontier(points)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ConfigError, match="alpha"):
        ExponentialFrontier(0.0)
    with pytest.raises(ConfigError, match="verify_ms"):
        ExponentialFrontier(1.0).sequential_optimum_ms(-1.0)
    with pytest.raises(ConfigError, match="drafting_ms"):
        sequential_time_ms(ExponentialFrontier(1.0), 1.0, -1.0, 1.0)


@pytest.mark.parametrize(
    ("alpha", "verify_ms", "optimum_ms"),
    [
        # For small alpha V, t* = sqrt(2 V / alpha).
        (1e-200, 1e-200, math.sqrt(2.0)),
        (1e-200, 2e-200, 2.0),
        (1e-300, 2e-100, 2e100),
        (1e-20, 2e-20, 2.0),
        (1e-18, 2e-18, 2.0),
    ],
)
def test_the_smallest_numbers_have_an_optimum_too(
    alpha: float, verify_ms: float, optimum_ms: float
) -> None:
    found = ExponentialFrontier(alpha).sequential_optimum_ms(verify_ms)
    assert found == pytest.approx(optimum_ms, rel=1e-14)


@pytest.mark.parametrize("points", [[1], ["ab"], [(1.0,)], [(1.0, 0.5, 0.5)], [None]])
def test_points_that_are_no_pairs_are_refused(points: list[object]) -> None:
    with pytest.raises(ConfigError, match=r"points\[0\].*a \(time in ms, rate\) pair"):
        TabulatedFrontier(points)  # type: ignore[arg-type]


def test_integers_beyond_a_float_are_refused() -> None:
    with pytest.raises(ConfigError, match="alpha"):
        ExponentialFrontier(10**400)
    with pytest.raises(ConfigError, match="verify_ms"):
        ExponentialFrontier(1.0).sequential_optimum_ms(10**400)
    with pytest.raises(ConfigError, match="num_tokens"):
        sequential_time_ms(ExponentialFrontier(1.0), 10**400, 1.0, 1.0)
