"""A toy draft model with a checked KV cache.

Owns the contract of a draft device, which it asserts at every call; it shares nothing with
the code under test but the rows it is given.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping, Sequence

from minedraft.drafter import DeviceInfo, DraftedRequest, Guess, Row

VOCAB = 50


def toy_next(tokens: Sequence[int]) -> int:
    """The toy model's next token: any change in the sequence changes it."""
    return zlib.crc32(b",".join(b"%d" % token for token in tokens)) % VOCAB


def greedy(tokens: Sequence[int], num: int) -> list[int]:
    """The next `num` tokens of the toy model after `tokens`."""
    sequence = list(tokens)
    for _ in range(num):
        sequence.append(toy_next(sequence))
    return sequence[len(tokens) :]


class ToyDevice:
    """Keeps, position by position, the token whose KV lies there, and trusts nobody."""

    def __init__(
        self,
        *,
        prefix_caching: bool = False,
        next_token: Callable[[Sequence[int]], int] = toy_next,
        **info: int,
    ) -> None:
        defaults = {
            "vocab_size": VOCAB,
            "max_model_len": 10_000,
            "max_num_batched_tokens": 100_000,
            "max_num_seqs": 1000,
            "num_kv_blocks": 100_000,
            "block_size": 4,
        }
        self.info = DeviceInfo(**(defaults | info))
        self.passes: list[dict[str, tuple[int, int]]] = []
        self.num_released = 0
        self._kv: dict[str, list[int]] = {}
        self._blocks: dict[str, int] = {}
        self._owners: dict[str, DraftedRequest] = {}
        self._next_token = next_token
        self._cache: set[tuple[int, ...]] | None = set() if prefix_caching else None

    @property
    def num_free_blocks(self) -> int:
        return self.info.num_kv_blocks - sum(self._blocks.values())

    def num_held_blocks(self, request: DraftedRequest) -> int:
        return self._blocks.get(request.key, 0)

    @property
    def holders(self) -> set[str]:
        """Keys of the requests that hold KV blocks."""
        return set(self._blocks)

    def num_ready(self, request: DraftedRequest) -> int:
        return request.length

    def take_in(self) -> Collection[str]:
        return ()

    def reserve(self, request: DraftedRequest, num_tokens: int, chunk: int) -> bool:
        assert chunk > 0
        assert request.committed
        assert num_tokens <= self.info.max_model_len
        known = request.key in self._owners
        assert self._owners.setdefault(request.key, request) is request, "KV of another life"
        if not known:
            assert request.num_computed == 0
            request.num_computed = self._num_cached(request)
        end = num_tokens
        if len(request.committed) - request.num_computed > chunk:
            end = request.num_computed + chunk
        need = self._num_blocks(end) - self._blocks.get(request.key, 0)
        full = self._num_blocks(len(request.committed)) if not known else 0
        if max(need, full) > self.num_free_blocks:
            if not known:
                del self._owners[request.key]
                request.num_computed = 0
            return False
        self._blocks[request.key] = self._blocks.get(request.key, 0) + max(0, need)
        if not known:
            self._kv[request.key] = request.tokens(0, request.num_computed)
        return True

    def run(self, rows: Sequence[Row]) -> Mapping[str, Sequence[Guess]]:
        assert rows
        assert len(rows) <= self.info.max_num_seqs
        assert sum(row.num_tokens for row in rows) <= self.info.max_num_batched_tokens
        assert len({row.request.key for row in rows}) == len(rows)
        self.passes.append({row.request.key: (row.start, row.end) for row in rows})
        for row in rows:
            self._feed(row)
        last = [row.request for row in rows if row.is_last]
        return {request.key: [Guess(self._next_token(self._kv[request.key]))] for request in last}

    def release(self, request: DraftedRequest) -> None:
        self.num_released += request.key in self._blocks
        for held in (self._owners, self._blocks, self._kv):
            held.pop(request.key, None)

    def close(self) -> None:
        self._blocks.clear()

    def _feed(self, row: Row) -> None:
        request, kv = row.request, self._kv[row.request.key]
        assert self._owners[request.key] is request
        assert row.start == request.num_computed
        assert row.start < row.end <= request.length
        assert row.end <= self.info.max_model_len
        assert row.end <= self._blocks[request.key] * self.info.block_size, "no room reserved"
        assert kv[: row.start] == request.tokens(0, row.start), "stale KV"
        kv[row.start :] = request.tokens(row.start, row.end)
        if self._cache is not None:
            size = self.info.block_size
            full = min(row.end, len(request.committed)) // size * size
            self._cache.update(tuple(kv[:end]) for end in range(size, full + 1, size))

    def _num_cached(self, request: DraftedRequest) -> int:
        size, num = self.info.block_size, 0
        if self._cache is not None:
            while (
                num + size < len(request.committed)
                and tuple(request.committed[: num + size]) in self._cache
            ):
                num += size
        return num

    def _num_blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self.info.block_size)
