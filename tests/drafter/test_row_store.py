"""Rows of a request are one run without a gap, bounded, and gone with the request."""

from __future__ import annotations

import pytest

from minedraft.drafter.row_store import RowStore
from minedraft.transport.row_ring import Rows

WIDTH = 2


def _rows(start: int, end: int, name: str = "r", version: int = 1) -> Rows:
    data = b"".join(bytes([at % 256, version]) for at in range(start, end))
    return Rows(name, version, start, end - start, data)


def _data(start: int, end: int, version: int = 1) -> bytes:
    return _rows(start, end, version=version).data


@pytest.fixture
def store() -> RowStore:
    return RowStore(WIDTH, max_bytes=10_000)


def test_rows_that_follow_make_one_run(store: RowStore) -> None:
    assert not store.add(_rows(0, 5))
    assert not store.add(_rows(5, 6))
    assert store.span("r@1") == (0, 6)
    assert store.take("r@1", 3, 6) == _data(3, 6)
    assert not store.add(_rows(6, 9))
    assert store.take("r@1", 5, 9) == _data(5, 9), "from one before the end of what was taken"


def test_rows_that_come_again_are_left_out(store: RowStore) -> None:
    """As after a preemption, when the target computes a prompt once more."""
    store.add(_rows(0, 5))
    assert not store.add(_rows(0, 3))
    assert not store.add(_rows(2, 8))
    assert store.span("r@1") == (0, 8)
    assert store.take("r@1", 0, 8) == _data(0, 8)


def test_a_gap_begins_a_new_run(store: RowStore) -> None:
    store.add(_rows(0, 5))
    assert store.add(_rows(7, 9)), "what was made of the first five is of no use"
    assert store.span("r@1") == (7, 9)
    with pytest.raises(KeyError, match="r@1"):
        store.take("r@1", 4, 9)


def test_a_first_row_behind_the_beginning_is_no_gap(store: RowStore) -> None:
    """The target found the prefix in its cache: nothing was made of it before."""
    assert not store.add(_rows(64, 70))
    assert store.span("r@1") == (64, 70)


def test_lives_of_one_request_are_apart(store: RowStore) -> None:
    store.add(_rows(0, 5, version=1))
    store.add(_rows(0, 3, version=2))
    assert store.take("r@2", 0, 3) == _data(0, 3, version=2)
    assert store.span("r@1") == (0, 5)


def test_restart_begins_with_what_is_kept(store: RowStore) -> None:
    store.add(_rows(0, 5))
    store.add(_rows(5, 9))
    store.take("r@1", 6, 9)
    store.restart("r@1")
    assert store.span("r@1") == (5, 9)
    store.take("r@1", 9, 9)
    store.restart("r@1")
    assert store.span("r@1") == (9, 9), "nothing is kept; the next row is the first"
    assert not store.add(_rows(9, 10))
    assert store.span("r@1") == (9, 10)


def test_nothing_is_kept_of_a_request_that_is_over(store: RowStore) -> None:
    store.add(_rows(0, 5))
    store.end("r@1")
    assert not store.add(_rows(5, 6)), "of a step that was still running"
    assert store.span("r@1") == (0, 0)
    assert len(store) == 0


def test_room_is_bounded() -> None:
    """What does not fit is a gap for what comes after it."""
    store = RowStore(WIDTH, max_bytes=10)
    store.add(_rows(0, 4))
    assert not store.add(_rows(4, 8))
    assert store.span("r@1") == (0, 4)
    store.end("r@1")
    assert not store.add(_rows(0, 5, name="other")), "there is room again"
    assert store.span("other@1") == (0, 5)


def test_requests_that_nothing_was_made_for_give_way() -> None:
    """Those without room in the drafter's pool must not end drafting for all."""
    store = RowStore(WIDTH, max_bytes=20)
    store.add(_rows(0, 6, name="waits"))
    store.add(_rows(0, 3, name="runs"), in_use={"runs@1"})
    assert not store.add(_rows(3, 6, name="runs"), in_use={"runs@1"})
    assert store.span("runs@1") == (0, 6)
    assert store.span("waits@1") == (6, 6)
    assert not store.add(_rows(6, 7, name="waits"), in_use={"runs@1"}), "it goes on from there"
    assert store.span("waits@1") == (6, 7)


def test_positions_that_are_never_drafted_for_are_left_out() -> None:
    store = RowStore(WIDTH, max_bytes=1000, end_position=8)
    store.add(_rows(0, 8))
    assert not store.add(_rows(8, 9))
    assert store.span("r@1") == (0, 8)


def test_strangers_are_bounded(store: RowStore) -> None:
    for number in range(1500):
        store.add(_rows(0, 1, name=f"r{number}"))
    assert len(store) <= 1025
    assert store.span("r1499@1") == (0, 1)
    assert store.span("r0@1") == (0, 0)
