"""One benchmark run in a process of its own: tokens, figures and steps of a real engine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import quick_start
from minedraft.bench.message import RunOutcome, decode_outcome, encode_request
from minedraft.bench.spec import RunSpec
from minedraft.errors import ConfigError

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

COUNT, TOKENS = 6, 24
_WORKER = """
import sys
sys.path.append(sys.argv.pop(1))
import quick_start
quick_start.fork_engines()
from minedraft.plugin.bench_worker import main
sys.exit(main())
"""


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    rows = [json.dumps({"prompt": f"say number {number}"}) for number in range(COUNT)]
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def _spec(pair: Any, prompts: Path, **more: Any) -> RunSpec:
    return RunSpec.from_mapping(
        {
            "target": str(pair.target),
            "draft": str(pair.draft),
            "dataset": {"name": "jsonl", "path": str(prompts), "count": COUNT},
            "load": {"kind": "closed-loop", "in_flight": 4},
            "max_num_seqs": 4,
            "max_tokens": TOKENS,
            "ignore_eos": True,
            "dtype": "float32",
            "max_model_len": 256,
            "engine": {"block_size": 32, "kv_cache_memory_bytes": 2**28},
            **more,
        }
    )


def _run(spec: RunSpec, folder: Path) -> RunOutcome:
    output = folder / f"{spec.mode}.json"
    done = subprocess.run(
        [sys.executable, "-c", _WORKER, str(Path(quick_start.__file__).parent)],
        input=encode_request(spec, output),
        text=True,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return decode_outcome(output.read_bytes())


EMULATE = {"target": {"fixed_ms": 12.0, "per_token_ms": 0.1}, "draft": {"fixed_ms": 2.0}}


def test_two_runs_of_one_workload(pairs: dict[str, Any], prompts: Path, tmp_path: Path) -> None:
    """Wait-free on an emulated device, and vLLM's own drafting in real time: the same tokens."""
    emulated = _run(_spec(pairs["high"], prompts, mode="wait-free", emulate=EMULATE), tmp_path)
    figures = emulated.figures
    assert figures["num_completed"] == COUNT
    assert figures["num_output_tokens"] == COUNT * TOKENS
    assert float(figures["verification_success_rate"] or 0) > 0.5
    assert float(figures["verify_ms"] or 0) >= 12.0
    assert float(figures["ttft_ms_p99"] or 0) >= float(figures["ttft_ms_median"] or 0) > 0
    assert len(emulated.requests) == COUNT
    assert emulated.steps_sha256 is not None
    assert emulated.versions["minedraft"]
    own = _run(_spec(pairs["high"], prompts, mode="vllm-sd"), tmp_path)
    assert own.tokens_sha256 == emulated.tokens_sha256
    assert float(own.figures["verification_success_rate"] or 0) > 0.5
    assert own.steps_sha256 is None


def test_a_virtual_clock_repeats_every_step(
    pairs: dict[str, Any], prompts: Path, tmp_path: Path
) -> None:
    """Requests that come at random times, and a drafter that nobody waits for."""
    emulate = {**EMULATE, "clock": "virtual", "acceptance": [0.6]}
    load = {"kind": "poisson", "rate_per_s": 20.0}
    spec = _spec(pairs["high"], prompts, mode="wait-free", emulate=emulate, load=load)
    first, second = _run(spec, tmp_path), _run(spec, tmp_path)
    assert first.requests == second.requests
    assert first.figures == second.figures
    assert first.tokens_sha256 == second.tokens_sha256
    assert first.steps_sha256 == second.steps_sha256
    # (0.6 + 0.36 + 0.22 + 0.13) / 4, and few drafts.
    assert 0.25 < float(first.figures["verification_success_rate"] or 0) < 0.45
    # No host takes part: a step's time is the model's, 12 ms and 0.1 ms for each token.
    assert 12.1 <= float(first.figures["verify_ms"] or 0) < 14.0


def test_what_a_run_cannot_be_is_said(pairs: dict[str, Any], prompts: Path, tmp_path: Path) -> None:
    from minedraft.plugin.bench_engine import engine_arguments

    spec = _spec(pairs["high"], prompts, mode="vllm-sd", emulate=EMULATE)
    with pytest.raises(ConfigError, match="vLLM's own drafter cannot be emulated"):
        engine_arguments(spec, tmp_path / "trace.jsonl")
