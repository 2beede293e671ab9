"""One offline run of vLLM's LLM class: prompts in, rows and a summary out.

Owns the run and its figures; flags and files are the command's.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from vllm import LLM, SamplingParams
from vllm.config import ModelConfig, VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.platforms import current_platform
from vllm.tokenizers import cached_tokenizer_from_config

from minedraft.config import MineDraftConfig
from minedraft.errors import ConfigError, MineDraftError
from minedraft.plugin.admission import first_lines
from minedraft.plugin.engine_config import SCHEDULER, active_options, has_virtual_clock
from minedraft.plugin.engine_flags import parse_engine_flags
from minedraft.plugin.placement import count_devices
from minedraft.plugin.runtime import clock_of, engine_in_this_process, preload_openmp
from minedraft.prompts import Prompt
from minedraft.trace import Summary, read_trace, summarize

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineRun:
    """What to run; `engine_flags` are flags of vLLM's engine, as on its command line."""

    target: str
    config: MineDraftConfig
    prompts: tuple[Prompt, ...]
    max_tokens: int
    max_num_seqs: int
    dtype: str
    temperature: float
    seed: int
    chat: bool
    ignore_eos: bool
    engine_flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineResult:
    """JSON-ready rows, one per prompt and in their order, and the figures of the run."""

    rows: list[dict[str, object]]
    summary: dict[str, object]


def run_offline(run: OfflineRun) -> OfflineResult:
    """Start an engine, generate, and end it.

    Raises:
        ConfigError: a flag or the configuration is refused, before anything starts.
    """
    preload_openmp()
    if has_virtual_clock(run.config):
        engine_in_this_process()
    with tempfile.TemporaryDirectory(prefix="minedraft-trace-") as folder:
        trace = run.config.trace or str(Path(folder) / "trace.jsonl")
        run = replace(run, config=replace(run.config, trace=trace))
        engine = _engine_arguments(run)
        inputs = _inputs(_create_config(engine).model_config, run)
        llm = start_llm(engine)
        try:
            clock = clock_of(llm)
            begin_ns = clock.now_ns()
            outputs = llm.generate(inputs, _sampling(run), use_tqdm=True)
            wall_s = (clock.now_ns() - begin_ns) / 1e9
            vllm_config = llm.llm_engine.vllm_config
            devices = count_devices(vllm_config, active_options(vllm_config).running_drafter)
        finally:
            # Ends the engine's processes, so that the trace is complete.
            llm.llm_engine.engine_core.shutdown()
        summary = _summary(trace)
    rows = [_row(prompt, output) for prompt, output in zip(run.prompts, outputs, strict=True)]
    return OfflineResult(rows=rows, summary=_figures(run, rows, summary, wall_s, devices))


def _summary(trace: str) -> Summary | None:
    """None if the disk did not take the trace: the output is there all the same."""
    try:
        return summarize(*read_trace(trace))
    except (OSError, ValueError) as error:
        logger.warning("minedraft: the trace cannot be read, so its figures are missing: %s", error)
        return None


def _create_config(engine: EngineArgs) -> VllmConfig:
    """What the engine will run with, so that what is refused is so before it starts."""
    try:
        return engine.create_engine_config()
    except ConfigError:
        raise
    # What vLLM raises for a bad argument or model.
    except (ValueError, OSError) as error:
        raise MineDraftError(f"minedraft: the engine cannot start: {first_lines(error)}") from error


def start_llm(engine: EngineArgs) -> LLM:
    """vLLM's engine.

    Raises:
        ConfigError: minedraft refuses the arguments, before anything starts.
        MineDraftError: vLLM does, or the engine ended while it started.
    """
    try:
        return LLM.from_engine_args(engine)
    except ConfigError:
        raise
    # The kinds that vLLM raises for a bad argument or model, and for an engine that ends while
    # it starts; it has printed the reason then.
    except (ValueError, OSError, RuntimeError) as error:
        raise MineDraftError(f"minedraft: the engine did not start: {error}") from error


def _engine_arguments(run: OfflineRun) -> EngineArgs:
    flags = ["--model", run.target, "--dtype", run.dtype, "--seed", str(run.seed)]
    flags += ["--max-num-seqs", str(run.max_num_seqs), "--disable-log-stats", *run.engine_flags]
    engine = parse_engine_flags(flags, run.config)
    if current_platform.is_cpu():
        engine.enforce_eager = True
    engine.scheduler_cls = SCHEDULER
    return engine


def _inputs(model: ModelConfig, run: OfflineRun) -> list[Any]:
    """The prompts as vLLM takes them.

    Raises:
        ConfigError: a prompt is too long (vLLM would refuse all others with it), or there is
            no chat template.
    """
    if model.skip_tokenizer_init:
        raise ConfigError.bad_value("--skip-tokenizer-init", True, "not given: prompts are text")
    tokenizer: Any = cached_tokenizer_from_config(model)
    texts = [prompt.text for prompt in run.prompts]
    if run.chat:
        texts = [_chat(tokenizer, text, run.target) for text in texts]
    limit = model.max_model_len
    for prompt, text in zip(run.prompts, texts, strict=True):
        if (length := len(tokenizer.encode(text))) >= limit:
            raise ConfigError(
                f"minedraft: prompt {prompt.id!r} of --prompts has {length} tokens; allowed: fewer "
                f"than max_model_len = {limit}"
            )
    return texts


def _chat(tokenizer: Any, text: str, target: str) -> str:
    if getattr(tokenizer, "chat_template", None) is None:
        raise ConfigError(f"minedraft: --chat is not allowed: {target!r} has no chat template")
    message = {"role": "user", "content": text}
    return str(tokenizer.apply_chat_template([message], tokenize=False, add_generation_prompt=True))


def _sampling(run: OfflineRun) -> SamplingParams:
    return SamplingParams(
        temperature=run.temperature,
        max_tokens=run.max_tokens,
        seed=run.seed if run.temperature > 0 else None,
        ignore_eos=run.ignore_eos,
    )


def _row(prompt: Prompt, output: Any) -> dict[str, object]:
    completion = output.outputs[0]
    return {
        "id": prompt.id,
        "token_ids": list(completion.token_ids),
        "text": completion.text,
        "finish_reason": completion.finish_reason,
    }


def _figures(
    run: OfflineRun,
    rows: Sequence[dict[str, Any]],
    summary: Summary | None,
    wall_s: float,
    devices: dict[str, int],
) -> dict[str, object]:
    tokens = sum(len(row["token_ids"]) for row in rows)
    speed = tokens / wall_s if wall_s > 0 else 0.0
    plain: dict[str, object] = {} if summary is None else msgspec.to_builtins(summary)
    return {
        "target": run.target,
        "draft": None if run.config.drafter is None else run.config.drafter.name,
        "prompts": len(rows),
        "max_num_seqs": run.max_num_seqs,
        "generated_tokens": tokens,
        "generate_s": wall_s,
        "tokens_per_s": speed,
        "devices": devices,
        "tokens_per_s_per_device": speed / sum(devices.values()),
        "emulate": None if run.config.emulate is None else asdict(run.config.emulate),
        **plain,
    }
