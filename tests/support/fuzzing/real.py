"""vLLM engines for fuzzed runs: one with minedraft, and plain ones to compare with.

Owns engines inside this process, so that their scheduler can be looked at; workers and
drafter are processes of their own, as always.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

import minedraft
from fuzzing.drafter import MODULE, REPORT_FOLDER, Report, report_path
from fuzzing.drafts import drafter_options
from fuzzing.footprint import drafter_figures, is_answering, scheduler_footprint
from fuzzing.plan import MAX_MODEL_LEN, EngineSettings, Event, EventKind, Life, Sampling
from fuzzing.verdict import Completion
from minedraft.models.made_up import MadeUpPair
from quick_start import fork_engines

_MAX_NUM_SEQS = 8
_TIGHT_BLOCKS = 14
_REPLY_TIMEOUT_S = 0.2  # short, so that a drafter that was stopped is late
_REPORT_TIMEOUT_S = 10.0
_RETURN_TIMEOUT_S = 60.0

_COMMON = {
    "dtype": "float32",
    "enforce_eager": True,
    "max_model_len": MAX_MODEL_LEN,
    "block_size": 32,
    "disable_log_stats": True,
    "kv_cache_memory_bytes": 2**28,
}


@contextmanager
def _engine(target: Path, **options: Any) -> Iterator[Any]:
    """A vLLM engine whose core runs in this process."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    fork_engines()
    from vllm import LLM

    llm = LLM(str(target), **_COMMON, **options)
    try:
        yield llm.llm_engine
    finally:
        llm.llm_engine.engine_core.shutdown()


class PlainDecoder:
    """The target under vLLM alone. Remembers what it was asked."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._known: dict[tuple[tuple[int, ...], Sampling], Completion] = {}

    def decode(self, wanted: Iterable[Life]) -> dict[Life, Completion]:
        """The one right output of each life."""
        lives = list(wanted)
        outputs: dict[tuple[tuple[int, ...], Sampling], list[Completion]] = {}
        asked = {}
        for number, key in enumerate({_key(each) for each in lives} - self._known.keys()):
            prompt, sampling = key
            params = sampling_params(sampling, n=1)
            asked[str(number)] = key
            self._engine.add_request(str(number), {"prompt_token_ids": list(prompt)}, params)
        while self._engine.has_unfinished_requests():
            for output in self._engine.step():
                outputs[asked[output.request_id]] = [_completion(output.outputs[0])]
        self._known.update((key, found[0]) for key, found in outputs.items())
        return {each: self._known[_key(each)] for each in lives}

    def gap(self, life: Life, position: int) -> float:
        """By how much the best token at an output position beats the second, in log units."""
        sampling = replace(life.sampling, logprobs=None, max_tokens=position + 1)
        params = sampling_params(sampling, n=1)
        params.logprobs = 2
        prompt = {"prompt_token_ids": list(life.prompt)}
        self._engine.add_request("gap", prompt, params)
        entry: Mapping[int, Any] = {}
        while self._engine.has_unfinished_requests():
            for output in self._engine.step():
                entry = output.outputs[0].logprobs[-1]
        best = sorted((each.logprob for each in entry.values()), reverse=True)
        return float(best[0] - best[1])


def _key(life: Life) -> tuple[tuple[int, ...], Sampling]:
    return life.prompt, replace(life.sampling, n=1)


@contextmanager
def plain_decoder(target: Path) -> Iterator[PlainDecoder]:
    """Plain vLLM, as large as need be."""
    options = {"max_num_seqs": 16, "distributed_executor_backend": "mp"}
    with _engine(target, **options) as engine:
        yield PlainDecoder(engine)


@contextmanager
def real_subject(settings: EngineSettings, pair: MadeUpPair, folder: Path) -> Iterator[RealSubject]:
    """An engine with minedraft; its heads, if any, and the drafter's reports are in `folder`."""
    from minedraft.plugin import lifecycle

    options: dict[str, Any] = {
        "max_num_seqs": _MAX_NUM_SEQS,
        "scheduling_policy": settings.policy,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
    }
    if settings.tight_kv:
        options["num_gpu_blocks_override"] = _TIGHT_BLOCKS
    ours: dict[str, Any] = {"mode": settings.mode}
    if settings.mode != "none":
        ours |= {"num_speculative_tokens": settings.k, "draft_reply_timeout_s": _REPLY_TIMEOUT_S}
        ours |= drafter_options(settings, pair, folder / "heads")
    reports = folder / "reports"
    reports.mkdir(parents=True, exist_ok=True)
    os.environ[REPORT_FOLDER] = str(reports)
    lifecycle.DRAFTER_MODULE = MODULE
    with _engine(pair.target, **options, **minedraft.engine_args(**ours)) as engine:
        yield RealSubject(engine, reports, has_drafter=settings.mode != "none")


class RealSubject:
    """See `drive.Subject`."""

    def __init__(self, engine: Any, reports: Path, *, has_drafter: bool) -> None:
        self._engine, self._reports, self._has_drafter = engine, reports, has_drafter
        self._core = engine.engine_core.engine_core
        self._outputs: dict[str, dict[int, Completion]] = {}
        self._preemptions = self._steps = 0
        self._is_killed = False
        self._num_reports: dict[int, int] = {}
        self._count_preemptions()

    def add(self, life: Life, priority: int) -> None:
        self._outputs[life.name] = {}
        self._engine.add_request(
            life.name,
            {"prompt_token_ids": list(life.prompt)},
            sampling_params(life.sampling, n=life.sampling.n),
            priority=priority,
        )

    def abort(self, name: str) -> None:
        self._engine.abort_request([name])

    def turn(self) -> None:
        for output in self._engine.step():
            found = self._outputs[output.request_id]
            found.update((each.index, _completion(each)) for each in output.outputs)
        self._steps += 1

    def is_busy(self) -> bool:
        return bool(
            self._engine.has_unfinished_requests()
            or self._core.batch_queue
            or self._core.scheduler.has_requests()
        )

    def outputs(self, name: str) -> Sequence[Completion]:
        return tuple(self._outputs[name].values())

    def happen(self, event: Event) -> None:
        if event.kind is EventKind.KILL_DRAFTER:
            self._signal(signal.SIGKILL)
            self._is_killed = self._has_drafter
        elif event.kind is EventKind.STOP_DRAFTER:
            self._signal(signal.SIGSTOP)
        else:
            self._engine.reset_prefix_cache(event.kind is EventKind.RESET_RUNNING)

    def recover(self) -> None:
        """A killed one comes back by itself, but after most runs would be over: wait for it.

        The requests of the run then wait in the middle of their decoding, and meet it.
        """
        self._signal(signal.SIGCONT)
        deadline = time.monotonic() + _RETURN_TIMEOUT_S
        while self._is_killed and time.monotonic() < deadline:
            self._is_killed = not self.has_drafter()
            time.sleep(0.02)

    def has_drafter(self) -> bool:
        self._source.collect()
        return not self._has_drafter or is_answering(self._source)

    def footprint(self) -> Mapping[str, int]:
        scheduler = self._core.scheduler
        counts = dict(scheduler_footprint(scheduler))
        report = self._report()
        if report is not None:
            counts["free blocks of the drafter"] = report.free_blocks
            counts["requests in the drafter"] = report.requests
        return counts

    def figures(self) -> Mapping[str, int]:
        return {
            "turns": self._steps,
            "preemptions": self._preemptions,
            **drafter_figures(self._source),
        }

    @property
    def _source(self) -> Any:
        return self._core.scheduler._source

    def _signal(self, number: signal.Signals) -> None:
        """To the drafter, if there is one; its process is a child, so its id stays its own."""
        if self._has_drafter and self._source._link._connection.is_alive():
            process = self._source._link._connection.process
            os.kill(process.pid, number)
            if number == signal.SIGKILL:
                process.wait()  # so that the next look at it notices

    def _report(self) -> Report | None:
        """What the drafter says that it holds; None without a drafter."""
        if not self._has_drafter or not is_answering(self._source):
            return None
        pid = self._source._link._connection.process.pid
        path = report_path(self._reports, pid)
        seen = self._num_reports.get(pid, 0)
        self._signal(signal.SIGUSR1)
        deadline = time.monotonic() + _REPORT_TIMEOUT_S
        while time.monotonic() < deadline:
            if path.exists():
                report = msgspec.json.decode(path.read_bytes(), type=Report)
                if report.number > seen:
                    self._num_reports[pid] = report.number
                    return report
            time.sleep(0.002)
        raise TimeoutError(f"the drafter gave no report for {_REPORT_TIMEOUT_S:g} s")

    def _count_preemptions(self) -> None:
        scheduler = self._core.scheduler
        preempt = scheduler._preempt_request

        def counting(*args: Any, **kwargs: Any) -> Any:
            self._preemptions += 1
            return preempt(*args, **kwargs)

        scheduler._preempt_request = counting


def sampling_params(sampling: Sampling, *, n: int) -> Any:
    """vLLM's settings of a request."""
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    regex = StructuredOutputsParams(regex=sampling.regex) if sampling.regex else None
    params = SamplingParams(
        n=n,
        temperature=sampling.temperature,
        top_k=1 if sampling.temperature else 0,
        max_tokens=sampling.max_tokens,
        min_tokens=sampling.min_tokens,
        ignore_eos=sampling.ignore_eos,
        stop_token_ids=list(sampling.stop_token_ids),
        repetition_penalty=sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        allowed_token_ids=list(sampling.allowed_token_ids) or None,
        logprobs=sampling.logprobs,
        stop=list(sampling.stop),
        structured_outputs=regex,
    )
    if sampling.bad_words:
        # Given as token ids: as text they would depend on how a tokenizer joins words.
        params._bad_words_token_ids = [list(word) for word in sampling.bad_words]
    return params


def _completion(output: Any) -> Completion:
    tokens = tuple(output.token_ids)
    logprobs = None
    if output.logprobs is not None:
        pairs = zip(tokens, output.logprobs, strict=True)
        logprobs = tuple(float(entry[token].logprob) for token, entry in pairs)
    return Completion(
        token_ids=tokens,
        finish_reason=output.finish_reason,
        stop_reason=output.stop_reason,
        logprobs=logprobs,
        text=output.text,
    )
