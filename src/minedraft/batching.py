"""The two batches: who is in which, and which is verified next.

Owns batch membership; it knows nothing of drafts, KV blocks or vLLM.
Implements: arXiv:2603.18016, "Batch Manager" (batch ids, balance, alternation), and the
repair of imbalance that the paper names as a limitation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Enum


class Batch(Enum):
    """Batch 0 or batch 1 of the paper."""

    ZERO = 0
    ONE = 1

    @property
    def other(self) -> Batch:
        """The batch that this one alternates with."""
        return Batch.ONE if self is Batch.ZERO else Batch.ZERO


class BatchManager:
    """Splits the decoding requests over two batches and alternates between them.

    Members keep the order in which they joined. Not thread-safe.
    """

    def __init__(self) -> None:
        self._zero: dict[str, None] = {}
        self._one: dict[str, None] = {}
        self._batch_of: dict[str, Batch] = {}
        self._next = Batch.ZERO

    def __len__(self) -> int:
        return len(self._batch_of)

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._batch_of

    def __iter__(self) -> Iterator[str]:
        return iter(self._batch_of)

    @property
    def balance(self) -> int:
        """|batch 1| - |batch 0|, as the paper counts it."""
        return self.size(Batch.ONE) - self.size(Batch.ZERO)

    @property
    def next_to_verify(self) -> Batch:
        """The batch whose turn it is; it may be empty."""
        return self._next

    def size(self, batch: Batch) -> int:
        """Number of requests in `batch`."""
        return len(self._of(batch))

    def members(self, batch: Batch) -> tuple[str, ...]:
        """Requests of `batch`, oldest member first."""
        return tuple(self._of(batch))

    def batch_of(self, request_id: str) -> Batch:
        """The batch of a request; KeyError if it was not admitted."""
        return self._batch_of[request_id]

    def admit(self, request_id: str, just_verified: Batch | None) -> Batch:
        """Assign a request that begins to decode and return its batch.

        It joins the batch that is drafted next: the one just verified (the paper's rule
        for later steps), or, while no step has verified one, the smaller batch (the
        paper's rule for the first step).

        Raises:
            ValueError: the request is in a batch already.
        """
        if request_id in self._batch_of:
            raise ValueError(f"request {request_id!r} is in batch {self._batch_of[request_id]}")
        batch = just_verified or (Batch.ZERO if self.balance >= 0 else Batch.ONE)
        self._put(request_id, batch)
        return batch

    def remove(self, request_id: str) -> None:
        """Forget a request that finished, was aborted or preempted; unknown ids are ignored."""
        batch = self._batch_of.pop(request_id, None)
        if batch is not None:
            del self._of(batch)[request_id]
        if not self._batch_of:
            self._next = Batch.ZERO

    def verified(self, batch: Batch) -> None:
        """Note that `batch` went to the verifier: it is the other one's turn."""
        self._next = batch.other

    def rebalance(self, movable: Collection[str]) -> list[str]:
        """Even the batches out, as far as requests in `movable` allow it.

        `movable` are requests that neither hold nor await drafts: moving one costs it at
        most one step without drafts. The newest members move first. Afterwards the sizes
        differ by at most one if enough of the larger batch could move.

        Returns:
            The requests that changed batch.
        """
        larger = Batch.ONE if self.balance > 0 else Batch.ZERO
        surplus = abs(self.balance) // 2
        allowed = set(movable)
        candidates = [each for each in reversed(self._of(larger)) if each in allowed]
        moved = candidates[:surplus]
        for request_id in moved:
            del self._of(larger)[request_id]
            self._put(request_id, larger.other)
        return moved

    def _put(self, request_id: str, batch: Batch) -> None:
        self._of(batch)[request_id] = None
        self._batch_of[request_id] = batch

    def _of(self, batch: Batch) -> dict[str, None]:
        return self._zero if batch is Batch.ZERO else self._one
