"""Engines and prompts for the tests that run vLLM."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import minedraft
from minedraft.models.made_up import MadeUpPair
from minedraft.trace import Summary, read_trace, summarize

MAX_IN_FLIGHT = 8


@dataclass(frozen=True, slots=True)
class Run:
    """Token ids and finish reasons in the order of the prompts."""

    token_ids: list[list[int]]
    finish_reasons: list[str | None]


@dataclass(slots=True)
class Engine:
    """A running LLM and its trace file."""

    llm: Any
    trace: Path

    def run(
        self,
        prompts: Sequence[list[int]],
        *,
        max_tokens: int | Sequence[int] = 96,
        seed: int | None = None,
        sampling: dict[str, Any] | None = None,
        abort: Sequence[int] = (),
    ) -> Run:
        """Generate; with a `seed`, requests arrive one by one at random times.

        Requests in `abort` are aborted after some steps and come back empty.
        """
        from vllm import SamplingParams

        core = self.llm.llm_engine
        rng = random.Random(seed)
        lengths = [max_tokens] * len(prompts) if isinstance(max_tokens, int) else max_tokens
        options = {"temperature": 0.0, "ignore_eos": True, **(sampling or {})}
        waiting = list(enumerate(prompts))
        label = next(_labels)
        done: dict[int, Any] = {}
        ids: dict[str, int] = {}
        next_at = time.monotonic()
        to_abort = {index: rng.randrange(2, 12) for index in abort}
        while waiting or core.has_unfinished_requests():
            while waiting and (seed is None or time.monotonic() >= next_at):
                index, tokens = waiting.pop(0)
                name = f"{label}-{index}"
                ids[name] = index
                params = SamplingParams(max_tokens=lengths[index], **options)
                core.add_request(name, {"prompt_token_ids": tokens}, params)
                next_at = time.monotonic() + rng.expovariate(1 / 0.02)
            if not core.has_unfinished_requests():
                time.sleep(max(0.0, next_at - time.monotonic()))
                continue
            for output in core.step():
                index = ids[output.request_id]
                if output.finished:
                    done[index] = output.outputs[0]
                elif index in to_abort and len(output.outputs[0].token_ids) >= to_abort[index]:
                    core.abort_request([output.request_id])
                    del to_abort[index]
        return Run(
            [list(done[i].token_ids) if i in done else [] for i in range(len(prompts))],
            [done[i].finish_reason if i in done else None for i in range(len(prompts))],
        )

    def summary(self) -> Summary:
        """Summary of the whole trace so far; call it after the engine was closed."""
        return summarize(*read_trace(self.trace))


_labels = itertools.count()


@contextmanager
def running_engine(
    target: Path, trace: Path, *, engine: dict[str, Any] | None = None, **options: Any
) -> Iterator[Engine]:
    """An engine for the time of the context."""
    from vllm import LLM

    llm = LLM(
        str(target),
        **{
            "dtype": "float32",
            "enforce_eager": True,
            "max_model_len": 512,
            "max_num_seqs": MAX_IN_FLIGHT,
            "block_size": 32,
            "disable_log_stats": True,
            "kv_cache_memory_bytes": 2**28,
            **(engine or {}),
            **minedraft.engine_args(trace=str(trace), **options),
        },
    )
    try:
        yield Engine(llm, trace)
    finally:
        llm.llm_engine.engine_core.shutdown()


def draft_options(pair: MadeUpPair, **more: Any) -> dict[str, Any]:
    """minedraft's options for a made-up pair."""
    return {
        "draft_model": str(pair.draft),
        "draft_dtype": "float32",
        "draft_block_size": 32,
        "draft_kv_cache_gib": 0.1,
        "num_speculative_tokens": 4,
        **more,
    }


def random_prompts(count: int, seed: int, longest: int = 300) -> list[list[int]]:
    """Token prompts of very different lengths, one token included."""
    rng = random.Random(seed)
    lengths = [1, 2, 5, 31, 32, 33, 64, 97, 150, longest]
    return [[rng.randrange(3, 500) for _ in range(rng.choice(lengths))] for _ in range(count)]
