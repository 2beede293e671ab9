"""A simulated drafter's work: groups to draft, and the passes that it takes.

Owns the data; what is done next is the drafter's decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minedraft.simulator.lane import Lane
from minedraft.simulator.messages import Lives, Reply
from minedraft.simulator.request import DraftedSim


@dataclass(slots=True)
class Ticket:
    """A group of requests to draft, and how far that is."""

    asked: Lives
    members: list[DraftedSim]
    reply: Reply
    lane: Lane
    declined: set[DraftedSim]
    start_ms: float | None = None
    num_passes: int = 0


@dataclass(slots=True, eq=False)
class Pass:
    """Lanes that take part with one token of each member, and what comes on top of that.

    Others like it may follow at once, without what comes on top.
    """

    lanes: Sequence[Lane]
    ticket: Ticket | None = None
    num_rows: int = 0
    num_tokens: int = 0
    num_kv_tokens: int = 0
    start_ms: float = 0.0
    ends_ms: Sequence[float] = ()
    """Of this pass, and of those that follow."""
