"""The latest hidden-state row of each request, for heads that draft from one row alone.

Owns which row that is; it computes nothing.
"""

from __future__ import annotations

from minedraft.transport.row_ring import Rows

_MOST_OVER = 4096
"""Ended requests that are remembered: the target may still send rows of its last steps."""


class LatestRows:
    """One row of `row_bytes` for each request, of at most `most` requests: beyond them, the one
    that was renewed longest ago is left out.
    """

    def __init__(self, row_bytes: int, most: int) -> None:
        self._row_bytes = row_bytes
        self._most = most
        self._rows: dict[str, tuple[int, bytes]] = {}
        self._over: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, rows: Rows) -> None:
        """Keep the last of `rows` in place of what was there for the request."""
        key = f"{rows.request_id}@{rows.version}"
        if key in self._over:
            return
        self._rows.pop(key, None)
        self._rows[key] = rows.end - 1, rows.data[-self._row_bytes :]
        if len(self._rows) > self._most:
            del self._rows[next(iter(self._rows))]

    def at(self, key: str, position: int) -> bytes | None:
        """The request's row, if it is that of `position`."""
        found = self._rows.get(key)
        return found[1] if found is not None and found[0] == position else None

    def end(self, key: str) -> None:
        """Forget a request that is over; one that is not known is fine."""
        self._rows.pop(key, None)
        self._over[key] = None
        if len(self._over) > _MOST_OVER:
            del self._over[next(iter(self._over))]
