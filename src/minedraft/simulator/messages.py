"""What a simulated engine and its drafter tell one another.

Owns the words; how long they are under way is the link's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from minedraft.simulator.request import Draft, SimRequest

Answer = list[tuple[SimRequest, int, Draft]]
"""Drafts by request and version."""
Lives = tuple[tuple[SimRequest, int], ...]
"""Requests with the version that is meant."""
Reply = Callable[[Answer, Lives], None]
"""Takes an answer to the engine that follows the requests, with all for which it was asked."""


@dataclass(slots=True, kw_only=True)
class Update:
    """What an engine tells its drafter in one message; requests go with their version."""

    releases: list[tuple[SimRequest, int]] = field(default_factory=list)
    adds: list[tuple[SimRequest, int, int]] = field(default_factory=list)
    """With their length."""
    commits: list[tuple[SimRequest, int, int]] = field(default_factory=list)
    """With the number of new tokens."""
    wants: list[Lives] = field(default_factory=list)

    @property
    def num_requests(self) -> int:
        """Requests named."""
        wanted = sum([len(each) for each in self.wants])
        return len(self.releases) + len(self.adds) + len(self.commits) + wanted

    @property
    def num_tokens(self) -> int:
        """Token ids that travel."""
        return sum([each[2] for each in self.adds]) + sum([each[2] for each in self.commits])
