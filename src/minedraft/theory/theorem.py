"""Theorem 1: how much faster parallel drafting is, each side at its own best drafting time.

Owns the exact ratio and where it reaches a given value; f is the paper's 1 - exp(-alpha t).
Implements: arXiv:2603.18016, Theorem 1, derived again (docs/paper_map.md says what differs).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from minedraft.theory.excess import excess, positive_root_of_excess
from minedraft.validation import check_number

CEILING = 2.0
"""The ratio is never above: T_SD at its optimum is at most T_SD at t = V, which is 2 R V/f(V),
twice T_PSD at its optimum. So at most 50 % of the time can be saved, whatever f is."""

PUBLISHED_RATIO = 1.59
"""What the paper states as a lower bound of the ratio."""

_SMALLEST, _LARGEST = 1e-300, 1e300


def speedup(alpha_v: float) -> float:
    """min T_SD / min T_PSD at alpha V = `alpha_v` > 0: e^x (1 - e^{-y}) / y with y = alpha V.

    x = alpha t* is that of ExponentialFrontier.sequential_optimum_ms, so that e^x = 1 + x + y.
    It rises from 1 to the ceiling at PEAK, and falls to 1 again.
    """
    check_number("alpha_v", alpha_v, 0.0, low_open=True)
    x = positive_root_of_excess(alpha_v)
    return (1 + x + alpha_v) * (-math.expm1(-alpha_v) / alpha_v)


def range_of_speedup(ratio: float) -> tuple[float, float]:
    """The least and the greatest alpha V at which the speed-up is at least `ratio`.

    Raises:
        ConfigError: the ratio is not in [1.001, 2]: below, the ends have too few digits.
    """
    check_number("ratio", ratio, 1.001, CEILING)
    rising = _bisect(lambda y: speedup(y) < ratio, _SMALLEST, PEAK)
    falling = _bisect(lambda y: speedup(y) >= ratio, PEAK, _LARGEST)
    return rising, falling


def _bisect(is_before: Callable[[float], bool], low: float, high: float) -> float:
    """Where `is_before` turns false between 0 < low < high, halving on a logarithmic scale."""
    while True:
        middle = math.sqrt(low) * math.sqrt(high)
        if not low < middle < high:
            return high
        low, high = (middle, high) if is_before(middle) else (low, middle)


PEAK = _bisect(lambda y: excess(y) < y, 0.5, 4.0)
"""The alpha V of the ceiling, about 1.2564: both optima are t = V there, and e^y = 1 + 2y."""

PUBLISHED_THRESHOLD = _bisect(lambda y: excess(y) < 1 + y, 0.5, 4.0)
"""-W_{-1}(-1/(2e)) - 1, about 1.6783: from there on, as the paper states it, the published ratio
is exceeded. It is, up to alpha V = 5.2 only."""
