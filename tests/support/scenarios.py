"""Requests whose answers by minedraft are compared with plain vLLM's, and what is compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Params = dict[str, Any]
"""Arguments of vLLM's SamplingParams."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One completion, and the logprobs that came with it."""

    token_ids: tuple[int, ...]
    text: str
    finish_reason: str | None
    stop_reason: int | str | None
    logprobs: list[dict[int, float]] = field(default_factory=list, compare=False)
    prompt_logprobs: list[dict[int, float]] = field(default_factory=list, compare=False)


@dataclass(frozen=True, slots=True)
class Scenario:
    """Prompts and one set of sampling parameters for each."""

    prompts: list[list[int]]
    params: list[Params]


MakeScenario = Callable[[list[Answer]], Scenario]
"""A scenario, from what the base prompts gave by plain greedy decoding."""


def ask(
    llm: Any, prompts: Sequence[Any], params: Sequence[Params], **more: Any
) -> list[list[Answer]]:
    """The completions of each prompt, all asked for at once; greedy and endless by default."""
    from vllm import SamplingParams

    defaults = {"temperature": 0.0, "max_tokens": 48, "ignore_eos": True}
    asked = [SamplingParams(**{**defaults, **each}) for each in params]
    inputs = [{"prompt_token_ids": p} if isinstance(p, list) else p for p in prompts]
    outputs = llm.generate(inputs, asked, use_tqdm=False, **more)
    return [[_answer(each, output) for each in output.outputs] for output in outputs]


def _answer(completion: Any, output: Any) -> Answer:
    return Answer(
        tuple(completion.token_ids),
        completion.text,
        completion.finish_reason,
        completion.stop_reason,
        _plain(completion.logprobs),
        _plain(output.prompt_logprobs),
    )


def _plain(logprobs: Any) -> list[dict[int, float]]:
    return [
        {token: entry.logprob for token, entry in (each or {}).items()} for each in logprobs or ()
    ]


ENGINE: dict[str, Any] = {
    "dtype": "float32",
    "enforce_eager": True,
    "max_model_len": 512,
    "max_num_seqs": 8,
    "block_size": 32,
    "disable_log_stats": True,
    "kv_cache_memory_bytes": 2**28,
}
"""What every engine of these tests has in common."""


@contextmanager
def running_llm(target: Path, **engine: Any) -> Iterator[Any]:
    """An `LLM` for the time of the context, plain unless minedraft's arguments are given."""
    from vllm import LLM

    llm = LLM(str(target), **{**ENGINE, **engine})
    try:
        yield llm
    finally:
        llm.llm_engine.engine_core.shutdown()
