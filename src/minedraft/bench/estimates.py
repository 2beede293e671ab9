"""Medians over repeats, ratios, and 95 % intervals for both.

Owns the statistics; two methods, of which `choose_method` takes the one that can run here.
Ratios are handled as logarithms, so that A over B is the inverse of B over A.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import fmean, median, variance
from typing import Protocol

LEVEL = 0.95
_RESAMPLES = 2000

Interval = tuple[float, float]


class Method(Protocol):
    """How an interval is found; both take two values or more a sample."""

    @property
    def name(self) -> str:
        """The method in words, for the report."""
        ...

    def of(self, values: Sequence[float]) -> Interval:
        """For the middle of one sample."""
        ...

    def of_difference(self, above: Sequence[float], below: Sequence[float]) -> Interval:
        """For the middle of `above` less that of `below`, two independent samples."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Median of `count` values; `low` and `high` are None where there are too few."""

    middle: float
    low: float | None
    high: float | None
    count: int


class StudentT:
    """Student's t interval of the mean, Welch's for a difference; needs scipy."""

    name = "Student's t, of the mean (scipy)"

    def of(self, values: Sequence[float]) -> Interval:
        """See `Method`."""
        error2 = variance(values) / len(values)
        return _around(fmean(values), error2, len(values) - 1)

    def of_difference(self, above: Sequence[float], below: Sequence[float]) -> Interval:
        """See `Method`."""
        parts = [(variance(each) / len(each), len(each) - 1) for each in (above, below)]
        error2 = sum(part for part, _ in parts)
        weights = sum(part**2 / freedom for part, freedom in parts)
        freedom = error2**2 / weights if weights else float(len(above) + len(below) - 2)
        return _around(fmean(above) - fmean(below), error2, freedom)


class Bootstrap:
    """Percentile bootstrap of the median, from a fixed seed; needs nothing."""

    name = f"percentile bootstrap of the median, {_RESAMPLES} resamples (no scipy here)"

    def of(self, values: Sequence[float]) -> Interval:
        """See `Method`."""
        return _percentiles(lambda draw: median(draw(values)))

    def of_difference(self, above: Sequence[float], below: Sequence[float]) -> Interval:
        """See `Method`."""
        return _percentiles(lambda draw: median(draw(above)) - median(draw(below)))


def choose_method() -> Method:
    """Student's t where scipy is installed, else the bootstrap."""
    return StudentT() if find_spec("scipy") is not None else Bootstrap()


def estimate(values: Sequence[float], method: Method) -> Estimate | None:
    """The median and its interval; None without values."""
    if not values:
        return None
    low, high = method.of(values) if len(values) > 1 else (None, None)
    return Estimate(middle=median(values), low=low, high=high, count=len(values))


def estimate_paired_ratio(pairs: Sequence[tuple[float, float]], method: Method) -> Estimate | None:
    """Of the ratios first over second; pairs with a value that is not above 0 are left out."""
    logs = [math.log(a) - math.log(b) for a, b in pairs if a > 0 and b > 0]
    return _exp(estimate(logs, method))


def estimate_ratio(
    above: Sequence[float], below: Sequence[float], method: Method
) -> Estimate | None:
    """The ratio of the medians of two independent samples; values not above 0 are left out.

    `count` is the size of the smaller sample.
    """
    logs = [[math.log(each) for each in side if each > 0] for side in (above, below)]
    count = min(map(len, logs))
    if count == 0:
        return None
    low, high = method.of_difference(*logs) if count > 1 else (None, None)
    middle = median(logs[0]) - median(logs[1])
    return _exp(Estimate(middle=middle, low=low, high=high, count=count))


def _exp(logs: Estimate | None) -> Estimate | None:
    if logs is None:
        return None
    bounded = logs.low is not None and logs.high is not None
    return Estimate(
        middle=math.exp(logs.middle),
        low=math.exp(logs.low) if bounded else None,  # type: ignore[arg-type]
        high=math.exp(logs.high) if bounded else None,  # type: ignore[arg-type]
        count=logs.count,
    )


def _around(middle: float, error2: float, freedom: float) -> Interval:
    from scipy.stats import t

    reach = float(t.ppf(0.5 + LEVEL / 2, freedom)) * math.sqrt(error2)
    return middle - reach, middle + reach


_Draw = Callable[[Sequence[float]], list[float]]


def _percentiles(statistic: Callable[[_Draw], float]) -> Interval:
    dice = random.Random(0)
    found = sorted(
        statistic(lambda values: dice.choices(values, k=len(values))) for _ in range(_RESAMPLES)
    )
    cut = round(_RESAMPLES * (1 - LEVEL) / 2)
    return found[cut], found[-1 - cut]
