"""Where two modes are equally fast: break-even points and the map of winners.

Owns the search over closed forms; what a mode brings is `steady`'s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from minedraft.errors import ConfigError
from minedraft.theory.load import Load, Steady
from minedraft.theory.steady import CLOSED_FORMS, MAX_DRAFT_TOKENS, best_k
from minedraft.theory.times import PairTimes
from minedraft.validation import check_choice, check_int, check_number

_RELATIVE = 1e-12
_STEP = 0.02


@dataclass(frozen=True, slots=True)
class ScaledDraft:
    """Times with every draft pass `factor` times as long."""

    times: PairTimes
    factor: float

    def __post_init__(self) -> None:
        check_number("factor", self.factor, 0.0)

    def verify_ms(self, num_requests: float, num_tokens: float) -> float:
        """See PairTimes."""
        return self.times.verify_ms(num_requests, num_tokens)

    def draft_pass_ms(self, num_requests: float, num_tokens: float) -> float:
        """See PairTimes."""
        return self.factor * self.times.draft_pass_ms(num_requests, num_tokens)


def gain(first: Steady, second: Steady) -> float:
    """Throughput of `first` over that of `second`."""
    return first.tokens_per_s / second.tokens_per_s


def steady_of(mode: str, load: Load, k: int) -> Steady:
    """What a mode brings; ConfigError for an unknown one or a load that its form is not for."""
    check_choice("mode", mode, CLOSED_FORMS)
    return CLOSED_FORMS[mode].steady(load, k)


def break_even_factors(
    first: str, second: str, load: Load, k: int, low: float = 0.01, high: float = 100.0
) -> tuple[float, ...]:
    """By which factors draft passes may be longer or shorter for both modes to be equally fast.

    All places between `low` and `high`, rising, where the other one becomes the faster; two
    that are less than 2 % apart may be missed. Two batches have two such places against one:
    below, drafting is too short to be worth hiding, above, too long to be hidden.
    """
    check_number("low", low, 0.0, low_open=True)
    check_number("high", high, low, low_open=True)

    def is_ahead(factor: float) -> bool:
        scaled = replace(load, times=ScaledDraft(load.times, factor))
        return gain(steady_of(first, scaled, k), steady_of(second, scaled, k)) >= 1.0

    steps = math.ceil(math.log(high / low) / math.log1p(_STEP))
    grid = [low * (high / low) ** (step / steps) for step in range(steps + 1)]
    return tuple(
        _change(is_ahead, left, right)
        for left, right in pairwise(grid)
        if is_ahead(left) != is_ahead(right)
    )


def winners(
    loads: Mapping[tuple[float, int], Load], modes: Sequence[str], highest_k: int = 8
) -> dict[tuple[float, int], tuple[str, float]]:
    """For each cell the fastest mode at its own best k, and its gain over the next best one.

    Modes without a closed form in a cell do not take part in it; with one mode left the gain
    is infinite, and with none the cell is left out. Of modes that are equally fast the one that
    `modes` names first wins.

    Raises:
        ConfigError: an unknown mode, or `highest_k` is out of range.
    """
    check_int("highest_k", highest_k, 1, MAX_DRAFT_TOKENS)
    for mode in modes:
        check_choice("mode", mode, CLOSED_FORMS)
    found = {cell: _winner(load, modes, highest_k) for cell, load in loads.items()}
    return {cell: winner for cell, winner in found.items() if winner is not None}


def _winner(load: Load, modes: Sequence[str], highest_k: int) -> tuple[str, float] | None:
    found: list[tuple[float, str]] = []
    for mode in modes:
        try:
            found.append((best_k(CLOSED_FORMS[mode], load, highest_k)[1].tokens_per_s, mode))
        except ConfigError:
            continue
    if not found:
        return None
    (best, mode), *rest = sorted(found, key=lambda each: each[0], reverse=True)
    return mode, best / rest[0][0] if rest else math.inf


def _change(is_ahead: Callable[[float], bool], low: float, high: float) -> float:
    """Where `is_ahead` stops being what it is at `low`."""
    at_low = is_ahead(low)
    while high - low > _RELATIVE * high:
        middle = (low + high) / 2
        low, high = (middle, high) if is_ahead(middle) == at_low else (low, middle)
    return high
