"""The simulator against the theory, where the theory's assumptions hold."""

from __future__ import annotations

from typing import Any

import pytest

from minedraft.config import MODES
from minedraft.emulation import LatencyModel
from minedraft.theory import Acceptance, LinearTimes, Load, steady_of
from simulated import decode_rate, run

#: A step's tokens scatter by about a third of their mean, so that two standard errors are 0.4 %.
_TOKENS = 120_000
_TOKENS_WITHOUT_CHANCE = 6_000
_TOLERANCE = 0.005

CASES: dict[str, dict[str, Any]] = {
    "high acceptance": {"rates": (0.935,), "m": 16, "k": 4},
    "middling acceptance": {"rates": (0.74,), "m": 16, "k": 4},
    "falling with position": {"rates": (0.9, 0.7, 0.5), "m": 16, "k": 3},
    "one in flight": {"rates": (0.8,), "m": 1, "k": 3},
    "an odd number, overhead": {"rates": (0.8,), "m": 7, "k": 3, "overhead_ms": 2.0},
    "drafting takes longer": {"rates": (0.8,), "m": 8, "k": 2, "draft": (20.0, 0.5)},
    "bound by compute": {"rates": (0.8,), "m": 16, "k": 3, "target": (10.0, 1.0)},
    "a way to the drafter": {"rates": (0.8,), "m": 8, "k": 3, "round_trip_ms": 8.0},
    "a way that is not hidden": {
        **{"rates": (0.8,), "m": 8, "k": 3, "round_trip_ms": 8.0},
        "draft": (10.0, 0.0),
    },
}
#: Without room for k + 1 passes in a step pearl has no form, and wait-free's is a lower bound.
NO_FORM = {
    (case, mode)
    for case in ("drafting takes longer", "a way that is not hidden")
    for mode in ("pearl", "wait-free")
} | {("a way to the drafter", "wait-free")}
"""Wait-free's form takes messages to be at once; a long way leaves its drafter less time."""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES)
def test_agrees_within_half_a_percent(case: str, mode: str) -> None:
    if (case, mode) in NO_FORM:
        pytest.skip("its assumptions do not hold")
    found, exact = _both(mode, **CASES[case])
    assert found == pytest.approx(exact, rel=_TOLERANCE)


def test_wait_free_with_part_of_the_passes_is_above_its_lower_bound() -> None:
    found, bound = _both("wait-free", **CASES["drafting takes longer"])
    assert found >= bound


def _both(
    mode: str,
    *,
    rates: tuple[float, ...],
    m: int,
    k: int,
    target: tuple[float, float] = (30.0, 0.1),
    draft: tuple[float, float] = (5.0, 0.05),
    overhead_ms: float = 0.0,
    round_trip_ms: float = 0.0,
) -> tuple[float, float]:
    """Tokens per second, simulated and by the closed form."""
    models = [
        {"fixed_ms": fixed, "per_token_ms": per_token} for fixed, per_token in (target, draft)
    ]
    times = LinearTimes(target=LatencyModel(**models[0]), draft=LatencyModel(**models[1]))
    load = Load(
        times=times,
        acceptance=Acceptance(rates),
        in_flight=m,
        overhead_ms=overhead_ms,
        round_trip_ms=round_trip_ms,
    )
    num_tokens = _TOKENS_WITHOUT_CHANCE if mode == "none" else _TOKENS
    _, steps = run(
        mode=mode,
        num_speculative_tokens=k,
        acceptance=list(rates),
        engines=[{"target": models[0], "overhead_ms": overhead_ms}],
        drafters=[{"draft": models[1]}],
        link={"delay_ms": round_trip_ms / 2},
        requests={"count": m, "prompt_tokens": 1, "output_tokens": num_tokens // m},
    )
    return decode_rate(steps, m), steady_of(mode, load, k).tokens_per_s
