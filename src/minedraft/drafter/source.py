"""What a scheduler needs of the drafter, and the source of an engine that has none."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from minedraft.policies.base import DraftState
from minedraft.transport.messages import Draft, Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTerms:
    """What one request asks of the drafter."""

    limit: int | None = None
    """Most drafts at a time; None: the engine's k."""
    sampling: Sampling | None = None
    """How drafts are drawn; None: each is the most likely token."""
    cache_salt: str | None = None
    """See Add."""
    adapter: str | None = None
    """See Add."""


PLAIN_TERMS = RequestTerms()


@dataclass(frozen=True, slots=True)
class PassTimes:
    """When the drafter made some guesses: `num_passes` passes, ns by the drafter's clock."""

    start_ns: int
    end_ns: int
    num_passes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldDraft:
    """A draft that still holds, and the passes that made it, each once."""

    draft: Draft
    origins: tuple[PassTimes, ...]


@dataclass(slots=True, kw_only=True)
class DraftCounters:
    """What the drafter did so far."""

    tickets: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    stale_drafts: int = 0
    losses: int = 0
    """How often the drafter died, hung or broke the protocol."""
    returns: int = 0
    """How often it was started again and came back."""
    delays: int = 0
    """How often its answer took so long that requests went on without."""


class DraftSource(Protocol):
    """What a scheduler needs of a drafter, there or not."""

    @property
    def counters(self) -> DraftCounters:
        """See DrafterClient."""
        ...

    @property
    def available(self) -> bool:
        """See DrafterClient."""
        ...

    def follow(
        self, request_id: str, token_ids: Sequence[int], terms: RequestTerms = PLAIN_TERMS
    ) -> None:
        """See DrafterClient."""
        ...

    def commit(self, request_id: str, token_ids: Sequence[int]) -> None:
        """See DrafterClient."""
        ...

    def release(self, request_id: str) -> None:
        """See DrafterClient."""
        ...

    def ask(self, request_ids: Sequence[str]) -> None:
        """See DrafterClient."""
        ...

    def flush(self) -> None:
        """See DrafterClient."""
        ...

    def version(self, request_id: str) -> int | None:
        """See DrafterClient."""
        ...

    def follows(self, request_id: str) -> bool:
        """See DrafterClient."""
        ...

    def state(self, request_id: str) -> DraftState:
        """See DrafterClient."""
        ...

    def draft_of(self, request_id: str, committed_len: int) -> HeldDraft | None:
        """See DrafterClient."""
        ...

    def collect(self) -> None:
        """See DrafterClient."""
        ...

    def wait(self, request_ids: Collection[str], timeout_s: float) -> bool:
        """See DrafterClient."""
        ...

    def close(self) -> None:
        """See DrafterClient."""
        ...


class NoDrafter:
    """The client of an engine that decodes without drafts: it knows nothing and asks nothing."""

    def __init__(self) -> None:
        self._counters = DraftCounters()

    @property
    def counters(self) -> DraftCounters:
        """All zero."""
        return self._counters

    @property
    def available(self) -> bool:
        """Always False."""
        return False

    def follow(
        self, request_id: str, token_ids: Sequence[int], terms: RequestTerms = PLAIN_TERMS
    ) -> None:
        """Nothing to do."""

    def commit(self, request_id: str, token_ids: Sequence[int]) -> None:
        """Nothing to do."""

    def release(self, request_id: str) -> None:
        """Nothing to do."""

    def ask(self, request_ids: Sequence[str]) -> None:
        """Nothing to do."""

    def flush(self) -> None:
        """Nothing to do."""

    def version(self, request_id: str) -> int | None:
        """Always None."""
        return None

    def follows(self, request_id: str) -> bool:
        """Always True: nobody is treated apart where nobody is drafted."""
        return True

    def state(self, request_id: str) -> DraftState:
        """Always NONE."""
        return DraftState.NONE

    def draft_of(self, request_id: str, committed_len: int) -> HeldDraft | None:
        """Always None."""
        return None

    def collect(self) -> None:
        """Nothing to do."""

    def wait(self, request_ids: Collection[str], timeout_s: float) -> bool:
        """Nobody is awaited."""
        return True

    def close(self) -> None:
        """Nothing to do."""
