"""One request, as the simulated engine and the simulated drafter each see it.

Owns their counts of tokens; no text is simulated, only how many guesses of it are right.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from minedraft.simulator.lane import Lane, Span


@dataclass(slots=True, eq=False)
class SimRequest:
    """The engine's side. Times are ms of the simulation."""

    id: str
    arrival_ms: float
    num_prompt_tokens: int
    num_output_tokens: int
    num_final: int = 0
    """Prompt and output in the end."""
    num_tokens: int = 0
    """Prompt and output so far; the prompt to begin with."""
    num_computed: int = 0
    """Leading tokens whose KV is valid."""
    num_blocks: int = 0
    version: int = 0
    """Counts its lives: a preempted request begins another one."""
    first_token_ms: float | None = None
    finish_ms: float | None = None
    deliveries: list[tuple[float, int]] = field(default_factory=list)
    """When, and how many tokens; kept only where someone wants it."""
    draft: Draft | None = None
    """What it would be verified with now, if drafts are asked for."""
    drafted: DraftedSim | None = None
    """What the drafter knows of it."""
    is_flying: bool = False
    """Whether it is part of a step on the target."""

    def __post_init__(self) -> None:
        self.num_tokens = self.num_prompt_tokens
        self.num_final = self.num_prompt_tokens + self.num_output_tokens


class Draft(NamedTuple):
    """Guesses that continue a request of `length` tokens: how many, and how many are right."""

    length: int
    num_guesses: int
    num_right: int
    start_ms: float
    end_ms: float
    num_passes: int


@dataclass(slots=True, eq=False)
class DraftedSim:
    """The drafter's side of one life of a request; the rules are `drafter.request`'s."""

    request: SimRequest
    version: int
    order: int
    num_committed: int
    home: Lane
    """The lane of its engine."""
    lead: int = 0
    """Guesses to hold beyond those sent."""
    num_computed: int = 0
    num_guesses: int = 0
    num_right: int = -1
    """Of the chain that the guesses are the beginning of; -1: no chain has begun."""
    num_sent: int = 0
    num_blocks: int = 0
    lane: Lane | None = None
    """Where it is drafted in lockstep; until it leaves, the lane knows its guesses."""
    since: int = 0
    """The lane's turn less its guesses."""
    until: int = 0
    """The lane's turn with which it leaves."""
    spans: list[Span] = field(default_factory=list)
    """What was reported of it, and is not yet outdated at the other end; oldest first."""

    @property
    def length(self) -> int:
        """Committed tokens and guesses."""
        return self.num_committed + self.num_guesses

    @property
    def num_missing(self) -> int:
        """Tokens that a pass must take in before it yields the next guess."""
        return self.num_committed + self.num_guesses - self.num_computed

    def commit(self, num_tokens: int) -> None:
        """Take in tokens of the target: guesses that agree stay, others go with their KV."""
        agreed = self.num_right if self.num_right < self.num_guesses else self.num_guesses
        if agreed >= num_tokens:
            self.num_guesses -= num_tokens
            self.num_right -= num_tokens
        else:
            self.num_computed = min(self.num_computed, self.num_committed + max(0, agreed))
            self.num_guesses = 0
        self.num_committed += num_tokens
        self.num_sent = 0
        most_computed = self.num_committed + self.num_guesses - 1
        if self.num_computed > most_computed:
            self.num_computed = most_computed
        if self.num_guesses == 0:
            # What follows are guesses from a token that is known to be true.
            self.num_right = -1

    def forget_kv(self) -> None:
        """Note that the KV is gone."""
        self.num_computed = self.num_guesses = self.num_blocks = 0
        self.num_right = -1
