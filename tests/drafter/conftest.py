"""The toy draft model, and the two ends of a connection in memory.

Owns the fakes; what is asserted of the code under test stands in the test files.
"""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from minedraft.drafter import DraftBook
from minedraft.transport.messages import Drafts, Update
from toy_device import ToyDevice, greedy


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
    monkeypatch.setattr("minedraft.clock.time", clock)
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
