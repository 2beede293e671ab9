"""Writes a trace as Chrome trace events, which ui.perfetto.dev opens.

Owns the mapping from steps to events; it computes no numbers.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from minedraft.trace.lanes import Box, drafter_boxes, trace_start_ns, verifier_boxes
from minedraft.trace.records import StepRecord, TraceHeader

NS_PER_US = 1e3
PROCESS_ID = 1
THREAD_IDS = {"Drafter": 1, "Verifier": 2}

Event = dict[str, Any]
"""One trace event; its fields depend on the phase ``ph``."""


def write_perfetto(
    header: TraceHeader, steps: list[StepRecord], path: str | os.PathLike[str]
) -> None:
    """Write ``path`` as a JSON object of trace events, times in microseconds.

    Time zero is the first work in the trace.

    Raises:
        OSError: the file cannot be written.
    """
    document = {
        "traceEvents": _events(header, steps),
        "displayTimeUnit": "ms",
        "otherData": {"num_speculative_tokens": str(header.num_speculative_tokens)}
        | {f"version of {name}": text for name, text in header.versions.items()},
    }
    Path(path).write_bytes(msgspec.json.encode(document))


def _events(header: TraceHeader, steps: list[StepRecord]) -> list[Event]:
    events = _names(header)
    if steps:
        zero_ns = trace_start_ns(steps)
        events += [_box_event("Drafter", box, zero_ns) for box in drafter_boxes(steps)]
        events += [_box_event("Verifier", box, zero_ns) for box in verifier_boxes(steps)]
        events += [event for step in steps for event in _counters(step, zero_ns)]
    return events


def _names(header: TraceHeader) -> list[Event]:
    """Return the metadata events that name and order the process and its threads."""
    process = f"minedraft {header.mode}" + (" (emulated device)" if header.emulated else "")
    events = [_metadata("process_name", {"name": process})]
    for name, thread in THREAD_IDS.items():
        events.append(_metadata("thread_name", {"name": name}, thread))
        events.append(_metadata("thread_sort_index", {"sort_index": thread}, thread))
    return events


def _metadata(name: str, args: dict[str, Any], thread: int = 0) -> Event:
    return {"ph": "M", "name": name, "pid": PROCESS_ID, "tid": thread, "args": args}


def _box_event(lane: str, box: Box, zero_ns: int) -> Event:
    return {
        "ph": "X",
        "name": box.kind,
        "cat": lane.lower(),
        "pid": PROCESS_ID,
        "tid": THREAD_IDS[lane],
        "ts": (box.start_ns - zero_ns) / NS_PER_US,
        "dur": (box.end_ns - box.start_ns) / NS_PER_US,
        "args": _draft_args(box) if lane == "Drafter" else _pass_args(box.steps[0]),
    }


def _draft_args(box: Box) -> dict[str, Any]:
    return {
        "verified in steps": [step.step for step in box.steps],
        "draft passes": box.steps[0].draft_passes,
    }


def _pass_args(step: StepRecord) -> dict[str, Any]:
    return {
        "step": step.step,
        "mode": step.mode,
        "decoding requests": step.num_requests,
        "prompt tokens": step.num_prefill_tokens,
        "decode tokens": step.num_decode_tokens,
        "proposed": sum(step.proposed_per_position),
        "accepted": sum(step.accepted_per_position),
        "output tokens": step.num_output_tokens,
        "wait (us)": step.wait_ns / NS_PER_US,
    }


def _counters(step: StepRecord, zero_ns: int) -> list[Event]:
    """Return the counter values a step sets: sizes at its start, results at its end."""
    sizes = {f"batch {i}": size for i, size in enumerate(step.batch_sizes)}
    accepted = {"accepted": sum(step.accepted_per_position)}
    return [
        _counter("batch sizes", sizes, step.verify_start_ns - zero_ns),
        _counter("accepted tokens", accepted, step.verify_end_ns - zero_ns),
    ]


def _counter(name: str, values: dict[str, int], time_ns: int) -> Event:
    return {
        "ph": "C",
        "name": name,
        "pid": PROCESS_ID,
        "tid": 0,
        "ts": time_ns / NS_PER_US,
        "args": values,
    }
