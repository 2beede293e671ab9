"""What a profile answers: times for the closed forms, up to a bound, and linear models."""

from __future__ import annotations

import pytest

from minedraft.config import MODES
from minedraft.errors import ConfigError
from minedraft.profiles import EXTRAPOLATION, PassProfile
from minedraft.theory import Acceptance, LinearTimes, Load, PairTimes, steady_of
from profiles import DRAFT, SIZES, TARGET, make_profile, point

MOST_REQUESTS = max(b for b, _, _ in SIZES)
MOST_TOKENS = max(n for _, n, _ in SIZES)
LONGEST = max(c for _, _, c in SIZES)


@pytest.mark.parametrize("mode", MODES)
def test_closed_forms_take_a_profile_as_they_take_the_devices(mode: str) -> None:
    measured: PairTimes = make_profile().times(300)
    known = LinearTimes(target=TARGET, draft=DRAFT, context=300)
    rounds = [
        steady_of(
            mode,
            Load(times=times, acceptance=Acceptance((0.8,)), in_flight=8, overhead_ms=1.5),
            3,
        ).round_ms
        for times in (measured, known)
    ]
    assert rounds[0] == pytest.approx(rounds[1])


def test_the_linear_models_are_the_devices() -> None:
    profile = make_profile()
    for role, known in (("target", TARGET), ("draft", DRAFT)):
        assert profile.latency_model(role).pass_ms(20, 4, 800) == pytest.approx(
            known.pass_ms(20, 4, 800)
        )
    with pytest.raises(ConfigError, match="role = 'drafter'"):
        profile.latency_model("drafter")


def test_sizes_far_beyond_the_measured_ones_are_refused() -> None:
    times = make_profile().times(EXTRAPOLATION * LONGEST)
    at_bound = times.verify_ms(EXTRAPOLATION * MOST_REQUESTS, EXTRAPOLATION * MOST_TOKENS)
    known = LinearTimes(target=TARGET, draft=DRAFT, context=EXTRAPOLATION * LONGEST)
    assert at_bound == pytest.approx(
        known.verify_ms(EXTRAPOLATION * MOST_REQUESTS, EXTRAPOLATION * MOST_TOKENS)
    )
    with pytest.raises(ConfigError, match=r"target num_requests \(measured to 8\) = 17"):
        times.verify_ms(17, 17)
    with pytest.raises(ConfigError, match=r"draft num_tokens \(measured to 512\) = 1025"):
        times.draft_pass_ms(8, 1025)
    with pytest.raises(ConfigError, match="context"):
        make_profile().times(EXTRAPOLATION * LONGEST + 1)
    with pytest.raises(ConfigError, match="context"):
        make_profile().times(float("nan"))
    with pytest.raises(ConfigError, match="num_tokens"):
        times.verify_ms(4, -1)


def test_the_context_of_either_model_bounds_the_pair() -> None:
    short = make_profile(draft=PassProfile.of([point(1, 1, 10, 3.0)]))
    assert short.times(20).draft_pass_ms(1, 1) == pytest.approx(3.0)
    with pytest.raises(ConfigError, match="measured to 10"):
        short.times(21)


def test_residuals_have_the_sign_of_what_the_fit_says_too_much() -> None:
    """Two times for one size: the fit lies between them."""
    slow, fast = PassProfile.of([point(1, 1, 9, 12.0), point(1, 1, 9, 10.0)]).residuals
    assert slow.fit_error < 0 < fast.fit_error
    assert slow.linear_error < 0 < fast.linear_error
    assert fast.fit_ms == pytest.approx(slow.fit_ms)
