"""The paper's model of one drafting step: time spent, success bought, total time needed.

Owns f(t), T_SD and T_PSD and the drafting times that minimise them; it knows no batch, no
bonus token and no overhead (see `steady` for those).
Implements: arXiv:2603.18016, "Theoretical efficiency".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from minedraft.errors import ConfigError
from minedraft.theory.excess import positive_root_of_excess
from minedraft.validation import check_number

_ALL_SQUARE = 1e-36
"""Where alpha V is below, the next term of the optimum is beyond a float's digits."""


class Frontier(Protocol):
    """f: the best verification success rate that a drafting time can buy.

    Non-decreasing, from R+ to [0, 1], and concave: of two drafting times any mixture can be
    had by taking turns, so that the points between them are never out of reach.
    """

    def success_rate(self, drafting_ms: float) -> float:
        """f(t) for t in ms, at least 0."""
        ...

    def sequential_optimum_ms(self, verify_ms: float) -> float:
        """The t > 0 that minimises T_SD at this V > 0, in ms."""
        ...


@dataclass(frozen=True, slots=True)
class ExponentialFrontier:
    """f(t) = 1 - exp(-alpha t), alpha per ms: the form of the paper's Theorem 1."""

    alpha: float

    def __post_init__(self) -> None:
        check_number("alpha", self.alpha, 0.0, low_open=True)

    def success_rate(self, drafting_ms: float) -> float:
        """See Frontier."""
        check_number("drafting_ms", drafting_ms, 0.0)
        return -math.expm1(-self.alpha * drafting_ms)

    def sequential_optimum_ms(self, verify_ms: float) -> float:
        """t* with e^x = 1 + x + alpha V for x = alpha t*.

        So alpha t* = -W_{-1}(-exp(-(1 + alpha V))) - 1 - alpha V, with the lower branch of
        Lambert's W; it is solved without W, which is out of digits where exp(-alpha V) is
        tiny and near its branch point, where alpha V is.
        """
        check_number("verify_ms", verify_ms, 0.0, low_open=True)
        if self.alpha * verify_ms < _ALL_SQUARE:
            # e^x - 1 - x is x^2/2, and the product may be too small for a number.
            return math.sqrt(2) * math.sqrt(verify_ms) / math.sqrt(self.alpha)
        return positive_root_of_excess(self.alpha * verify_ms) / self.alpha


class TabulatedFrontier:
    """The general form: the least concave non-decreasing f through (0, 0) above measured points.

    Between two corners it is linear, and beyond the last one constant.
    """

    def __init__(self, points: Sequence[tuple[float, float]]) -> None:
        """Take (drafting time in ms, success rate) pairs, in any order.

        Raises:
            ConfigError: no point, one that is no pair, a time that is not above 0, or a rate
                outside [0, 1].
        """
        if not points:
            raise ConfigError.bad_value("points", points, "at least one (time in ms, rate) pair")
        for at, point in enumerate(points):
            if not isinstance(point, Sequence) or isinstance(point, str) or len(point) != 2:
                raise ConfigError.bad_value(f"points[{at}]", point, "a (time in ms, rate) pair")
        for at, (time_ms, rate) in enumerate(points):
            check_number(f"points[{at}].time_ms", time_ms, 0.0, low_open=True)
            check_number(f"points[{at}].rate", rate, 0.0, 1.0)
        if not any(rate for _, rate in points):
            raise ConfigError.bad_value("points", points, "at least one rate above 0")
        self._corners = _concave_hull(points)

    @property
    def corners(self) -> tuple[tuple[float, float], ...]:
        """The (ms, rate) pairs between which f is linear, (0, 0) first."""
        return self._corners

    def success_rate(self, drafting_ms: float) -> float:
        """See Frontier."""
        check_number("drafting_ms", drafting_ms, 0.0)
        for (left, low), (right, high) in pairwise(self._corners):
            if drafting_ms <= right:
                share = (drafting_ms - left) / (right - left)
                return min(high, low + (high - low) * share)
        return self._corners[-1][1]

    def sequential_optimum_ms(self, verify_ms: float) -> float:
        """A corner: on a line (t + V)/f(t) is a quotient of linear functions, so monotone."""
        check_number("verify_ms", verify_ms, 0.0, low_open=True)
        corners = self._corners[1:]
        return min(corners, key=lambda corner: (corner[0] + verify_ms) / corner[1])[0]


def sequential_time_ms(
    frontier: Frontier, num_tokens: float, drafting_ms: float, verify_ms: float
) -> float:
    """T_SD = R (t + V) / f(t), in ms; infinite where f(t) is 0."""
    check_number("verify_ms", verify_ms, 0.0)
    return _total(frontier, num_tokens, drafting_ms, drafting_ms + verify_ms)


def parallel_time_ms(
    frontier: Frontier, num_tokens: float, drafting_ms: float, verify_ms: float
) -> float:
    """T_PSD = R max(t, V) / f(t), in ms; infinite where f(t) is 0."""
    check_number("verify_ms", verify_ms, 0.0)
    return _total(frontier, num_tokens, drafting_ms, max(drafting_ms, verify_ms))


def parallel_optimum_ms(verify_ms: float) -> float:
    """The t that minimises T_PSD: V, for every frontier.

    Up to V more drafting is free. Beyond it T_PSD is R t/f(t), and as f is concave with
    f(0) >= 0, f(t)/t only falls.
    """
    check_number("verify_ms", verify_ms, 0.0, low_open=True)
    return verify_ms


def _total(frontier: Frontier, num_tokens: float, drafting_ms: float, step_ms: float) -> float:
    check_number("num_tokens", num_tokens, 0.0)
    success = frontier.success_rate(drafting_ms)
    return num_tokens * step_ms / success if success else math.inf


def _concave_hull(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Upper hull of the points and (0, 0), up to the earliest point with the highest rate."""
    highest = max(rate for _, rate in points)
    end = min(time_ms for time_ms, rate in points if rate == highest)
    hull: list[tuple[float, float]] = [(0.0, 0.0)]
    for point in sorted(each for each in points if each[0] <= end):
        while len(hull) > 1 and _is_below(hull[-2], hull[-1], point):
            hull.pop()
        if point[0] == hull[-1][0]:
            hull.pop()
        hull.append(point)
    return tuple(hull)


def _is_below(
    left: tuple[float, float], middle: tuple[float, float], right: tuple[float, float]
) -> bool:
    """Whether `middle` is on or below the line from `left` to `right`."""
    rise = (right[1] - left[1]) * (middle[0] - left[0])
    return (middle[1] - left[1]) * (right[0] - left[0]) <= rise
