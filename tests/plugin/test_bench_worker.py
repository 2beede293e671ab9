"""One benchmark run in a process of its own: tokens, figures and steps of a real engine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from minedraft.bench.message import RunOutcome, decode_outcome, encode_request
from minedraft.bench.spec import RunSpec

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

COUNT, TOKENS = 6, 24


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
        [sys.executable, "-m", "minedraft.plugin.bench_worker"],
        input=encode_request(spec, output),
        text=True,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return decode_outcome(output.read_bytes())


def test_an_emulated_run_has_every_figure(
    pairs: dict[str, Any], prompts: Path, tmp_path: Path
) -> None:
    emulate = {
        "target": {"fixed_ms": 12.0, "per_token_ms": 0.1},
        "draft": {"fixed_ms": 2.0},
        "acceptance": [0.8],
    }
    spec = _spec(pairs["high"], prompts, mode="wait-free", emulate=emulate)
    outcome = _run(spec, tmp_path)
    figures = outcome.figures
    assert figures["num_completed"] == COUNT
    assert figures["num_output_tokens"] == COUNT * TOKENS
    assert float(figures["verification_success_rate"] or 0) > 0.5
    assert float(figures["verify_ms"] or 0) >= 12.0
    assert float(figures["ttft_ms_p99"] or 0) >= float(figures["ttft_ms_median"] or 0) > 0
    assert len(outcome.requests) == COUNT
    assert outcome.steps_sha256 is not None
    assert outcome.versions["minedraft"]


def test_vllms_own_drafting_gives_the_tokens_of_plain_decoding(
    pairs: dict[str, Any], prompts: Path, tmp_path: Path
) -> None:
    own = _run(_spec(pairs["high"], prompts, mode="vllm-sd"), tmp_path)
    plain = _run(_spec(pairs["high"], prompts, mode="none"), tmp_path)
    assert own.tokens_sha256 == plain.tokens_sha256
    assert float(own.figures["verification_success_rate"] or 0) > 0.5
    assert plain.figures["verification_success_rate"] is None


def test_what_a_run_cannot_be_is_said(pairs: dict[str, Any], prompts: Path, tmp_path: Path) -> None:
    emulate = {"target": {"fixed_ms": 1.0}, "draft": {"fixed_ms": 1.0}}
    spec = _spec(pairs["high"], prompts, mode="vllm-sd", emulate=emulate)
    done = subprocess.run(
        [sys.executable, "-m", "minedraft.plugin.bench_worker"],
        input=encode_request(spec, tmp_path / "x.json"),
        text=True,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1
    assert "vLLM's own drafter cannot be emulated" in done.stderr
