"""A toy draft model with a checked KV cache, and the two ends of a connection in memory.

Owns the fakes; what is asserted of the code under test stands in the test files, but for
the contract of the device, which the toy asserts at every call.
"""

from __future__ import annotations

import subprocess
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from minedraft.drafter import DeviceInfo, DraftBook, DraftedRequest, Guess, Row
from minedraft.transport.messages import Drafts, Update

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

    def __init__(self, *, prefix_caching: bool = False, **info: int) -> None:
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

    def run(self, rows: Sequence[Row]) -> Mapping[str, Guess]:
        assert rows
        assert len(rows) <= self.info.max_num_seqs
        assert sum(row.num_tokens for row in rows) <= self.info.max_num_batched_tokens
        assert len({row.request.key for row in rows}) == len(rows)
        self.passes.append({row.request.key: (row.start, row.end) for row in rows})
        for row in rows:
            self._feed(row)
        last = [row.request for row in rows if row.is_last]
        return {request.key: Guess(toy_next(self._kv[request.key])) for request in last}

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


def run_passes(book: DraftBook, device: ToyDevice, most: int = 10_000) -> int:
    """Up to `most` passes, until there is nothing to do; returns how many."""
    for number in range(most):
        rows = book.next_pass(number)
        if not rows:
            return number
        book.record(rows, device.run(rows), number)
    return most


class FakeClock:
    """Stands in for the module `time`: it moves only when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def monotonic_ns(self) -> int:
        return round(self.now * 1e9)


@dataclass(slots=True, kw_only=True)
class FakeChannel:
    """The scheduler's end: what was sent, and what there is to receive.

    `inbox` holds messages, exceptions to raise, and callables that make either. With an
    empty inbox `receive` lets the clock run through its timeout.
    """

    clock: FakeClock
    sent: list[Any] = field(default_factory=list)
    inbox: deque[Any] = field(default_factory=deque)
    send_error: Exception | None = None

    def send(self, message: Any) -> None:
        if self.send_error is not None:
            raise self.send_error
        self.sent.append(message)

    def receive(self, timeout_s: float = 0.0) -> Any:
        if not self.inbox:
            self.clock.now += timeout_s
            return None
        item = self.inbox.popleft()
        item = item() if callable(item) else item
        if isinstance(item, Exception):
            raise item
        return item

    def close(self) -> None:
        self.sent.append("closed")


@dataclass(slots=True, kw_only=True)
class FakeProcess:
    returncode: int | None = None


@dataclass(slots=True, kw_only=True)
class FakeConnection:
    """As a Connection, without a process."""

    channel: FakeChannel
    process: FakeProcess = field(default_factory=FakeProcess)
    num_closed: int = 0
    is_killed: bool = False

    def is_alive(self) -> bool:
        return self.process.returncode is None

    def kill(self) -> None:
        self.is_killed = True

    def close(self) -> None:
        self.num_closed += 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The client's clock."""
    clock = FakeClock()
    monkeypatch.setattr("minedraft.drafter.client.time", clock)
    return clock


@pytest.fixture
def connection(clock: FakeClock) -> FakeConnection:
    return FakeConnection(channel=FakeChannel(clock=clock))


@pytest.fixture(scope="session")
def new_connection() -> Callable[[], FakeConnection]:
    """A fresh connection with a clock that nobody reads, for many examples in one test."""
    return lambda: FakeConnection(channel=FakeChannel(clock=FakeClock()))


@pytest.fixture(scope="session")
def toy_device() -> type[ToyDevice]:
    return ToyDevice


@pytest.fixture(scope="session")
def toy_greedy() -> Callable[[Sequence[int], int], list[int]]:
    return greedy


@pytest.fixture(scope="session")
def drain() -> Callable[..., int]:
    return run_passes


@pytest.fixture(scope="session")
def serve() -> Callable[[DraftBook, ToyDevice, Iterable[Update]], list[Drafts]]:
    """Apply updates, run until idle, and return the answers."""

    def run(book: DraftBook, device: ToyDevice, updates: Iterable[Update]) -> list[Drafts]:
        for update in updates:
            book.apply(update, 0)
        run_passes(book, device)
        return book.take_answers()

    return run


@pytest.fixture
def spawn() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start Python code in a process; killed at the end of the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(code: str, *args: str, **options: Any) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, "-c", code, *args], **options))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
