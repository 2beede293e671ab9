"""Writes a trace to a file, one JSON line per record.

Owns the file handle and what happens when the disk fails; it does not fill in
records.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol, Self

import msgspec

from minedraft.trace.records import StepRecord, TraceHeader

FLUSH_INTERVAL_S = 1.0


class TraceSink(Protocol):
    """Where a scheduler sends its step records."""

    def write(self, record: StepRecord) -> None:
        """Take one record; an input/output error must not reach the caller."""

    def flush(self) -> None:
        """Make what was written visible to a reader."""

    def close(self) -> None:
        """Release what the sink holds; a second call does nothing."""


class TraceWriter:
    """Context manager that writes a header and then records to ``path``.

    The file (and its folder) is made at the first record, so a run without steps
    leaves none; an existing file is replaced. Records reach the file at flush and close
    and, while records keep coming, about once per second. On an ``OSError`` the writer
    logs one warning and drops all later records; records after ``close`` are
    dropped too. One thread at a time may use it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        header: TraceHeader,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare to write; touches no file. ``clock`` counts seconds."""
        self._path = Path(path)
        self._header = header
        self._clock = clock
        self._encoder = msgspec.json.Encoder()
        self._file: BinaryIO | None = None
        self._done = False
        self._last_flush_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def write(self, record: StepRecord) -> None:
        """Append ``record``.

        Raises:
            TypeError: a field holds an object that JSON cannot express.
        """
        if self._done:
            return
        # Encoded first: a record that cannot be encoded is the caller's mistake and
        # must not leave half a line behind.
        line = self._encoder.encode(record) + b"\n"
        try:
            if self._file is None:
                self._file = self._open()
            self._file.write(line)
            self._flush_if_due(self._file)
        except OSError as error:
            self._give_up(error)

    def flush(self) -> None:
        """Hand what is buffered to the file."""
        try:
            if self._file is not None and not self._done:
                self._file.flush()
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """Flush and close the file; a second call does nothing."""
        if self._done:
            return
        self._done = True
        try:
            if self._file is not None:
                self._file.close()
        except OSError as error:
            self._give_up(error)

    def _open(self) -> BinaryIO:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("wb")
        self._last_flush_s = self._clock()
        file.write(self._encoder.encode(self._header) + b"\n")
        return file

    def _flush_if_due(self, file: BinaryIO) -> None:
        now_s = self._clock()
        if now_s - self._last_flush_s >= FLUSH_INTERVAL_S:
            self._last_flush_s = now_s
            file.flush()

    def _give_up(self, error: OSError) -> None:
        self._done = True
        logging.getLogger(__name__).warning(
            "trace %s: %s; no further steps are recorded", self._path, error.strerror or error
        )
        if self._file is not None:
            # Closing flushes again and so meets the same error.
            with contextlib.suppress(OSError):
                self._file.close()
