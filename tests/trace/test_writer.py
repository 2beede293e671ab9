"""The writer: laziness, flushing, and disks that fail."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from minedraft.trace import StepRecord, TraceHeader, TraceSink, TraceWriter, read_trace

StepFactory = Callable[..., StepRecord]
FULL_DISK = Path("/dev/full")

needs_full_disk = pytest.mark.skipif(
    not FULL_DISK.is_char_device(), reason="needs the device /dev/full"
)


class _Clock:
    """A clock that a test sets by hand."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_round_trip_makes_folders(
    tmp_path: Path, header: TraceHeader, steps: list[StepRecord]
) -> None:
    path = tmp_path / "a" / "b" / "run.jsonl"
    with TraceWriter(path, header) as sink:
        for step in steps:
            sink.write(step)
    assert read_trace(path) == (header, steps)


def test_flush_shows_what_was_written_before_close(
    tmp_path: Path, header: TraceHeader, steps: list[StepRecord]
) -> None:
    path = tmp_path / "run.jsonl"
    sink = TraceWriter(path, header, clock=_Clock())
    sink.flush()
    for step in steps:
        sink.write(step)
    sink.flush()
    assert read_trace(path) == (header, steps)
    sink.close()
    sink.flush()


def test_is_a_sink(tmp_path: Path, header: TraceHeader) -> None:
    sink: TraceSink = TraceWriter(tmp_path / "run.jsonl", header)
    sink.close()


def test_nothing_written_leaves_no_file(tmp_path: Path, header: TraceHeader) -> None:
    with TraceWriter(tmp_path / "a" / "run.jsonl", header):
        pass
    assert list(tmp_path.iterdir()) == []


def test_existing_file_is_replaced(
    tmp_path: Path, header: TraceHeader, steps: list[StepRecord]
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("old")
    with TraceWriter(path, header) as sink:
        sink.write(steps[0])
    assert read_trace(path) == (header, steps[:1])


def test_file_is_closed_when_the_block_raises(
    tmp_path: Path, header: TraceHeader, steps: list[StepRecord]
) -> None:
    path = tmp_path / "run.jsonl"
    with pytest.raises(KeyError), TraceWriter(path, header) as sink:
        sink.write(steps[0])
        raise KeyError
    assert len(read_trace(path)[1]) == 1


def test_records_reach_the_file_after_a_second(
    tmp_path: Path, header: TraceHeader, steps: list[StepRecord]
) -> None:
    path, clock = tmp_path / "run.jsonl", _Clock()
    with TraceWriter(path, header, clock=clock) as sink:
        sink.write(steps[0])
        clock.now_s += 0.9
        sink.write(steps[1])
        assert path.read_bytes() == b""
        clock.now_s += 0.1
        sink.write(steps[2])
        assert len(read_trace(path)[1]) == 3
        clock.now_s += 0.5
        sink.write(steps[3])
        assert len(read_trace(path)[1]) == 3
    assert len(read_trace(path)[1]) == 4


def test_records_after_close_are_dropped(
    tmp_path: Path, header: TraceHeader, steps: list[StepRecord]
) -> None:
    path = tmp_path / "run.jsonl"
    sink = TraceWriter(path, header)
    sink.write(steps[0])
    sink.close()
    sink.write(steps[1])
    sink.close()
    assert len(read_trace(path)[1]) == 1


@needs_full_disk
def test_full_disk_warns_once_at_flush(
    header: TraceHeader, steps: list[StepRecord], caplog: pytest.LogCaptureFixture
) -> None:
    clock = _Clock()
    with caplog.at_level(logging.WARNING), TraceWriter(FULL_DISK, header, clock=clock) as sink:
        for step in steps:
            sink.write(step)
            clock.now_s += 2
    assert len(caplog.messages) == 1
    assert "/dev/full: No space left on device" in caplog.messages[0]


@needs_full_disk
def test_full_disk_warns_once_when_the_buffer_overflows(
    header: TraceHeader, steps: list[StepRecord], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        sink = TraceWriter(FULL_DISK, header, clock=_Clock())
        for step in steps * 50:
            sink.write(step)
        assert len(caplog.messages) == 1
        sink.close()
    assert len(caplog.messages) == 1


@needs_full_disk
def test_full_disk_warns_once_at_close(
    header: TraceHeader, steps: list[StepRecord], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        sink = TraceWriter(FULL_DISK, header, clock=_Clock())
        sink.write(steps[0])
        assert caplog.messages == []
        sink.close()
        sink.close()
    assert len(caplog.messages) == 1


def test_unusable_folder_warns_once(
    tmp_path: Path,
    header: TraceHeader,
    steps: list[StepRecord],
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    path = tmp_path / "taken" / "run.jsonl"
    with caplog.at_level(logging.WARNING), TraceWriter(path, header) as sink:
        sink.write(steps[0])
        sink.write(steps[1])
    assert len(caplog.messages) == 1
    assert str(path) in caplog.messages[0]
