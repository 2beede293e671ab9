"""The hidden-state rows that wait for the drafter, by life of a request.

Owns which positions are there; it computes nothing. Rows of a request form one run without a
gap: after rows that were lost, or were never computed (the target found the prefix in its
cache), the run begins anew behind them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from minedraft.transport.row_ring import Rows

_MOST_STRANGERS = 1024
_MOST_OVER = 4096
"""Ended requests that are remembered: the target may still send rows of its last steps."""


@dataclass(slots=True)
class _Run:
    begin: int
    """Position of the first row since the last gap, kept or not."""
    end: int
    parts: deque[Rows] = field(default_factory=deque)
    is_known: bool = False
    """Whether anybody asked for it."""


class RowStore:
    """Rows of `row_bytes` each, of all requests together at most `max_bytes`.

    Where there is no room, those kept for requests that nothing was made for yet give way, the
    largest first. What comes for a request that is over, at `end_position` or later, or without
    room is left out: the next rows of that request are behind a gap then.
    """

    def __init__(self, row_bytes: int, max_bytes: int, end_position: int = 1 << 62) -> None:
        self._row_bytes = row_bytes
        self._end_position = end_position
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._runs: dict[str, _Run] = {}
        self._over: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, rows: Rows, in_use: Collection[str] = ()) -> bool:
        """Take rows in; whether a gap lies before them, so that what was made of those before
        is of no use. Rows that are there already, or were taken, are left out.

        `in_use` are keys of requests that something was made for.
        """
        key = f"{rows.request_id}@{rows.version}"
        if key in self._over or rows.start >= self._end_position:
            return False
        if not self._has_room(len(rows.data), {key, *in_use}):
            return False
        run = self._runs.get(key)
        if run is None or rows.start > run.end:
            self._drop_parts(run)
            self._forget_strangers()
            self._runs[key] = _Run(rows.start, rows.end, deque([rows]))
            self._num_bytes += len(rows.data)
            return run is not None
        if rows.end > run.end:
            part = self._cut(rows, run.end, rows.end)
            run.parts.append(part)
            run.end = rows.end
            self._num_bytes += len(part.data)
        return False

    def span(self, key: str) -> tuple[int, int]:
        """Positions [begin, end) of which rows came since the last gap; (0, 0) if none did."""
        run = self._runs.get(key)
        if run is None:
            return 0, 0
        run.is_known = True
        return run.begin, run.end

    def take(self, key: str, start: int, end: int) -> bytes:
        """Rows at positions [start, end), which must be there; those before `start` are dropped.

        Raises:
            KeyError: they are not all there.
        """
        run = self._runs[key]
        while run.parts and run.parts[0].end <= start:
            self._num_bytes -= len(run.parts.popleft().data)
        found = b"".join(
            self._cut(rows, max(start, rows.start), min(end, rows.end)).data
            for rows in run.parts
            if rows.start < end
        )
        if len(found) != (end - start) * self._row_bytes:
            raise KeyError(f"rows [{start}, {end}) of {key}")
        return found

    def restart(self, key: str) -> None:
        """Note that what was made of the rows so far is gone: the run begins with those kept."""
        if (run := self._runs.get(key)) is not None:
            run.begin = run.parts[0].start if run.parts else run.end

    def end(self, key: str) -> None:
        """Forget a request that is over; one that is not known is fine."""
        self._drop_parts(self._runs.pop(key, None))
        self._over[key] = None
        if len(self._over) > _MOST_OVER:
            del self._over[next(iter(self._over))]

    def _has_room(self, size: int, kept: Collection[str]) -> bool:
        """Whether `size` bytes fit, with what is given up for them."""
        if self._num_bytes + size <= self._max_bytes:
            return True
        others = [run for key, run in self._runs.items() if key not in kept and run.parts]
        for run in sorted(others, key=lambda each: each.parts[0].start - each.end):
            self._drop_parts(run)
            run.parts.clear()
            run.begin = run.end
            if self._num_bytes + size <= self._max_bytes:
                return True
        return False

    def _forget_strangers(self) -> None:
        """Drop the oldest of those that nobody asked for, such as of a drafter's last life."""
        strangers = [key for key, run in self._runs.items() if not run.is_known]
        for key in strangers[: max(0, len(strangers) - _MOST_STRANGERS)]:
            self._drop_parts(self._runs.pop(key))

    def _drop_parts(self, run: _Run | None) -> None:
        if run is not None:
            self._num_bytes -= sum(len(rows.data) for rows in run.parts)

    def _cut(self, rows: Rows, start: int, end: int) -> Rows:
        if (start, end) == (rows.start, rows.end):
            return rows
        width = self._row_bytes
        data = rows.data[(start - rows.start) * width : (end - rows.start) * width]
        return Rows(rows.request_id, rows.version, start, end - start, data)
