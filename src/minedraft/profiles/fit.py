"""Times that rise with the size of a pass, fitted to measured points.

Owns the two forms and how they are fitted; a file with their numbers is `files`'.

Both are sums of terms with weights that are not negative, found by nonnegative least squares, so
that no noise can make a larger pass cheaper. The errors that are made small are relative ones:
the closed forms are about ratios, and a prompt takes many times longer than a step.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

import msgspec

from minedraft.emulation import LatencyModel
from minedraft.errors import ConfigError
from minedraft.profiles.points import Point
from minedraft.validation import check_number

_MOST = 1e9
_KNOT_STEP = 2.0
"""Knots are at least this factor apart: with one at every size, most sizes of a grid would be
those of one number of requests, and what is due to which could not be told."""
_SHORTEST_PASS_MS = 1e-3
"""In no time at all a simulated engine would run any number of passes."""

_Term = Callable[[Point], float]


class TimeFit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """fixed + per request + per token in the KV cache + a rising broken line in the tokens.

    The line is flat below the first knot; `slopes_ms[i]` is its rise per token from
    `knots[i]` to the next knot, the last one from there on.

    Raises:
        ConfigError: names the field, its value and what is allowed.
    """

    fixed_ms: float
    per_request_ms: float
    per_kv_token_ms: float
    knots: tuple[float, ...]
    slopes_ms: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("fixed_ms", "per_request_ms", "per_kv_token_ms"):
            check_number(name, getattr(self, name), 0.0, _MOST)
        if not self.knots or len(self.knots) != len(self.slopes_ms):
            raise ConfigError.bad_value(
                "knots", list(self.knots), f"one for each of {len(self.slopes_ms)} slopes_ms"
            )
        for at, knot in enumerate(self.knots):
            before = self.knots[at - 1] if at else 0.0
            check_number(f"knots[{at}]", knot, before, _MOST, low_open=True)
        for at, slope in enumerate(self.slopes_ms):
            check_number(f"slopes_ms[{at}]", slope, 0.0, _MOST)

    def pass_ms(self, num_tokens: float, num_requests: float, num_kv_tokens: float) -> float:
        """See minedraft.emulation.PassTimes."""
        return (
            self.fixed_ms
            + self.per_request_ms * num_requests
            + self.per_kv_token_ms * num_kv_tokens
            + self._tokens_ms(num_tokens)
        )

    def _tokens_ms(self, num_tokens: float) -> float:
        found_ms, end = 0.0, num_tokens
        # From the last knot that is reached: passes of a simulation are small ones mostly.
        for at in range(bisect_right(self.knots, num_tokens) - 1, -1, -1):
            found_ms += self.slopes_ms[at] * (end - self.knots[at])
            end = self.knots[at]
        return found_ms


def fit_times(points: Sequence[Point]) -> TimeFit:
    """The broken line that fits the points best.

    A fixed time of none is made 1 us.

    Raises:
        ConfigError: there is no point, or scipy is not installed.
    """
    _require_points(points)
    knots = _knots(points)
    ends = (*knots[1:], float("inf"))
    terms: list[_Term] = [
        lambda _: 1.0,
        lambda point: point.num_requests,
        lambda point: point.num_kv_tokens,
        *(_piece(start, end) for start, end in zip(knots, ends, strict=True)),
    ]
    fixed, per_request, per_kv_token, *slopes = _weights(points, terms)
    return TimeFit(
        fixed_ms=max(_SHORTEST_PASS_MS, fixed),
        per_request_ms=per_request,
        per_kv_token_ms=per_kv_token,
        knots=knots,
        slopes_ms=tuple(slopes),
    )


def fit_linear(points: Sequence[Point]) -> LatencyModel:
    """The linear model that fits the points best, as emulation takes it.

    A fixed time of none is made 1 us.

    Raises:
        ConfigError: there is no point, or scipy is not installed.
    """
    _require_points(points)
    terms: list[_Term] = [
        lambda _: 1.0,
        lambda point: point.num_tokens,
        lambda point: point.num_requests,
        lambda point: point.num_kv_tokens,
    ]
    fixed, per_token, per_request, per_kv_token = _weights(points, terms)
    return LatencyModel(
        fixed_ms=max(_SHORTEST_PASS_MS, fixed),
        per_token_ms=per_token,
        per_request_ms=per_request,
        per_kv_token_ms=per_kv_token,
    )


def require_scipy() -> None:
    """Raise ConfigError if scipy, which solves the fits, is not installed."""
    try:
        import scipy.optimize  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"minedraft: fitting a profile needs scipy ({error}); install minedraft[profile]"
        ) from error


def _require_points(points: Sequence[Point]) -> None:
    if not points:
        raise ConfigError.bad_value("points", [], "at least one point")


def _knots(points: Sequence[Point]) -> tuple[float, ...]:
    """Where the slope may change: at the measured sizes, but for the largest.

    Beyond it there is no point to fit a slope to: the last one goes on.
    """
    sizes: list[float] = []
    for size in sorted({point.num_tokens for point in points}):
        if not sizes or size >= _KNOT_STEP * sizes[-1]:
            sizes.append(size)
    return tuple(sizes[:-1]) or tuple(sizes)


def _piece(start: float, end: float) -> _Term:
    return lambda point: min(max(point.num_tokens - start, 0.0), end - start)


def _weights(points: Sequence[Point], terms: Sequence[_Term]) -> list[float]:
    """Weights >= 0 of the terms with the least sum of squared relative errors."""
    require_scipy()
    from scipy.optimize import nnls

    rows = [[term(point) / point.median_ms for term in terms] for point in points]
    # Columns of one size, since tokens in a cache and a constant are thousands apart.
    norms = [
        sum(value * value for value in column) ** 0.5 or 1.0 for column in zip(*rows, strict=True)
    ]
    scaled = [[value / norm for value, norm in zip(row, norms, strict=True)] for row in rows]
    found, _ = nnls(scaled, [1.0] * len(points))
    return [float(weight) / norm for weight, norm in zip(found, norms, strict=True)]
