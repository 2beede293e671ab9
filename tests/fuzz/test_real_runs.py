"""Fuzzed runs on vLLM with the tiny made-up pairs, against plain vLLM; few of them.

In processes of their own, by the command that scripts/fuzz runs: it keeps vLLM's core in its
process, and rings an alarm if an engine hangs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

SUPPORT = Path(__file__).resolve().parents[1] / "support"
# Two batches with tight pools on both sides; chunked prompts, priorities, five drafts.
ENGINES = (1, 2)


@pytest.mark.parametrize("engine", ENGINES)
def test_runs_are_those_of_plain_decoding(engine: int, results: Path) -> None:
    flags = ["8", "--engine", str(engine), "--seed", str(1000 * engine)]
    output = _fuzz(*flags, "--results", str(results))
    assert "8 runs" in output


@pytest.mark.parametrize(("drafter", "seed"), [("ngram", 3000), ("medusa", 4000), ("eagle3", 5000)])
def test_runs_with_another_drafter_are_those_of_plain_decoding(
    drafter: str, seed: int, results: Path
) -> None:
    # One engine for all: two batches with tight pools on both sides.
    flags = ["4", "--drafter", drafter, "--engine", "1", "--seed", str(seed)]
    output = _fuzz(*flags, "--results", str(results))
    assert "4 runs" in output


def test_runs_that_once_failed(found_plans: Callable[[str], list[Path]], results: Path) -> None:
    plans = found_plans("real")
    if not plans:
        pytest.skip("no run on vLLM has failed so far")
    _fuzz("--results", str(results), "--repeat", "2", "--replay", *map(str, plans))


def _fuzz(*flags: str) -> str:
    """The command's output; its last words are the test's if it fails."""
    paths = [str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "fuzzing", *flags],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "VLLM_LOGGING_LEVEL": "ERROR",
        },
        stdout=subprocess.PIPE,
        text=True,
        timeout=540,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
