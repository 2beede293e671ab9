"""The simulate command: its table, its files, and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minedraft.cli.main import main
from minedraft.simulator import read_scenarios
from minedraft.trace import read_trace

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "scenarios"
TEXT = """
name = "small"
mode = ["none", "sequential"]
num_speculative_tokens = 2
acceptance = [0.8]
[[engines]]
target = { fixed_ms = 30 }
[[drafters]]
draft = { fixed_ms = 5 }
[requests]
count = 4
prompt_tokens = 10
output_tokens = 20
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(TEXT)
    return path


def test_a_line_for_each_mode(
    scenario: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out.json"
    assert main(["simulate", str(scenario), "--output", str(output)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "small (simulated)"
    assert [line.split()[0] for line in lines[1:]] == ["mode", "none", "sequential"]
    rows = json.loads(output.read_text())
    assert [row["mode"] for row in rows] == ["none", "sequential"]
    assert all(row["simulated"] for row in rows)
    assert rows[0]["figures"]["num_output_tokens"] == rows[1]["figures"]["num_output_tokens"] == 80
    assert rows[1]["tokens_per_s"] > rows[0]["tokens_per_s"]


def test_the_seed_may_be_given(scenario: Path, tmp_path: Path) -> None:
    found = []
    for seed in ("1", "1", "2"):
        output = tmp_path / "out.json"
        assert main(["simulate", str(scenario), "--seed", seed, "--output", str(output)]) == 0
        found.append(json.loads(output.read_text()))
    assert found[0] == found[1] != found[2]


def test_a_trace_that_the_trace_command_reads(scenario: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    scenario.write_text(TEXT.replace('["none", "sequential"]', '"two-batch"'))
    assert main(["simulate", str(scenario), "--trace", str(trace)]) == 0
    header, steps = read_trace(trace)
    assert header.mode == "two-batch"
    assert header.emulated
    assert sum(each.num_output_tokens for each in steps) == 80
    assert main(["trace", str(trace)]) == 0


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--trace", "t.jsonl"], "--trace takes one run"),
        (["--output", "no/such/folder/f.json"], "its folder does not exist"),
        (["--output", f"{'n' * 300}.json"], "File name too long"),
        (["--trace", "."], "it is a folder"),
        (["--output", "same", "--trace", "same"], "a file other than that of --output"),
        (["--seed", "-1"], "seed"),
    ],
)
def test_bad_flags_are_refused(
    flags: list[str], named: str, scenario: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", str(scenario), *flags]) == 2
    assert named in capsys.readouterr().err


def test_a_bad_field_is_named(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario.write_text(TEXT.replace("fixed_ms = 5", "fixed_ms = -5"))
    assert main(["simulate", str(scenario)]) == 2
    error = capsys.readouterr().err
    assert "drafters[0].draft.fixed_ms = -5" in error
    assert "Traceback" not in error


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.name)
def test_examples_are_sound(path: Path) -> None:
    assert read_scenarios(path)
