"""How many guesses in a row are right: the simulator's acceptance models.

Owns the draw of one chain of guesses, from a token that the drafter knows to be true up to
its first wrong guess. Times and drafts are others'.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Protocol

from minedraft.theory import Acceptance
from minedraft.validation import check_number

_LONGEST = 1 << 14
ENDLESS = 1 << 40
"""Right guesses of a chain that never goes wrong."""


class ChainModel(Protocol):
    """Says how many guesses that follow one another are right."""

    def draw(self, rng: random.Random, k: int) -> int:
        """Right guesses before the first wrong one, for a new chain of drafts of k tokens."""
        ...


class PositionChains:
    """Each guess is right by its position: that of `Acceptance`.

    The token after k drafts is the target's, so that positions begin anew for the guess
    behind it, as in an emulated run (`drafter.emulated`).
    """

    def __init__(self, acceptance: Acceptance) -> None:
        self._acceptance = acceptance
        rates = set(acceptance.conditional)
        self._only_rate = rates.pop() if len(rates) == 1 else None
        self._rates: dict[int, list[float]] = {}
        """By k: the rates of a draft's positions and of the guess behind it."""

    def draw(self, rng: random.Random, k: int) -> int:
        """See ChainModel."""
        if self._only_rate is not None:
            return _geometric(rng, self._only_rate)
        rates = self._rates.get(k)
        if rates is None:
            rates = self._rates[k] = [self._acceptance.at(at) for at in range(1, k + 2)]
        right, draw = 0, rng.random
        while right <= _LONGEST:
            for rate in rates:
                if draw() >= rate:
                    return right
                right += 1
        return ENDLESS


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkovChains:
    """Text that is easy or hard by stretches: a guess is right with the rate of its stretch.

    After every token an easy stretch turns hard with `to_hard`, a hard one easy with
    `to_easy`. A chain begins in either by its share of the text. With equal rates, or with
    to_easy + to_hard = 1, guesses are independent.
    """

    easy: float
    hard: float
    to_hard: float
    to_easy: float

    def __post_init__(self) -> None:
        for name in ("easy", "hard"):
            check_number(f"acceptance.{name}", getattr(self, name), 0.0, 1.0)
        for name in ("to_hard", "to_easy"):
            check_number(f"acceptance.{name}", getattr(self, name), 0.0, 1.0, low_open=True)

    def draw(self, rng: random.Random, k: int) -> int:
        """See ChainModel."""
        is_easy = rng.random() < self.to_easy / (self.to_easy + self.to_hard)
        right = 0
        while rng.random() < (self.easy if is_easy else self.hard):
            right += 1
            if right > _LONGEST:
                return ENDLESS
            if rng.random() < (self.to_hard if is_easy else self.to_easy):
                is_easy = not is_easy
        return right


def _geometric(rng: random.Random, rate: float) -> int:
    """Successes before the first failure, from one draw."""
    if rate >= 1.0:
        return ENDLESS
    if rate <= 0.0:
        return 0
    return min(ENDLESS, int(math.log(1.0 - rng.random()) / math.log(rate)))
