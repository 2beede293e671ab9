"""The exported events against the fields that the Chrome trace format asks for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minedraft.trace import StepRecord, TraceHeader, write_perfetto

StepFactory = Callable[..., StepRecord]
REQUIRED = {
    "X": {"ph", "name", "cat", "ts", "dur", "pid", "tid", "args"},
    "M": {"ph", "name", "pid", "tid", "args"},
    "C": {"ph", "name", "ts", "pid", "tid", "args"},
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.json"


def _events(path: Path, phase: str, name: str | None = None) -> list[dict[str, Any]]:
    events = json.loads(path.read_bytes())["traceEvents"]
    return [e for e in events if e["ph"] == phase and name in (None, e["name"])]


def test_every_event_has_the_fields_of_its_phase(
    path: Path, header: TraceHeader, steps: list[StepRecord]
) -> None:
    write_perfetto(header, steps, path)
    document = json.loads(path.read_bytes())
    assert document["displayTimeUnit"] in ("ms", "ns")
    for event in document["traceEvents"]:
        assert set(event) == REQUIRED[event["ph"]]
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event.get("ts", 0) >= 0
        assert event.get("dur", 0) >= 0


def test_threads_are_named(path: Path, header: TraceHeader) -> None:
    write_perfetto(header, [], path)
    names = {e["tid"]: e["args"]["name"] for e in _events(path, "M", "thread_name")}
    assert names == {1: "Drafter", 2: "Verifier"}
    (process,) = _events(path, "M", "process_name")
    assert process["args"]["name"] == "minedraft two-batch (emulated device)"


def test_times_are_microseconds_from_the_first_work(
    path: Path, header: TraceHeader, make_step: StepFactory
) -> None:
    write_perfetto(header, [make_step(7, (5, 8.5), draft_ms=(3, 4))], path)
    drafter, verifier = _events(path, "X")
    assert (drafter["tid"], drafter["ts"], drafter["dur"]) == (1, 0, 1000)
    assert (verifier["tid"], verifier["ts"], verifier["dur"]) == (2, 2000, 3500)
    assert verifier["args"]["step"] == 7


def test_shared_draft_interval_is_one_event(
    path: Path, header: TraceHeader, make_step: StepFactory
) -> None:
    shared = [make_step(i, (i, i + 1), draft_ms=(0, 1), batch=0) for i in (1, 2)]
    write_perfetto(header, shared, path)
    (drafter,) = [e for e in _events(path, "X") if e["tid"] == 1]
    assert drafter["name"] == "batch 0"
    assert drafter["args"]["verified in steps"] == [1, 2]


def test_draft_of_both_batches_is_unsplit(
    path: Path, header: TraceHeader, make_step: StepFactory
) -> None:
    write_perfetto(header, [make_step(i, (i, i + 1), draft_ms=(0, 1)) for i in (1, 2)], path)
    (drafter,) = [e for e in _events(path, "X") if e["tid"] == 1]
    assert drafter["name"] == "unsplit"


def test_counters(path: Path, header: TraceHeader, make_step: StepFactory) -> None:
    write_perfetto(header, [make_step(0, (1, 2), batch_sizes=(4, 3))], path)
    (sizes,) = _events(path, "C", "batch sizes")
    (accepted,) = _events(path, "C", "accepted tokens")
    assert (sizes["ts"], sizes["args"]) == (0, {"batch 0": 4, "batch 1": 3})
    assert (accepted["ts"], accepted["args"]) == (1000, {"accepted": 1})


def test_boxes_of_a_thread_do_not_overlap(
    path: Path, header: TraceHeader, steps: list[StepRecord]
) -> None:
    # The viewer drops boxes that overlap without lying one inside the other.
    write_perfetto(header, steps, path)
    for thread in (1, 2):
        boxes = sorted((e["ts"], e["dur"]) for e in _events(path, "X") if e["tid"] == thread)
        ends = [start + duration for start, duration in boxes]
        assert all(end <= start for end, (start, _) in zip(ends, boxes[1:], strict=False))
