"""Owns the demo's comparison and report; the runs behind them are other tests'."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from minedraft.demo import Outcome, compare, main, render_report


def _outcome(mode: str, tokens: list[int], drafter: int) -> Outcome:
    summary = {
        "max_num_seqs": 8,
        "num_speculative_tokens": 3,
        "devices": {"target": 2 - drafter, "drafter": drafter},
        "tokens_per_s": 12.34,
        "acceptance_rate": 0.5 if drafter else None,
    }
    return Outcome(mode=mode, tokens={"0": tokens, "1": [9]}, summary=summary)


def test_equal_outputs_are_reported_as_such() -> None:
    outcomes = [_outcome("none", [1, 2], 0), _outcome("two-batch", [1, 2], 1)]
    assert compare(outcomes) == []
    report = render_report("T", "D", outcomes, [])
    assert "All 2 outputs are identical in the 2 modes." in report
    assert "| none | 2 + 0 | 12.3 |" in report
    assert "| two-batch | 1 + 1 | 12.3 |" in report


@pytest.mark.parametrize("tokens", [[1], [1, 3], [1, 2, 3], []])
def test_any_difference_is_named(tokens: list[int]) -> None:
    outcomes = [_outcome("none", [1, 2], 0), _outcome("two-batch", tokens, 1)]
    assert compare(outcomes) == ["prompt 0: two-batch differs from none"]
    assert "outputs differ" in render_report("T", "D", outcomes, compare(outcomes))


def test_a_missing_prompt_is_a_difference() -> None:
    outcomes = [_outcome("none", [1], 0), Outcome(mode="two-batch", tokens={}, summary={})]
    assert len(compare(outcomes)) == 2


def test_a_failed_mode_shows_what_it_printed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--target", "T", "--draft", "D", "--results", str(tmp_path / "results")]
    assert main([*arguments, "--prompts", str(tmp_path / "missing.jsonl")]) == 2
    shown = capfd.readouterr()
    assert "cannot read prompts file" in shown.err
    assert sys.executable in shown.err
    assert "mode none: running" in shown.out
