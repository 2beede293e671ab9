"""Starting a lost drafter again: the pauses, the time limit, and nothing left behind."""

from __future__ import annotations

from typing import Any

import pytest

from minedraft.drafter import Revival
from minedraft.drafter.revival import FIRST_PAUSE_S, LONGEST_PAUSE_S
from minedraft.errors import DrafterError

START_TIMEOUT_S = 100.0


class FakeStarting:
    """Ready when `connection` is set; fails when `error` is."""

    def __init__(self) -> None:
        self.connection: Any = None
        self.error: Exception | None = None
        self.is_killed = False
        self.process: Any = type("Process", (), {"poll": staticmethod(lambda: -9)})

    def poll(self, timeout_s: float = 0.0) -> Any:
        if self.error is not None:
            raise self.error
        return self.connection

    def kill(self) -> None:
        self.is_killed = True


class FakeLauncher:
    def __init__(self) -> None:
        self.started: list[FakeStarting] = []
        self.error: Exception | None = None

    def start(self, life: int) -> FakeStarting:
        if self.error is not None:
            raise self.error
        self.started.append(FakeStarting())
        return self.started[-1]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def launcher() -> FakeLauncher:
    return FakeLauncher()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def revival(launcher: Any, clock: Clock) -> Revival:
    return Revival(launcher, START_TIMEOUT_S, clock)


def _pause(revival: Revival, launcher: FakeLauncher, clock: Clock) -> float:
    """Seconds until the next start."""
    begin, count = clock.now, len(launcher.started)
    while len(launcher.started) == count:
        assert revival.poll() is None
        clock.now += 0.1
        assert clock.now - begin < 1000
    return clock.now - begin


@pytest.fixture
def lost(connection: Any) -> Any:
    connection.process.returncode = -9
    return connection


def test_it_comes_back_after_a_pause(
    revival: Revival, launcher: FakeLauncher, clock: Clock, lost: Any
) -> None:
    revival.begin(lost)
    assert _pause(revival, launcher, clock) == pytest.approx(FIRST_PAUSE_S, abs=0.2)
    assert lost.num_closed == 1
    assert revival.poll() is None
    launcher.started[0].connection = ready = object()
    assert revival.poll() is ready


def test_nothing_is_started_while_the_old_process_lives(
    revival: Revival, launcher: FakeLauncher, clock: Clock, connection: Any
) -> None:
    revival.begin(connection)
    clock.now += 100
    assert revival.poll() is None
    assert launcher.started == []
    assert connection.num_closed == 0
    connection.process.returncode = -9
    assert revival.poll() is None
    assert len(launcher.started) == 1


def test_pauses_double_until_it_is_proven(
    revival: Revival, launcher: FakeLauncher, clock: Clock, lost: Any
) -> None:
    revival.begin(lost)
    pauses = []
    for _ in range(12):
        pauses.append(_pause(revival, launcher, clock))
        launcher.started[-1].error = DrafterError("no")
        assert revival.poll() is None
    assert pauses[:4] == pytest.approx([FIRST_PAUSE_S * 2**n for n in range(4)], abs=0.2)
    assert pauses[-3:] == pytest.approx([LONGEST_PAUSE_S] * 3, abs=0.2)
    _pause(revival, launcher, clock)
    launcher.started[-1].connection = object()
    assert revival.poll() is not None
    revival.proven()
    revival.begin(lost)
    assert _pause(revival, launcher, clock) == pytest.approx(FIRST_PAUSE_S, abs=0.2)


def test_a_start_that_takes_too_long_is_killed(
    revival: Revival, launcher: FakeLauncher, clock: Clock, lost: Any
) -> None:
    revival.begin(lost)
    _pause(revival, launcher, clock)
    clock.now += START_TIMEOUT_S - 1
    assert revival.poll() is None
    assert not launcher.started[0].is_killed
    clock.now += 2
    assert revival.poll() is None
    assert launcher.started[0].is_killed
    _pause(revival, launcher, clock)
    assert len(launcher.started) == 2


def test_one_that_is_slow_to_die_is_waited_for_without_blocking(
    revival: Revival, launcher: FakeLauncher, clock: Clock, lost: Any
) -> None:
    revival.begin(lost)
    _pause(revival, launcher, clock)
    launcher.started[0].process.poll = lambda: None
    launcher.started[0].error = DrafterError("out of memory")
    for _ in range(100):
        clock.now += 1
        assert revival.poll() is None
    assert launcher.started[0].is_killed
    assert len(launcher.started) == 1
    launcher.started[0].process.poll = lambda: -9
    assert revival.poll() is None
    assert len(launcher.started) == 2


def test_a_program_that_cannot_be_started_is_tried_again(
    revival: Revival, launcher: FakeLauncher, clock: Clock, lost: Any
) -> None:
    revival.begin(lost)
    launcher.error = DrafterError("no such program")
    clock.now += 1
    assert revival.poll() is None
    launcher.error = None
    assert _pause(revival, launcher, clock) == pytest.approx(2 * FIRST_PAUSE_S, abs=0.2)


def test_close_leaves_nothing(
    revival: Revival, launcher: FakeLauncher, clock: Clock, lost: Any
) -> None:
    revival.begin(lost)
    revival.close()
    assert lost.num_closed == 1
    revival = Revival(launcher, START_TIMEOUT_S, clock)  # type: ignore[arg-type]
    revival.begin(lost)
    _pause(revival, launcher, clock)
    revival.close()
    assert launcher.started[0].is_killed
