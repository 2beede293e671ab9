"""Where a plan's times come from.

Owns the Protocol and its two sources: published figures, and a measured profile. What a pass
costs there is `hardware`'s and `profiles`'.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from minedraft.hardware import Pair
from minedraft.profiles import Profile
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


@dataclass(frozen=True, slots=True)
class ProfileSource:
    """Times that `minedraft profile` measured."""

    profile: Profile

    @property
    def title(self) -> str:
        """See Source."""
        profile = self.profile
        words = (
            f"{profile.target_model} on {profile.target_device}",
            f"{profile.draft_model} on {profile.draft_device}",
        )
        return f"{', drafted by '.join(words)}; times measured"

    def times(self, context: float) -> PairTimes:
        """See Source; ConfigError beyond twice the longest context measured."""
        return self.profile.times(context)
