"""Fits: exact where the form is right, rising whatever the points, and their errors named."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minedraft.errors import ConfigError
from minedraft.profiles import PassProfile, Point, TimeFit, fit_linear, fit_times
from profiles import DRAFT, SIZES, TARGET, point, points_of

sizes = st.tuples(
    st.integers(1, 64), st.floats(1.0, 40.0), st.floats(1.0, 4096.0), st.floats(1e-3, 9e3)
)
clouds = st.lists(sizes, min_size=1, max_size=25).map(
    lambda rows: [point(b, b * q, max(q, c), ms) for b, q, c, ms in rows]
)


@pytest.mark.parametrize("model", [TARGET, DRAFT])
def test_a_linear_device_is_found_again(model: object) -> None:
    points = points_of(model)  # type: ignore[arg-type]
    found = fit_linear(points)
    for b, n, c in [*SIZES, (3, 20, 300), (16, 100, 900)]:
        assert found.pass_ms(n, b, b * c) == pytest.approx(model.pass_ms(n, b, b * c))  # type: ignore[attr-defined]
    passes = PassProfile.of(points)
    assert all(abs(each.fit_error) < 1e-9 for each in passes.residuals)
    assert all(abs(each.linear_error) < 1e-9 for each in passes.residuals)


def test_the_broken_line_follows_a_bend_that_no_linear_model_can() -> None:
    """Bound by its weights up to 16 tokens, by arithmetic beyond."""
    points = [
        point(b, b * q, 100, 20.0 + max(0, b * q - 16) * 2.0)
        for b in (1, 2, 4, 8)
        for q in (1, 2, 4)
    ]
    passes = PassProfile.of(points)
    assert max(abs(each.fit_error) for each in passes.residuals) < 1e-6
    assert max(abs(each.linear_error) for each in passes.residuals) > 0.1


def test_small_and_large_times_count_alike() -> None:
    """Two sizes that the form cannot tell apart: errors are alike as shares, not as ms."""
    points = [point(1, 4, 64, 10.0), point(1, 4, 64, 20.0)]
    fitted = fit_times(points).pass_ms(4, 1, 64)
    # The x that makes (x/10 - 1)^2 + (x/20 - 1)^2 least.
    assert fitted == pytest.approx((1 / 10 + 1 / 20) / (1 / 100 + 1 / 400))


@settings(deadline=None)
@given(clouds, st.lists(st.floats(0.0, 1e4), min_size=2, max_size=6))
def test_times_rise_whatever_was_measured(points: list[Point], steps: list[float]) -> None:
    fit, linear = fit_times(points), fit_linear(points)
    rising = sorted(steps)
    for times in (
        [fit.pass_ms(50, each, 1000) for each in rising],
        [fit.pass_ms(each, 3, 1000) for each in rising],
        [fit.pass_ms(50, 3, each) for each in rising],
        [linear.pass_ms(each, each, each) for each in rising],
    ):
        assert all(a <= b * (1 + 1e-12) for a, b in pairwise(times))
        assert times[0] >= 0


@settings(deadline=None)
@given(clouds)
def test_the_broken_line_is_never_worse_than_saying_nothing(points: list[Point]) -> None:
    """A fit of nothing at all has an error of 1 at every point."""
    residuals = PassProfile.of(points).residuals
    assert sum(each.fit_error**2 for each in residuals) <= len(points) * (1 + 1e-9)


def test_the_last_slope_goes_on_and_the_first_knot_is_flat_below() -> None:
    fit = TimeFit(
        fixed_ms=10.0,
        per_request_ms=0.0,
        per_kv_token_ms=0.0,
        knots=(4.0, 8.0),
        slopes_ms=(1.0, 3.0),
    )
    assert [fit.pass_ms(n, 1, 0) for n in (0, 4, 6, 8, 9, 20)] == [10, 10, 12, 14, 17, 50]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"fixed_ms": -1.0}, "fixed_ms = -1.0"),
        ({"per_kv_token_ms": float("nan")}, "per_kv_token_ms = nan"),
        ({"knots": ()}, "knots = []"),
        ({"knots": (1.0,)}, "knots = [1.0]"),
        ({"knots": (2.0, 1.0)}, "knots[1] = 1.0"),
        ({"slopes_ms": (1.0, -2.0)}, "slopes_ms[1] = -2.0"),
    ],
)
def test_what_is_no_fit_is_refused(changes: dict[str, object], named: str) -> None:
    fields = {
        "fixed_ms": 1.0,
        "per_request_ms": 0.0,
        "per_kv_token_ms": 0.0,
        "knots": (1.0, 2.0),
        "slopes_ms": (0.0, 1.0),
    }
    with pytest.raises(ConfigError) as error:
        TimeFit(**{**fields, **changes})  # type: ignore[arg-type]
    assert named in str(error.value)


def test_no_points_no_fit() -> None:
    with pytest.raises(ConfigError, match="points"):
        fit_times([])
    with pytest.raises(ConfigError, match="points"):
        fit_linear([])
