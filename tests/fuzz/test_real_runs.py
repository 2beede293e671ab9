"""Fuzzed runs on vLLM with the tiny made-up pairs, against plain vLLM; few of them.

In processes of their own, by the command that scripts/fuzz runs: it keeps vLLM's core in its
process, and rings an alarm if an engine hangs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

SUPPORT = Path(__file__).resolve().parents[1] / "support"
# Two batches with tight pools on both sides; chunked prompts, priorities, five drafts.
ENGINES = (1, 2)


@pytest.mark.parametrize("engine", ENGINES)
def test_runs_are_those_of_plain_decoding(engine: int, results: Path) -> None:
    command = [sys.executable, "-m", "fuzzing", "8", "--engine", str(engine)]
    command += ["--seed", str(1000 * engine), "--results", str(results)]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": _with_support(), "VLLM_LOGGING_LEVEL": "ERROR"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=540,
    )
    assert done.returncode == 0, done.stdout
    assert "8 runs" in done.stdout


def _with_support() -> str:
    return os.pathsep.join([str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])])
