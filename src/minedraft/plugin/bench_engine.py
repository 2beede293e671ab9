"""The engine of one benchmark run, and the requests that it is given.

Owns the mapping of a run's fields to vLLM's arguments, and the clock of the requests; what
the figures mean is minedraft.bench's business.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from vllm import LLM, SamplingParams
from vllm.sampling_params import RequestOutputKind

import minedraft
from minedraft.bench.datasets import BenchPrompt, DatasetSpec, load_dataset
from minedraft.bench.load import LoadSpec, make_arrivals
from minedraft.bench.metrics import RequestTimes
from minedraft.bench.spec import RunSpec
from minedraft.config import MineDraftConfig
from minedraft.errors import ConfigError
from minedraft.methods import MODEL, WITH_MODEL
from minedraft.plugin.engine_config import OPTIONS_KEY, has_virtual_clock
from minedraft.plugin.runtime import clock_of, engine_in_this_process

OWN_SD = "vllm-sd"
"""The mode in which vLLM drafts by itself, in the target's process and on its device."""
_LONGEST_SLEEP_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One request of a run."""

    id: str
    token_ids: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What a run's requests gave, in their order."""

    times: list[RequestTimes]
    token_ids: list[list[int]]


def engine_arguments(spec: RunSpec, trace: Path) -> dict[str, Any]:
    """Arguments of `LLM` for a run; one that minedraft runs writes its steps to `trace`.

    Raises:
        ConfigError: the run asks for what its mode cannot do.
    """
    common: dict[str, Any] = {
        "model": spec.target,
        "dtype": spec.dtype,
        "seed": spec.seed,
        "max_num_seqs": spec.max_num_seqs,
        "enforce_eager": True,
        **spec.engine,
    }
    if spec.max_model_len is not None:
        common["max_model_len"] = spec.max_model_len
    make = _own_sd if spec.mode == OWN_SD else _minedraft
    return {**common, **make(spec, trace)}


def _own_sd(spec: RunSpec, trace: Path) -> dict[str, Any]:
    if spec.emulate is not None:
        raise ConfigError.bad_value(
            "mode", spec.mode, "any other with emulate: vLLM's own drafter cannot be emulated"
        )
    if spec.target_cores is not None:
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = spec.target_cores
    method = _own_method(spec) | {"num_speculative_tokens": spec.num_speculative_tokens}
    return {"speculative_config": method, "disable_log_stats": False}


def _own_method(spec: RunSpec) -> dict[str, Any]:
    """What vLLM calls the method; its options are called the same."""
    if spec.draft_method == MODEL:
        return {"method": "draft_model", "model": spec.draft}
    if spec.draft_method in WITH_MODEL:
        return {"method": spec.draft_method, "model": spec.draft}
    if ":" in spec.draft_method:
        raise ConfigError.bad_value(
            "draft_method", spec.draft_method, f"one that vLLM has, with mode {spec.mode!r}"
        )
    return {"method": spec.draft_method, **spec.draft_options}


def _minedraft(spec: RunSpec, trace: Path) -> dict[str, Any]:
    options: dict[str, Any] = {"mode": spec.mode, "trace": str(trace)}
    optional = {
        "draft_model": spec.draft,
        "draft_device": spec.draft_device,
        "draft_dtype": None if spec.draft is None or spec.dtype == "auto" else spec.dtype,
        "target_cores": spec.target_cores,
        "emulate": spec.emulate,
        "draft_method": None if spec.draft_method == MODEL else spec.draft_method,
        "draft_options": spec.draft_options or None,
        "num_speculative_tokens": spec.value("num_speculative_tokens"),
    }
    options |= {name: value for name, value in optional.items() if value is not None}
    options |= {f"tetris_{name}": value for name, value in (spec.tetris or {}).items()}
    return {"disable_log_stats": True, **minedraft.engine_args(**options)}


@contextmanager
def running_engine(arguments: Mapping[str, Any]) -> Iterator[LLM]:
    """An engine for the time of the context; its processes end with it."""
    options = arguments.get("additional_config", {}).get(OPTIONS_KEY)
    if options is not None and has_virtual_clock(MineDraftConfig.from_mapping(options)):
        engine_in_this_process()
    llm = LLM(**arguments)
    try:
        yield llm
    finally:
        llm.llm_engine.engine_core.shutdown()


def read_questions(spec: RunSpec, tokenizer: Any) -> list[Question]:
    """The prompts of a run, as the target's tokens.

    Raises:
        ConfigError: the data set cannot be read, or `chat` is asked of a model that has no
            chat template.
    """
    if spec.chat and getattr(tokenizer, "chat_template", None) is None:
        raise ConfigError.bad_value("chat", True, f"false: {spec.target!r} has no chat template")
    encode = _encoder(spec, tokenizer)
    loaded = load_dataset(DatasetSpec.from_mapping(spec.dataset), lambda text: len(encode(text)))
    return [_question(prompt, encode) for prompt in loaded.prompts]


def _encoder(spec: RunSpec, tokenizer: Any) -> Callable[[str], list[int]]:
    def encode(text: str) -> list[int]:
        if not spec.chat:
            return list(tokenizer.encode(text))
        message = [{"role": "user", "content": text}]
        text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        return list(tokenizer.encode(text, add_special_tokens=False))

    return encode


def _question(prompt: BenchPrompt, encode: Callable[[str], list[int]]) -> Question:
    return Question(id=prompt.id, token_ids=encode(prompt.text))


def ask(llm: LLM, questions: Sequence[Question], spec: RunSpec) -> Answered:
    """Send the questions as the run's load says, and note when their tokens came.

    Times are seconds from the start of the run.
    """
    return _Asking(llm, questions, spec).run()


class _Asking:
    """One run in progress."""

    def __init__(self, llm: LLM, questions: Sequence[Question], spec: RunSpec) -> None:
        self._engine = llm.llm_engine
        self._waiting = list(reversed(questions))
        self._order = [each.id for each in questions]
        load = LoadSpec.from_mapping(spec.load)
        self._arrivals = make_arrivals(load, len(questions), random.Random(spec.seed))
        self._params = SamplingParams(
            temperature=spec.temperature,
            max_tokens=spec.max_tokens,
            seed=spec.seed if spec.temperature > 0 else None,
            ignore_eos=spec.ignore_eos,
            output_kind=RequestOutputKind.DELTA,
        )
        self._times: dict[str, RequestTimes] = {}
        self._tokens: dict[str, list[int]] = {}
        self._num_open = 0
        self._clock = clock_of(llm)
        self._begin_ns = self._clock.now_ns()

    def run(self) -> Answered:
        while self._waiting or self._num_open:
            self._send()
            if self._num_open:
                self._receive()
            elif (next_at_s := self._arrivals.next_at_s()) is not None:
                self._sleep_until(next_at_s)
        return Answered(
            times=[self._times[each] for each in self._order],
            token_ids=[self._tokens[each] for each in self._order],
        )

    def _now_s(self) -> float:
        return (self._clock.now_ns() - self._begin_ns) / 1e9

    def _sleep_until(self, at_s: float) -> None:
        """Sleep for a while, until `at_s` at most."""
        ends_s = min(at_s, self._now_s() + _LONGEST_SLEEP_S)
        # Rounded up: a clock that stops short of an arrival would stand there for ever.
        self._clock.sleep_until_ns(self._begin_ns + math.ceil(ends_s * 1e9))

    def _send(self) -> None:
        for arrival_s in self._arrivals.due(self._now_s(), self._num_open):
            question = self._waiting.pop()
            self._times[question.id] = RequestTimes(
                id=question.id,
                arrival_s=arrival_s,
                num_prompt_tokens=len(question.token_ids),
                num_output_tokens=0,
            )
            self._tokens[question.id] = []
            prompt: Any = {"prompt_token_ids": question.token_ids}
            self._engine.add_request(question.id, prompt, self._params)
            self._num_open += 1

    def _receive(self) -> None:
        outputs = self._engine.step()
        now_s = self._now_s()
        for output in outputs:
            completion = output.outputs[0]
            self._note(output.request_id, now_s, list(completion.token_ids))
            if output.finished:
                self._finish(output.request_id, now_s, completion.finish_reason)

    def _note(self, request_id: str, now_s: float, token_ids: list[int]) -> None:
        if not token_ids:
            return
        self._tokens[request_id] += token_ids
        times = self._times[request_id]
        self._times[request_id] = replace(
            times,
            first_token_s=now_s if times.first_token_s is None else times.first_token_s,
            token_s=[*times.token_s, (now_s, len(token_ids))],
            num_output_tokens=times.num_output_tokens + len(token_ids),
        )

    def _finish(self, request_id: str, now_s: float, reason: str | None) -> None:
        self._num_open -= 1
        done = self._times[request_id]
        self._times[request_id] = replace(done, finish_s=now_s, finish_reason=reason)
