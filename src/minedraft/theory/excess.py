"""The equation behind Theorem 1, solved to the last digits for every size of its right side.

Owns e^x - 1 - x and its positive inverse; it knows no frontier.
"""

from __future__ import annotations

import math
import sys

from minedraft.validation import check_number

_SERIES_BELOW = 0.5
_LARGEST_X = math.log(sys.float_info.max)
_MAX_STEPS = 64


def excess(x: float) -> float:
    """e^x - 1 - x for x >= 0, without the cancellation near 0."""
    check_number("x", x, 0.0)
    if x >= _SERIES_BELOW:
        return math.expm1(x) - x
    term, total, n = x * x / 2, 0.0, 2
    while total + term != total:
        total += term
        n += 1
        term *= x / n
    return total


def positive_root_of_excess(y: float) -> float:
    """The x > 0 with e^x - 1 - x = y, for y > 0.

    In closed form -W_{-1}(-e^{-(1 + y)}) - 1 - y. Newton's method from above: the function is
    convex, so that it falls towards the root without passing it.
    """
    check_number("y", y, 0.0, low_open=True)
    # Both bounds are above the root: e^x - 1 - x >= x^2/2, and z >= log(2z) for z = 1 + y.
    x = min(math.sqrt(2 * y), math.log(2) + math.log1p(y), _LARGEST_X)
    for _ in range(_MAX_STEPS):
        step = (excess(x) - y) / math.expm1(x)
        if not step > 0 or x - step == x:
            return x
        x -= step
    return x
