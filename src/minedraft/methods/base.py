"""What a drafter is to whoever writes one: four methods over tokens.

Owns the Protocol and what is handed to it; which drafter an engine has is `registry`'s. How
to write one: docs/add_a_drafter.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Needs(Enum):
    """What a drafter takes from the target."""

    TOKENS = "tokens"
    """The tokens of the requests, and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a drafter is told when it is made; lengths in tokens."""

    vocab_size: int
    """The target's: every draft token is below it."""
    max_model_len: int
    """The target's."""
    max_num_seqs: int
    """Most requests in one call."""
    num_speculative_tokens: int
    """k: drafts that are verified in a step. Ahead of the target more are wanted."""
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """One request to continue.

    `committed` (the prompt, and what the target decided) is followed by `guesses`, the drafter's
    own of before that nobody contradicted. Both are lists of the engine: to be read, not changed,
    nor kept.
    """

    request_id: str
    """Of one life of a request: where it comes back after `release`, all of it is new."""
    committed: Sequence[int]
    guesses: Sequence[int]
    num_prompt: int
    """Leading tokens that were committed when the drafter was first told of the request."""
    num_known: int
    """Leading tokens that the drafter was given before, less those rolled back."""
    num_wanted: int
    """Most tokens to continue with; 0: it is enough to take the new ones in."""

    @property
    def length(self) -> int:
        """Tokens of the whole text."""
        return len(self.committed) + len(self.guesses)

    @property
    def new_tokens(self) -> list[int]:
        """Those after the known ones."""
        split = len(self.committed)
        head = list(self.committed[self.num_known :])
        return head + list(self.guesses[max(0, self.num_known - split) :])

    def last(self, count: int) -> list[int]:
        """The last `count` tokens of the whole text, or all of a shorter one."""
        if len(self.guesses) >= count:
            return list(self.guesses[len(self.guesses) - count :])
        missing = count - len(self.guesses)
        return [*self.committed[-missing:], *self.guesses]


class Drafter(Protocol):
    """Continues texts. Calls come one at a time, in the drafter's own process.

    What a drafter raises ends its process: requests go on without drafts, the log has the
    reason, and it is started again, with a pause that grows.
    """

    def needs(self) -> Needs:
        """What it takes from the target; asked once."""
        ...

    def draft(self, texts: Sequence[Text]) -> Sequence[Sequence[int]]:
        """For each text the tokens that are likely to follow, the next one first.

        Up to `num_wanted`. After fewer, or none, it is asked again once the target has gone on.
        """
        ...

    def roll_back(self, request_id: str, length: int) -> None:
        """The target went another way: of this text the first `length` tokens still hold."""
        ...

    def release(self, request_id: str) -> None:
        """The request is over; one that was never drafted for is fine."""
        ...
