"""Theorem 1 against Lambert's W, brute force and the limits it must have."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import lambertw

from minedraft.errors import ConfigError
from minedraft.theory import (
    CEILING,
    PEAK,
    PUBLISHED_RATIO,
    PUBLISHED_THRESHOLD,
    ExponentialFrontier,
    excess,
    parallel_optimum_ms,
    parallel_time_ms,
    positive_root_of_excess,
    range_of_speedup,
    sequential_time_ms,
    speedup,
)

ALPHA_V = st.floats(1e-300, 1e300)


@given(st.floats(0.01, 600.0))
def test_root_is_the_lower_branch_of_lambert_w(y: float) -> None:
    expected = -lambertw(-math.exp(-(1 + y)), -1).real - 1 - y
    assert positive_root_of_excess(y) == pytest.approx(expected, rel=1e-9)


@given(ALPHA_V)
@example(5e-324)
@example(1e308)
def test_root_solves_its_equation_at_every_size(y: float) -> None:
    x = positive_root_of_excess(y)
    assert x > 0
    # The relative condition number of the inverse is at most 1, so both ways must agree.
    assert excess(x) == pytest.approx(y, rel=1e-12 * max(1.0, x), abs=1e-320)


@given(ALPHA_V)
def test_ratio_never_leaves_its_bounds(y: float) -> None:
    assert 1.0 - 1e-15 <= speedup(y) <= CEILING * (1 + 1e-15)


@settings(deadline=None)
@given(st.floats(1e-3, 300.0))
def test_ratio_is_that_of_brute_force_optima(y: float) -> None:
    frontier, verify_ms = ExponentialFrontier(0.5), y / 0.5
    found = minimize_scalar(
        lambda log_t: math.log(sequential_time_ms(frontier, 1.0, math.exp(log_t), verify_ms)),
        bounds=(math.log(verify_ms) - 12.0, math.log(verify_ms) + 12.0),
        method="bounded",
        options={"xatol": 1e-10},
    )
    parallel = min(
        parallel_time_ms(frontier, 1.0, verify_ms * (1 + step / 500), verify_ms)
        for step in range(-400, 2000)
    )
    assert speedup(y) == pytest.approx(math.exp(found.fun) / parallel, rel=1e-5)


def test_ratio_peaks_at_two_where_both_optima_meet() -> None:
    assert math.exp(PEAK) == pytest.approx(1 + 2 * PEAK, rel=1e-15)
    assert speedup(PEAK) == pytest.approx(CEILING, rel=1e-15)
    frontier = ExponentialFrontier(1.0)
    assert frontier.sequential_optimum_ms(PEAK) == pytest.approx(parallel_optimum_ms(PEAK))


@given(st.floats(1e-6, PEAK), st.floats(1.0, 1e6))
def test_ratio_rises_to_its_peak_and_falls_behind_it(rising: float, factor: float) -> None:
    assert speedup(rising) <= speedup(min(PEAK, rising * factor)) * (1 + 1e-12)
    assert speedup(PEAK * factor) >= speedup(PEAK * factor * 2) * (1 - 1e-12)


def test_published_threshold_is_not_where_the_published_ratio_begins() -> None:
    assert pytest.approx(-lambertw(-1 / (2 * math.e), -1).real - 1) == PUBLISHED_THRESHOLD
    low, high = range_of_speedup(PUBLISHED_RATIO)
    assert (low, high) == (pytest.approx(0.18781, abs=1e-5), pytest.approx(5.21109, abs=1e-5))
    assert low < PUBLISHED_THRESHOLD < high
    assert speedup(high * 1.01) < PUBLISHED_RATIO  # so the published half-line is false
    assert speedup(1e6) < 1.001


@given(st.floats(1.001, 2.0 - 1e-9))
def test_range_is_where_the_ratio_is_reached(ratio: float) -> None:
    low, high = range_of_speedup(ratio)
    assert low <= PEAK <= high
    assert speedup(low) == pytest.approx(ratio, rel=1e-6)
    assert speedup(high) == pytest.approx(ratio, rel=1e-6)


@pytest.mark.parametrize("ratio", [1.0, 2.1, float("nan"), "1.5"])
def test_a_ratio_that_is_never_or_always_reached_is_refused(ratio: object) -> None:
    with pytest.raises(ConfigError, match="ratio"):
        range_of_speedup(ratio)  # type: ignore[arg-type]


@pytest.mark.parametrize("alpha_v", [0.0, -1.0, math.inf])
def test_a_bad_alpha_v_is_refused(alpha_v: float) -> None:
    with pytest.raises(ConfigError, match="alpha_v"):
        speedup(alpha_v)
