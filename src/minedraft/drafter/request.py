"""One request as the drafter sees it: committed tokens, guesses beyond them, valid KV.

Owns the catch-up after rejection and after full acceptance; it runs no model and holds
no block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from minedraft.transport.messages import Candidates, Sampling


@dataclass(slots=True, kw_only=True)
class DraftedRequest:
    """The token sequence is `committed` followed by `guesses`; lengths are in tokens."""

    request_id: str
    version: int
    order: int
    """Rank of arrival: when the KV pool is full, the newest gives way."""
    committed: list[int]
    num_given: int = 0
    """Tokens of `committed` when the request came."""
    limit: int | None = None
    """Most drafts at a time; None: as many as are wanted."""
    cache_salt: str | None = None
    adapter: str | None = None
    """Both as in Add."""
    sampling: Sampling | None = None
    """How guesses are drawn; None: each is the most likely token."""
    guesses: list[int] = field(default_factory=list)
    drawn_from: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Candidate ids and probabilities of each guess, if guesses are drawn."""
    confidences: list[float] = field(default_factory=list)
    """Of each guess; see Draft."""
    num_computed: int = 0
    """Leading tokens of the sequence whose KV is valid; always below the sequence's length."""
    num_fed: int = 0
    """Leading tokens that the device was fed and that still hold."""
    num_sent: int = 0
    """Guesses that were sent as drafts since the last commit."""
    lead: int = 0
    """How many guesses to hold beyond those sent."""
    is_reported: bool = False
    """Whether its guesses are reported after every pass, unasked."""
    is_exhausted: bool = False
    """Whether the device has no guess to offer before the next commit."""
    keeps_kv_of_guesses: bool = True
    """Whether the KV of a guess holds once the target agreed."""
    renews_guesses: bool = False
    """Whether a commit drops all guesses, also those that agree; see DeviceInfo."""
    is_over: bool = False
    """Whether it will never be drafted for again."""
    edits: int = 0
    """Changes with every commit that changes the sequence, so that a device knows when to look
    again; one that only confirms guesses does not."""

    @property
    def key(self) -> str:
        """Name of this life of the request: an id may come back with another version."""
        return f"{self.request_id}@{self.version}"

    @property
    def length(self) -> int:
        """Tokens of the whole sequence, guesses included."""
        return len(self.committed) + len(self.guesses)

    @property
    def num_missing(self) -> int:
        """Tokens that a pass must take in before it yields the next guess."""
        return self.length - self.num_computed

    def tokens(self, start: int, end: int) -> list[int]:
        """Tokens [start, end) of the sequence."""
        split = len(self.committed)
        head = self.committed[start:end] if start < split else []
        return head + self.guesses[max(0, start - split) : max(0, end - split)]

    def commit(self, token_ids: list[int]) -> None:
        """Append tokens that the target decided.

        Guesses that agree stay, with their KV (none do with `renews_guesses`); from the first
        that does not, all are dropped and their KV counts as invalid.
        """
        if not token_ids:
            return
        self.is_exhausted = False
        if not self.keeps_kv_of_guesses:
            self.num_computed = min(self.num_computed, len(self.committed))
        agreed = num_equal(token_ids, self.guesses)
        if agreed < len(token_ids):
            same = len(self.committed) + agreed
            self.num_computed, self.num_fed = min(self.num_computed, same), min(self.num_fed, same)
        is_right = agreed == len(token_ids) and not self.renews_guesses
        kept = agreed if is_right else len(self.guesses)
        self.guesses, self.drawn_from = self.guesses[kept:], self.drawn_from[kept:]
        self.confidences = self.confidences[kept:]
        self.committed.extend(token_ids)
        self.num_computed = min(self.num_computed, self.length - 1)
        self.num_sent = 0
        self.edits += not is_right

    def forget_kv(self) -> None:
        """Note that the KV is gone: the committed tokens must be computed again."""
        self.num_computed = self.num_fed = 0
        self.guesses, self.drawn_from, self.confidences = [], [], []

    def add_guess(
        self,
        token_id: int,
        candidate_ids: bytes = b"",
        candidate_probs: bytes = b"",
        confidence: float = 0.0,
    ) -> None:
        """Append the next guess, and what it was drawn from."""
        self.guesses.append(token_id)
        self.confidences.append(confidence)
        if self.sampling is not None:
            self.drawn_from.append((candidate_ids, candidate_probs))

    def candidates(self, count: int) -> Candidates | None:
        """Those of the first `count` guesses; None if guesses are not drawn, or there are none."""
        rows = self.drawn_from[:count]
        if not rows:
            return None
        ids, probs = (b"".join(each) for each in zip(*rows, strict=True))
        return Candidates(len(ids) // (4 * len(rows)), ids, probs)


def num_equal(one: Sequence[int], other: Sequence[int]) -> int:
    """How many leading tokens of two sequences are equal."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
