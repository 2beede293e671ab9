"""What the reader accepts, and how it names what it refuses."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from minedraft.trace import StepRecord, TraceHeader, read_trace

StepFactory = Callable[..., StepRecord]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


@pytest.fixture
def first(header: TraceHeader) -> bytes:
    return msgspec.json.encode(header)


@pytest.fixture
def second(make_step: StepFactory) -> bytes:
    return msgspec.json.encode(make_step(0, (1, 2), draft_ms=(0, 1)))


def _changed(line: bytes, **fields: Any) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(line) | fields)


def _without(line: bytes, field: str) -> bytes:
    return msgspec.json.encode({k: v for k, v in msgspec.json.decode(line).items() if k != field})


def _refusal(path: Path, *lines: bytes) -> str:
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    with pytest.raises(ValueError, match=r"run\.jsonl:\d+: ") as caught:
        read_trace(path)
    return str(caught.value).removeprefix(f"{path}:")


def test_round_trip(path: Path, header: TraceHeader, steps: list[StepRecord]) -> None:
    path.write_bytes(msgspec.json.Encoder().encode_lines([header, *steps]))
    assert read_trace(path) == (header, steps)


def test_header_alone_is_a_trace(path: Path, header: TraceHeader, first: bytes) -> None:
    path.write_bytes(first)
    assert read_trace(str(path)) == (header, [])


def test_missing_file_is_an_os_error(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_trace(path)


@pytest.mark.parametrize("content", [b"", b"\n", b"[1]\n", b"3\n", b"{}\n", b'{"version":1}\n'])
def test_missing_header(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"run\.jsonl:1: field type: header missing"):
        read_trace(path)


def test_step_in_place_of_header(path: Path, second: bytes) -> None:
    assert _refusal(path, second).startswith("1: field type: header missing")


def test_cut_off_header_is_refused(path: Path, first: bytes) -> None:
    path.write_bytes(first[:20])
    with pytest.raises(ValueError, match=r"run\.jsonl:1: not valid JSON"):
        read_trace(path)


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_wrong_version(path: Path, first: bytes, version: object) -> None:
    # A later format may lack fields of this one; the version must be named all the same.
    message = _refusal(path, _changed(_without(first, "mode"), version=version))
    assert message.startswith(f"1: field version: got {version!r}")


def test_absent_version(path: Path, first: bytes) -> None:
    assert _refusal(path, _without(first, "version")).startswith("1: field version: got None")


def test_wrong_type_in_header(path: Path, first: bytes) -> None:
    message = _refusal(path, _changed(first, num_speculative_tokens="five"))
    assert message == "1: field num_speculative_tokens: Expected `int`, got `str`"


def test_second_header(path: Path, first: bytes, second: bytes) -> None:
    assert _refusal(path, first, second, first).startswith("3: field type: got 'header'")


@pytest.mark.parametrize("junk", [b"{oops", b"", b'{"type":"step",', b'{"type":"\xff"}'])
def test_bad_json_within_the_file(path: Path, first: bytes, second: bytes, junk: bytes) -> None:
    assert _refusal(path, first, junk, second).startswith("2: not valid JSON")


def test_bad_json_on_a_finished_last_line(path: Path, first: bytes) -> None:
    assert _refusal(path, first, b"{oops").startswith("2: not valid JSON")


def test_missing_field(path: Path, first: bytes, second: bytes) -> None:
    assert _refusal(path, first, _without(second, "wait_ns")) == "2: field wait_ns: missing"


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("step", "1", "step"),
        ("mode", "fast", "mode"),
        ("batch", 2, "batch"),
        ("batch_sizes", [1], "batch_sizes"),
        ("proposed_per_position", [1, None], "proposed_per_position[1]"),
        ("type", "stride", "type"),
        ("verify_end_ns", 999_999, "verify_end_ns"),
        ("draft_start_ns", 1_000_001, "draft_end_ns"),
        ("draft_start_ns", None, "draft_end_ns"),
        ("accepted_per_position", [1], "accepted_per_position"),
        ("accepted_per_position", [1, 2], "accepted_per_position"),
        ("accepted_per_position", [1, -1], "accepted_per_position[1]"),
        ("num_output_tokens", -1, "num_output_tokens"),
        ("batch_sizes", [1, -1], "batch_sizes[1]"),
        ("wait_ns", -1, "wait_ns"),
    ],
)
def test_wrong_value_in_step(
    path: Path, first: bytes, second: bytes, field: str, value: object, named: str
) -> None:
    message = _refusal(path, first, second, _changed(second, **{field: value}))
    assert message.startswith(f"3: field {named}: ")


def test_every_cut_off_last_line_is_left_out(
    path: Path, first: bytes, second: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for end in range(1, len(second)):
        path.write_bytes(first + b"\n" + second + b"\n" + second[:end])
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            _, steps = read_trace(path)
        assert len(steps) == 1
        assert len(caplog.messages) == 1
        assert f"{path}:3" in caplog.messages[0]


def test_last_line_without_line_end_counts(
    path: Path, first: bytes, second: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes(first + b"\n" + second)
    assert len(read_trace(path)[1]) == 1
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("text", "says"), [(b"", "the file is empty"), (b"[" * 200_000 + b"\n", "not valid JSON")]
)
def test_a_file_that_holds_no_record_says_so(text: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=says):
        read_trace(path)
