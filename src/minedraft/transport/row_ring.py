"""Hidden-state rows from the target's worker to the drafter, through memory that both map.

Owns the bytes in between: one writer, one reader, one host. What a row holds is its users'.
The writer never waits and never overruns the reader: rows for which there is no room are
dropped and counted.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass

from minedraft.errors import DrafterError

_MAGIC = 0x6D645F726F777331  # "md_rows1"
_HEADER = 4096
_MAGIC_AT, _CAPACITY_AT, _ROW_AT, _HEAD_AT, _TAIL_AT, _DROPPED_AT = 0, 1, 2, 8, 16, 24
"""Places of 64-bit words; head and tail are on cache lines of their own."""
_SKIP = 1 << 63
"""Marks the length of what is left free at the end of the memory."""
_PIECES = 32
_FIXED = 5 * 8
"""Length, version, first position, number of rows, length of the name; each a 64-bit word."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one request at positions [start, start + count) of its sequence.

    Of the life of a request that `version` names. `data` are `count` rows of `row_bytes` each,
    in order.
    """

    request_id: str
    version: int
    start: int
    count: int
    data: bytes

    @property
    def end(self) -> int:
        """The position after the last row."""
        return self.start + self.count


class RowRing:
    """The memory, kept for as long as its owner lives: no file is left behind by any end.

    `capacity` in bytes, of which the system gives what is written to. Others open it by `path`,
    while the owner lives.
    """

    def __init__(self, capacity: int, row_bytes: int) -> None:
        self._fd = os.memfd_create("minedraft-rows")
        self._close = weakref.finalize(self, os.close, self._fd)
        capacity = -(-max(capacity, _FIXED + 8) // mmap.PAGESIZE) * mmap.PAGESIZE
        os.truncate(self._fd, _HEADER + capacity)
        with mmap.mmap(self._fd, _HEADER) as memory, memoryview(memory).cast("Q") as words:
            words[_CAPACITY_AT], words[_ROW_AT] = capacity, row_bytes
            words[_MAGIC_AT] = _MAGIC

    @property
    def path(self) -> str:
        """Under which processes of the same user find it."""
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    def close(self) -> None:
        """Give the memory up; who has it open keeps it. Safe to call again."""
        self._close()


class _Side:
    """What writer and reader have in common: the mapped memory."""

    def __init__(self, path: str) -> None:
        try:
            with open(path, "r+b") as file:
                self._memory = mmap.mmap(file.fileno(), 0)
        except (OSError, ValueError) as error:
            raise DrafterError(
                f"minedraft: the rows at {path} cannot be opened: {error}"
            ) from error
        self._words = memoryview(self._memory)[:_HEADER].cast("Q")
        self.capacity = self._words[_CAPACITY_AT]
        self.row_bytes = self._words[_ROW_AT]
        if self._words[_MAGIC_AT] != _MAGIC or len(self._memory) != _HEADER + self.capacity:
            raise DrafterError(f"minedraft: {path} holds no rows of this version of minedraft")
        self._data = memoryview(self._memory)[_HEADER:]
        self._lengths = self._data.cast("Q")
        self._fence = threading.Lock()

    @property
    def num_dropped(self) -> int:
        """Rows that were not written for lack of room."""
        return int(self._words[_DROPPED_AT])

    def _publish(self, at: int, value: int) -> None:
        """Let the other side see what was done up to here."""
        # Python has no fence; taking a lock is one, which processors other than x86 need.
        with self._fence:
            pass
        self._words[at] = value

    def _seen(self, at: int) -> int:
        value = int(self._words[at])
        with self._fence:
            pass
        return value

    def close(self) -> None:
        """Unmap the memory."""
        for view in (self._lengths, self._data, self._words):
            view.release()
        self._memory.close()


class RowWriter(_Side):
    """The target's end."""

    def write(self, request_id: str, version: int, start: int, data: memoryview) -> int:
        """Write the rows that `data` holds (whole rows, contiguous); how many were written.

        The rest is dropped: a row without those before it is of no use to anyone.
        """
        data = data.cast("B")
        count, odd = divmod(len(data), self.row_bytes)
        if odd:
            raise ValueError(f"{len(data)} bytes are no whole rows of {self.row_bytes}")
        # Pieces, so that many rows fill the memory to its end.
        piece = max(1, self.capacity // _PIECES // self.row_bytes)
        done = 0
        while done < count:
            taken = min(piece, count - done)
            part = data[done * self.row_bytes : (done + taken) * self.row_bytes]
            if not self._write_one(request_id.encode(), version, start + done, taken, part):
                self._words[_DROPPED_AT] += count - done
                break
            done += taken
        return done

    def _write_one(
        self, name: bytes, version: int, start: int, count: int, data: memoryview
    ) -> bool:
        length = _FIXED + _padded(len(name)) + _padded(len(data))
        head = int(self._words[_HEAD_AT])
        room = self.capacity - (head - self._seen(_TAIL_AT))
        at = head % self.capacity
        skipped = self.capacity - at if at + length > self.capacity else 0
        if length + skipped > room or room > self.capacity:
            return False
        if skipped:
            self._lengths[at // 8] = _SKIP | skipped
            at = 0
        word = at // 8
        self._lengths[word : word + 5] = _words(length, version, start, count, len(name))
        at += _FIXED
        self._data[at : at + len(name)] = name
        at += _padded(len(name))
        self._data[at : at + len(data)] = data
        self._publish(_HEAD_AT, head + skipped + length)
        return True


class RowReader(_Side):
    """The drafter's end; it begins with what is written from now on."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.skip()

    def skip(self) -> None:
        """Give up what was written so far."""
        self._publish(_TAIL_AT, int(self._words[_HEAD_AT]))

    def read(self) -> Iterator[Rows]:
        """What was written since, oldest first; room is given back piece by piece.

        Raises:
            DrafterError: what is there makes no sense.
        """
        tail, head = int(self._words[_TAIL_AT]), self._seen(_HEAD_AT)
        while tail < head:
            at = tail % self.capacity
            length = self._lengths[at // 8]
            if length & _SKIP:
                length &= ~_SKIP
                if length != self.capacity - at:
                    raise DrafterError(f"minedraft: a gap of {length} bytes at {at} makes no sense")
                tail += length
                continue
            rows = self._rows(at, length, head - tail)
            tail += length
            self._publish(_TAIL_AT, tail)
            yield rows
        if tail != head:
            raise DrafterError(f"minedraft: rows end at {head}, and one of them at {tail}")
        self._publish(_TAIL_AT, tail)

    def _rows(self, at: int, length: int, most: int) -> Rows:
        word = at // 8
        _, version, start, count, name_length = self._lengths[word : word + 5]
        size = count * self.row_bytes
        if length > min(most, self.capacity - at) or length != _FIXED + _padded(
            name_length
        ) + _padded(size):
            raise DrafterError(f"minedraft: rows of {length} bytes at {at} make no sense")
        at += _FIXED
        name = bytes(self._data[at : at + name_length]).decode(errors="replace")
        at += _padded(name_length)
        return Rows(name, version, start, count, bytes(self._data[at : at + size]))


def _padded(length: int) -> int:
    return -(-length // 8) * 8


def _words(*values: int) -> memoryview:
    return memoryview(b"".join(each.to_bytes(8, "little") for each in values)).cast("Q")
