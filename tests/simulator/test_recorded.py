"""Acceptance from a trace: exact where steps say it, refused where none does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minedraft.errors import ConfigError
from minedraft.simulator import header_of, simulate
from minedraft.theory import Acceptance
from minedraft.trace import StepRecord
from minedraft.trace.writer import TraceWriter
from simulated import scenario


def _trace(path: Path, *counts: tuple[list[int], list[int]]) -> str:
    with TraceWriter(path, header_of(scenario())) as sink:
        for number, (proposed, accepted) in enumerate(counts, start=1):
            sink.write(
                StepRecord(
                    step=number,
                    mode="sequential",
                    batch=None,
                    batch_sizes=(10, 0),
                    num_requests=10,
                    num_prefill_requests=0,
                    num_prefill_tokens=0,
                    num_decode_tokens=50,
                    num_output_tokens=10,
                    proposed_per_position=proposed,
                    accepted_per_position=accepted,
                    draft_start_ns=None,
                    draft_end_ns=None,
                    draft_passes=0,
                    verify_start_ns=number,
                    verify_end_ns=number,
                    wait_ns=0,
                )
            )
    return str(path)


def _read(acceptance: object) -> object:
    return scenario(acceptance=acceptance).acceptance


def test_each_position_counts_where_the_one_before_was_right(tmp_path: Path) -> None:
    path = _trace(tmp_path / "t.jsonl", ([10, 10, 0], [8, 6, 0]), ([10, 10, 10], [8, 2, 1]))
    # 16 of 20; of these 16 the second was right in 8; of the 2 with a third, one.
    assert _read({"trace": path}) == Acceptance((16 / 20, 8 / 16, 1 / 2))


def test_steps_with_drafts_of_several_lengths_are_left_out(tmp_path: Path) -> None:
    clear = ([10, 10], [5, 4])
    mixed, none = ([10, 3], [10, 0]), ([0, 0], [0, 0])
    alone = _trace(tmp_path / "a.jsonl", clear)
    among_others = _trace(tmp_path / "b.jsonl", mixed, clear, none)
    assert _read({"trace": alone}) == _read({"trace": among_others}) == Acceptance((0.5, 0.8))


@pytest.mark.parametrize(
    ("mode", "rates", "expected"),
    [
        ("sequential", [0.9, 0.6, 0.75], (0.9, 0.6, 0.75, 0.75)),
        ("two-batch", [0.9, 0.6, 0.75], (0.9, 0.6, 0.75, 0.75)),
        ("pearl", [0.9, 0.6, 0.75], (0.9, 0.6, 0.75, 0.75)),
        ("wait-free", [0.8], (0.8,)),
        ("wait-free", [0.5], (0.5,)),
    ],
)
@pytest.mark.parametrize("count", [1, 4])
def test_a_simulated_run_gives_back_what_it_was_given(
    tmp_path: Path, mode: str, count: int, rates: list[float], expected: tuple[float, ...]
) -> None:
    requests = {"count": count, "prompt_tokens": 1, "output_tokens": 16_000 // count}
    chosen = scenario(mode=mode, acceptance=rates, requests=requests)
    with TraceWriter(tmp_path / "t.jsonl", header_of(chosen)) as sink:
        simulate(chosen, sink=sink)
    found = _read({"trace": str(tmp_path / "t.jsonl")})
    assert isinstance(found, Acceptance)
    assert found.conditional == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (None, "cannot be read"),
        ("", "the file is empty"),
        ("{}\n", "header missing"),
        ("not JSON\n", "cannot be read"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str | None, named: str) -> None:
    path = tmp_path / "t.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=named) as found:
        _read({"trace": str(path)})
    assert "acceptance.trace" in str(found.value) and "allowed: a trace" in str(found.value)


def test_a_trace_without_drafts_of_one_length_is_refused(tmp_path: Path) -> None:
    for number, counts in enumerate([(), (([0, 0], [0, 0]),), (([4, 1], [4, 1]),)]):
        path = _trace(tmp_path / f"{number}.jsonl", *counts)
        with pytest.raises(ConfigError, match="all of one length"):
            _read({"trace": path})


@pytest.mark.parametrize("value", [{"trace": 3}, {"trace": ""}, {"trace": "t", "easy": 0.9}])
def test_other_values_are_refused(value: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="acceptance"):
        _read(value)
