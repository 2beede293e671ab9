"""Where a plan's times come from.

Owns the Protocol and the source of published figures; what a pass costs there is `hardware`'s.
A measured profile is a second class beside `DeviceSource`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from minedraft.hardware import Pair
from minedraft.theory import PairTimes


class Source(Protocol):
    """Times of a pair, for any length of its requests."""

    @property
    def title(self) -> str:
        """What the times are of and how far to trust them, in a line."""
        ...

    def times(self, context: float) -> PairTimes:
        """t and V with `context` tokens of each request in the KV caches."""
        ...


@dataclass(frozen=True, slots=True)
class DeviceSource:
    """Times from data sheets and model configurations: modelled, not measured."""

    pair: Pair

    @property
    def title(self) -> str:
        """See Source."""
        words = (
            f"{each.model.name} on {each.num_gpus} {each.gpu.name}"
            for each in (self.pair.target, self.pair.draft)
        )
        return f"{', drafted by '.join(words)}; times modelled from data sheets"

    def times(self, context: float) -> PairTimes:
        """See Source."""
        return replace(self.pair, context=context).linear_times
