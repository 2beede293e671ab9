"""Reads a trace file back into records and says what is wrong with a bad one.

Owns the checks of a trace file; it does not interpret the steps.
"""

from __future__ import annotations

import logging
import operator
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from minedraft.trace.records import TRACE_VERSION, StepRecord, TraceHeader

T = TypeVar("T")


class _BadJsonError(ValueError):
    """A line that is no JSON at all, as a cut-off line is."""


def read_trace(path: str | os.PathLike[str]) -> tuple[TraceHeader, list[StepRecord]]:
    """Return the header and the steps of a trace, in file order.

    A last line that was cut off (no line end, no complete JSON) is left out with a
    logged warning, because a killed run leaves one.

    Raises:
        OSError: the file cannot be read.
        ValueError: a line breaks the format; names file, line and field.
    """
    decoder = msgspec.json.Decoder(TraceHeader | StepRecord)
    steps: list[StepRecord] = []
    with Path(path).open("rb") as file:
        header = _parse_header(decoder, file.readline(), f"{path}:1")
        for number, line in enumerate(file, start=2):
            where = f"{path}:{number}"
            try:
                steps.append(_parse_step(decoder, line, where))
            except _BadJsonError as error:
                if line.endswith(b"\n"):
                    raise
                logging.getLogger(__name__).warning("%s; cut-off last line left out", error)
    return header, steps


def _parse_header(
    decoder: msgspec.json.Decoder[TraceHeader | StepRecord], line: bytes, where: str
) -> TraceHeader:
    if not line:
        raise ValueError(f"{where}: field type: header missing, the file is empty")
    # The version comes before the other fields: those of another version may differ.
    raw = _decode(msgspec.json.Decoder(), line, where) if line.strip() else {}
    kind = raw.get("type") if isinstance(raw, dict) else None
    if kind != "header":
        raise ValueError(
            f"{where}: field type: header missing, the first line must have type 'header', "
            f"got {kind!r}"
        )
    if raw.get("version") != TRACE_VERSION:
        raise ValueError(
            f"{where}: field version: got {raw.get('version')!r}, "
            f"this reader knows {TRACE_VERSION} only"
        )
    header = _decode(decoder, line, where)
    assert isinstance(header, TraceHeader)
    return header


def _parse_step(
    decoder: msgspec.json.Decoder[TraceHeader | StepRecord], line: bytes, where: str
) -> StepRecord:
    record = _decode(decoder, line, where)
    if isinstance(record, TraceHeader):
        raise ValueError(f"{where}: field type: got 'header', only the first line may be one")
    for problem in _problems(record):
        raise ValueError(f"{where}: field {problem}")
    return record


def _decode(decoder: msgspec.json.Decoder[T], line: bytes, where: str) -> T:
    try:
        return decoder.decode(line)
    except msgspec.ValidationError as error:
        raise ValueError(f"{where}: {_name_field(str(error))}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _BadJsonError(f"{where}: not valid JSON: {error}") from error


def _name_field(message: str) -> str:
    """Put the field name of a msgspec message first."""
    if found := re.fullmatch(r"(.*) - at `\$\.(.+)`", message):
        return f"field {found[2]}: {found[1]}"
    if found := re.fullmatch(r"Object missing required field `(.+)`", message):
        return f"field {found[1]}: missing"
    return message


def _problems(step: StepRecord) -> Iterator[str]:
    """Yield what is wrong with values whose types are right, field name first."""
    if step.batch not in (None, 0, 1):
        yield f"batch: got {step.batch}, allowed are 0, 1 and null"
    if step.verify_end_ns < step.verify_start_ns:
        yield (
            f"verify_end_ns: {step.verify_end_ns} is before verify_start_ns {step.verify_start_ns}"
        )
    if (step.draft_start_ns is None) != (step.draft_end_ns is None):
        yield "draft_end_ns: must be null exactly if draft_start_ns is"
    elif (
        step.draft_start_ns is not None
        and step.draft_end_ns is not None
        and step.draft_end_ns < step.draft_start_ns
    ):
        yield f"draft_end_ns: {step.draft_end_ns} is before draft_start_ns {step.draft_start_ns}"
    accepted, proposed = step.accepted_per_position, step.proposed_per_position
    if len(accepted) != len(proposed) or any(map(operator.gt, accepted, proposed)):
        yield f"accepted_per_position: {accepted} does not fit proposed_per_position {proposed}"
