"""Rows arrive whole and in order, or not at all and counted; nobody waits."""

from __future__ import annotations

import multiprocessing
import os
import random
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minedraft.errors import DrafterError
from minedraft.transport.row_ring import RowReader, RowRing, Rows, RowWriter

ROW = 24


@pytest.fixture
def ring() -> Iterator[RowRing]:
    made = RowRing(4096, ROW)
    yield made
    made.close()


def _data(start: int, count: int) -> bytes:
    return b"".join(struct.pack("<QQQ", at, at * at, 7) for at in range(start, start + count))


def _send(writer: RowWriter, name: str, start: int, count: int, version: int = 1) -> int:
    return writer.write(name, version, start, memoryview(_data(start, count)))


def test_rows_arrive(ring: RowRing) -> None:
    writer, reader = RowWriter(ring.path), RowReader(ring.path)
    assert _send(writer, "first", 5, 3) == 3
    assert _send(writer, "sécond", 0, 1, version=9) == 1
    assert list(reader.read()) == [
        Rows("first", 1, 5, 3, _data(5, 3)),
        Rows("sécond", 9, 0, 1, _data(0, 1)),
    ]
    assert list(reader.read()) == []


def test_what_has_no_room_is_dropped_and_counted(ring: RowRing) -> None:
    writer, reader = RowWriter(ring.path), RowReader(ring.path)
    total = 0
    while _send(writer, "r", total, 10) == 10:
        total += 10
    got = sum(rows.count for rows in reader.read())
    assert 4096 // ROW // 2 < total <= got < 4096 // ROW
    assert writer.num_dropped == reader.num_dropped == total + 10 - got
    assert _send(writer, "r", 0, 10) == 10, "there is room again"


def test_more_rows_than_there_is_memory_fill_it(ring: RowRing) -> None:
    writer, reader = RowWriter(ring.path), RowReader(ring.path)
    sent = _send(writer, "r", 0, 1000)
    assert 4096 // ROW // 2 < sent < 1000
    got = list(reader.read())
    assert b"".join(rows.data for rows in got) == _data(0, sent)
    assert writer.num_dropped == 1000 - sent


def test_room_for_two_full_steps_of_one_request() -> None:
    """What `HeadRows.make_ring` promises, wherever the ring stands."""
    rows, size = 64, 768
    ring = RowRing(2 * rows * size * 9 // 8, size)
    writer, reader = RowWriter(ring.path), RowReader(ring.path)
    for step in range(20):
        for half in (0, 1):
            data = memoryview(bytes(rows * size))
            assert writer.write("request", 1, (2 * step + half) * rows, data) == rows
        assert sum(each.count for each in reader.read()) == 2 * rows
    ring.close()
    ring.close()


def test_what_was_written_can_be_given_up(ring: RowRing) -> None:
    writer, reader = RowWriter(ring.path), RowReader(ring.path)
    _send(writer, "old", 0, 5)
    reader.skip()
    assert list(reader.read()) == []


def test_a_new_reader_begins_with_what_comes(ring: RowRing) -> None:
    writer = RowWriter(ring.path)
    RowReader(ring.path)
    _send(writer, "old", 0, 5)
    reader = RowReader(ring.path)
    _send(writer, "new", 0, 5)
    assert [rows.request_id for rows in reader.read()] == ["new"]


def test_odd_bytes_are_refused(ring: RowRing) -> None:
    with pytest.raises(ValueError, match="whole rows of 24"):
        RowWriter(ring.path).write("r", 1, 0, memoryview(b"1234"))


def test_no_ring_is_refused(tmp_path: object) -> None:
    with pytest.raises(DrafterError, match="cannot be opened"):
        RowReader("/nowhere/at/all")
    fd = os.memfd_create("other")
    os.truncate(fd, 8192)
    with pytest.raises(DrafterError, match="no rows of this version"):
        RowReader(f"/proc/{os.getpid()}/fd/{fd}")
    os.close(fd)


def test_nonsense_is_refused(ring: RowRing) -> None:
    writer, reader = RowWriter(ring.path), RowReader(ring.path)
    _send(writer, "r", 0, 3)
    writer._lengths[3] = 10**9
    with pytest.raises(DrafterError, match="make no sense"):
        list(reader.read())


@pytest.mark.parametrize("length", [1 << 63, (1 << 63) | 64, (1 << 63) | (1 << 40)])
def test_a_gap_that_is_none_is_refused(ring: RowRing, length: int) -> None:
    writer, reader = RowWriter(ring.path), RowReader(ring.path)
    _send(writer, "r", 0, 3)
    writer._lengths[0] = length
    with pytest.raises(DrafterError, match="makes no sense"):
        list(reader.read())


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.text(max_size=30), st.integers(0, 200)), max_size=60))
def test_any_course_of_writing_and_reading(course: list[tuple[bool, str, int]]) -> None:
    """What was said to be written is what arrives, around the end of the memory too."""
    ring = RowRing(4096, ROW)
    writer, reader = RowWriter(ring.path), RowReader(ring.path)
    sent: list[tuple[str, int]] = []
    got: list[tuple[str, int]] = []
    dropped = 0

    def read() -> None:
        for rows in reader.read():
            assert rows.data == _data(rows.start, rows.count)
            got.extend((rows.request_id, at) for at in range(rows.start, rows.end))

    for is_read, name, count in course:
        if is_read:
            read()
            continue
        written = _send(writer, name, 0, count)
        dropped += count - written
        sent += [(name, at) for at in range(written)]
    read()
    assert got == sent
    assert writer.num_dropped == dropped
    for side in (writer, reader):
        side.close()
    ring.close()


def _write_much(path: str, total: int) -> None:
    writer, rng, at = RowWriter(path), random.Random(1), 0
    while at < total:
        at += _send(writer, "r", at, min(rng.randint(1, 50), total - at))


def test_two_processes_at_full_speed() -> None:
    """No row is torn, lost or doubled while one process writes and another reads."""
    total = 200_000
    ring = RowRing(1 << 16, ROW)
    reader = RowReader(ring.path)
    process = multiprocessing.get_context("fork").Process(
        target=_write_much, args=(ring.path, total)
    )
    process.start()
    at = 0
    while at < total and (process.is_alive() or process.exitcode == 0):
        for rows in reader.read():
            assert rows.start == at
            assert rows.data == _data(at, rows.count)
            at = rows.end
    process.join()
    assert at == total
    ring.close()
