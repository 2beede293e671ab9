"""One row for each request: the last that came, gone with the request."""

from __future__ import annotations

import pytest

from minedraft.drafter.latest_rows import LatestRows
from minedraft.transport.row_ring import Rows


def _rows(start: int, end: int, name: str = "r", version: int = 1) -> Rows:
    data = b"".join(bytes([at, version]) for at in range(start, end))
    return Rows(name, version, start, end - start, data)


@pytest.fixture
def latest() -> LatestRows:
    return LatestRows(row_bytes=2, most=3)


def test_the_last_row_is_kept(latest: LatestRows) -> None:
    latest.add(_rows(0, 5))
    assert latest.at("r@1", 4) == bytes([4, 1])
    assert latest.at("r@1", 3) is None, "no other row stands for it"
    latest.add(_rows(5, 6))
    assert latest.at("r@1", 4) is None
    assert latest.at("r@1", 5) == bytes([5, 1])
    latest.add(_rows(0, 2))
    assert latest.at("r@1", 1) == bytes([1, 1]), "the target computes it once more"
    assert latest.at("s@1", 1) is None


def test_lives_of_a_request_are_apart(latest: LatestRows) -> None:
    latest.add(_rows(0, 5))
    latest.add(_rows(0, 5, version=2))
    latest.end("r@1")
    assert latest.at("r@1", 4) is None
    assert latest.at("r@2", 4) == bytes([4, 2])


def test_what_comes_after_the_end_is_left_out(latest: LatestRows) -> None:
    latest.end("r@1")
    latest.add(_rows(0, 5))
    assert latest.at("r@1", 4) is None
    assert len(latest) == 0


def test_there_is_a_bound(latest: LatestRows) -> None:
    for name in "abcd":
        latest.add(_rows(0, 1, name))
    assert len(latest) == 3
    assert latest.at("a@1", 0) is None
    assert latest.at("d@1", 0) is not None


def test_ended_ones_are_remembered_for_a_while(latest: LatestRows) -> None:
    for number in range(5000):
        latest.end(f"{number}@1")
    latest.add(_rows(0, 1, "4999"))
    assert len(latest) == 0
