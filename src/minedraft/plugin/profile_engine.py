"""The engine that `minedraft profile` measures: one pair, run cell by cell.

Owns how it is started and asked; which passes count is minedraft.profiles', the order of cells
the run's.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vllm import LLM, SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind

from minedraft.config import MineDraftConfig
from minedraft.errors import MineDraftError
from minedraft.plugin.engine_config import SCHEDULER
from minedraft.plugin.engine_flags import parse_engine_flags
from minedraft.plugin.offline import start_llm
from minedraft.plugin.request_terms import LIMIT_KEY
from minedraft.profiles import Cell, Samples, gather
from minedraft.trace import StepRecord, read_trace


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledPair:
    """What is measured; `engine_flags` are flags of vLLM's engine, as on its command line.

    `config` is of mode sequential, with the largest k.
    """

    target: str
    config: MineDraftConfig
    dtype: str
    seed: int
    max_num_seqs: int
    max_model_len: int
    engine_flags: tuple[str, ...] = ()


class ProfiledEngine:
    """An engine that runs cells, and reads of them what its trace says."""

    def __init__(self, llm: LLM, trace: Path, seed: int) -> None:
        self.llm = llm
        self._trace = trace
        self._dice = random.Random(seed)
        self._vocab_size = llm.llm_engine.vllm_config.model_config.get_vocab_size()
        self._num_read = 0
        self._num_asked = 0

    def run(self, cell: Cell, num_tokens: int) -> Samples:
        """One run of a cell with `num_tokens` output tokens for each of its requests.

        Prompts are random tokens, never the same twice: a cached prefix would be no prompt.

        Raises:
            MineDraftError: vLLM refuses the requests, or ends.
        """
        params = SamplingParams(
            temperature=0.0,
            max_tokens=num_tokens,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            extra_args={LIMIT_KEY: cell.num_draft_tokens},
        )
        engine = self.llm.llm_engine
        try:
            for _ in range(cell.num_requests):
                self._num_asked += 1
                prompt: Any = {"prompt_token_ids": self._prompt(cell.prompt_tokens)}
                engine.add_request(str(self._num_asked), prompt, params)
            while engine.has_unfinished_requests():
                engine.step()
        except (ValueError, RuntimeError) as error:
            raise MineDraftError(f"minedraft: vLLM did not run {cell}: {error}") from error
        return gather(self._new_records(), cell)

    def _prompt(self, length: int) -> list[int]:
        return [self._dice.randrange(self._vocab_size) for _ in range(length)]

    def _new_records(self) -> list[StepRecord]:
        """What was traced since the last call; an engine without requests keeps nothing back."""
        records = read_trace(self._trace)[1]
        new, self._num_read = records[self._num_read :], len(records)
        return new


@contextmanager
def profiled_engine(pair: ProfiledPair, trace: Path) -> Iterator[ProfiledEngine]:
    """An engine for the time of the context; its processes end with it.

    Raises:
        ConfigError: a flag or the configuration is refused, before anything starts.
        MineDraftError: the engine did not start.
    """
    llm = start_llm(_engine_arguments(pair, trace))
    try:
        yield ProfiledEngine(llm, trace, pair.seed)
    finally:
        llm.llm_engine.engine_core.shutdown()


def _engine_arguments(pair: ProfiledPair, trace: Path) -> EngineArgs:
    flags = ["--model", pair.target, "--dtype", pair.dtype, "--seed", str(pair.seed)]
    flags += ["--max-num-seqs", str(pair.max_num_seqs)]
    flags += ["--max-model-len", str(pair.max_model_len)]
    flags += ["--disable-log-stats", "--no-enable-prefix-caching", *pair.engine_flags]
    engine = parse_engine_flags(flags, replace(pair.config, trace=str(trace)))
    if current_platform.is_cpu():
        engine.enforce_eager = True
    engine.scheduler_cls = SCHEDULER
    return engine
