"""What the drafter needs from the device that runs the draft model.

Owns the Protocol, the rows of a pass and the guesses that it yields; implementations are elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from minedraft.drafter.request import DraftedRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Tokens [start, end) of one request's sequence, to be fed in one pass."""

    request: DraftedRequest
    start: int
    end: int
    num_wanted: int = 1
    """Guesses that are of use if the row reaches the end; 0: it takes tokens in."""

    @property
    def num_tokens(self) -> int:
        """Tokens of the row."""
        return self.end - self.start

    @property
    def is_last(self) -> bool:
        """Whether the row reaches the end of the sequence, so that it yields a guess."""
        return self.end == self.request.length


@dataclass(frozen=True, slots=True)
class Guess:
    """A token that a pass yields for one row, and what it was drawn from.

    `candidate_ids` (int32) and `candidate_probs` (float32) are the row of Candidates for
    this token; both are empty if the token is the most likely one.
    """

    token_id: int
    candidate_ids: bytes = b""
    candidate_probs: bytes = b""
    confidence: float = 0.0
    """Natural logarithm of the highest probability, whichever token was taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """What the scheduler is told of the draft model; sizes in tokens and blocks."""

    vocab_size: int
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    num_kv_blocks: int
    block_size: int
    takes_hidden_states: bool = False
    """Whether it takes more of the target than tokens. That comes without a message, and what was
    computed for a guess does not hold once the target agreed with it."""
    renews_guesses: bool = False
    """Whether all guesses come from the last commit alone, so that those left after another one
    are worse than new ones."""


class DraftDevice(Protocol):
    """Runs passes of a draft model and keeps its KV cache."""

    info: DeviceInfo

    @property
    def num_free_blocks(self) -> int:
        """KV blocks that no request holds."""
        ...

    def num_held_blocks(self, request: DraftedRequest) -> int:
        """KV blocks that `request` holds."""
        ...

    def num_ready(self, request: DraftedRequest) -> int:
        """Leading tokens of the sequence that a pass could take in now; all of them, unless more
        than tokens must come from the target first."""
        ...

    def take_in(self) -> Collection[str]:
        """See what came from the target besides messages; before each pass is planned.

        Returns:
            Keys of requests whose KV is of no use any more.
        """
        ...

    def reserve(self, request: DraftedRequest, num_tokens: int, chunk: int) -> bool:
        """Make room for the KV of the first `num_tokens` tokens of the sequence.

        If more than `chunk` committed tokens have no valid KV, make room for the next
        `chunk` tokens only, never for more than `num_tokens`. May raise
        `request.num_computed`, but below `num_tokens`, when a cached prefix is found for a
        request that held no KV. Returns False if the pool has no room.
        """
        ...

    def run(self, rows: Sequence[Row]) -> Mapping[str, Sequence[Guess]]:
        """One pass over rows whose room is reserved; the next tokens by `request.key` for rows
        that reach the end of their sequence, drawn as `request.sampling` says.

        A model yields one token, also where none is wanted; another device as many of those
        wanted as it has. May set `request.is_exhausted`.
        """
        ...

    def release(self, request: DraftedRequest) -> None:
        """Free the KV of a request; a request that holds none is fine."""
        ...

    def close(self) -> None:
        """Free the device."""
        ...
