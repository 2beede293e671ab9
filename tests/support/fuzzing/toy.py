"""An engine without any model for fuzzed runs: our scheduler, our book, toy target and draft.

Owns the mapping of a plan onto `FakeEngine`, and the toy's plain decoding. Settings that
only a sampler knows do not exist here.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from fake_engine import VOCAB, FakeConnection, FakeEngine, make_vllm_config, next_token
from fuzzing.footprint import scheduler_footprint
from fuzzing.plan import MAX_MODEL_LEN, EngineSettings, Event, EventKind, Life, RunPlan, Sampling
from fuzzing.verdict import Completion
from minedraft.drafter import DraftBook
from minedraft.transport.messages import Drafts, Update, decode_to_drafter, encode
from toy_device import ToyDevice

_TIGHT_BLOCKS, _AMPLE_BLOCKS = 14, 200
_DRAFT_BLOCK = 16
_TIGHT_DRAFT_BLOCKS = 26
_ACCURACY = {"low": 0.3, "high": 0.9}


def strip(plan: RunPlan) -> RunPlan:
    """The plan with what the toy knows: one output per request, its end, its length."""

    def plain(sampling: Sampling) -> Sampling:
        stops = sampling.stop_token_ids
        return Sampling(max_tokens=sampling.max_tokens, stop_token_ids=stops)

    requests = (replace(each, sampling=plain(each.sampling)) for each in plan.requests)
    return replace(plan, requests=tuple(requests))


def plain_decoding(life: Life) -> Completion:
    """What the toy target alone gives."""
    tokens = list(life.prompt)
    for count in range(1, life.sampling.max_tokens + 1):
        tokens.append(next_token(tokens))
        output = tuple(tokens[len(life.prompt) :])
        if tokens[-1] in life.sampling.stop_token_ids:
            return Completion(token_ids=output, finish_reason="stop", stop_reason=tokens[-1])
        if count == life.sampling.max_tokens or len(tokens) == MAX_MODEL_LEN:
            break
    return Completion(token_ids=output, finish_reason="length")


class BookConnection(FakeConnection):
    """A drafter in this process: the real book on a toy device, a few passes per look."""

    def __init__(self, rng: random.Random, accuracy: float, k: int, num_blocks: int) -> None:
        super().__init__(rng, accuracy, k)
        self.is_stopped = False
        self.device = ToyDevice(
            prefix_caching=True,
            next_token=lambda tokens: _guess(tokens, accuracy),
            vocab_size=VOCAB,
            max_model_len=MAX_MODEL_LEN,
            max_num_batched_tokens=128,
            max_num_seqs=8,
            num_kv_blocks=num_blocks,
            block_size=_DRAFT_BLOCK,
        )
        self.book = DraftBook(self.device)
        self._clock = 1

    def send(self, update: Update) -> None:
        message = decode_to_drafter(encode(update))
        assert isinstance(message, Update)
        self.book.apply(message, self._clock)

    def receive(self, timeout_s: float = 0.0) -> Drafts | None:
        if self.is_dead or self.is_stopped:
            return None
        most = 1000 if timeout_s > 0 else self._rng.randrange(4)
        self._answers.extend(self.book.take_answers())
        while not self._answers and most > 0:
            most = most - 1 if self._one_pass() else 0
            self._answers.extend(self.book.take_answers())
        return self._answers.popleft() if self._answers else None

    def _one_pass(self) -> bool:
        self._clock += 1
        rows = self.book.next_pass(self._clock)
        if rows:
            self.book.record(rows, self.device.run(rows), self._clock)
        return bool(rows)


def _guess(tokens: Sequence[int], accuracy: float) -> int:
    """The target's next token, or another one; always the same after the same tokens."""
    wrong = zlib.crc32(bytes(str(list(tokens[-3:])), "ascii")) % 100 >= accuracy * 100
    return (next_token(tokens) + wrong) % VOCAB


@lru_cache
def _config(target: Path, settings: EngineSettings) -> Any:
    return make_vllm_config(
        target,
        settings.mode,
        k=settings.k,
        scheduling_policy=settings.policy,
        max_model_len=MAX_MODEL_LEN,
        max_num_batched_tokens=settings.max_num_batched_tokens,
    )


@dataclass(slots=True)
class _Current:
    """The newest life of a name, and what the engine calls it."""

    life: Life
    internal: str


class ToySubject:
    """See `drive.Subject`. For one run only: it costs next to nothing to make."""

    def __init__(self, plan: RunPlan, target: Path) -> None:
        # vLLM keeps the number of blocks in the config, so that settings may not share one.
        config = _config(target, replace(plan.engine, pair="low", tight_draft_kv=False))
        tight = plan.engine.tight_draft_kv
        self.connection = BookConnection(
            random.Random(plan.seed),
            _ACCURACY[plan.engine.pair],
            plan.engine.k,
            _TIGHT_DRAFT_BLOCKS if tight else 1000,
        )
        self.engine = FakeEngine(
            config,
            num_blocks=_TIGHT_BLOCKS if plan.engine.tight_kv else _AMPLE_BLOCKS,
            connection=self.connection,
        )
        self._has_drafter = plan.engine.mode != "none"
        self._current: dict[str, _Current] = {}
        self._requests: list[Any] = []

    def add(self, life: Life, priority: int) -> None:
        """vLLM's front end sees to it that no two requests share an id while one runs."""
        taken = self.engine.is_queued(life.name)
        internal = f"{life.name}'" if taken else life.name
        for store in (self.engine.finished, self.engine.endings):
            store.pop(internal, None)
        stops = list(life.sampling.stop_token_ids)
        self._current[life.name] = _Current(life, internal)
        request = self.engine.add(
            internal,
            list(life.prompt),
            life.sampling.max_tokens,
            priority=priority,
            sampling={"stop_token_ids": stops},
        )
        self._requests.append(request)

    def abort(self, name: str) -> None:
        self.engine.abort(self._current[name].internal)

    def turn(self) -> None:
        self.engine.step()

    def is_busy(self) -> bool:
        return self.engine.is_busy()

    def outputs(self, name: str) -> Sequence[Completion]:
        internal = self._current[name].internal
        tokens = tuple(self.engine.finished.get(internal, ()))
        ending = self.engine.endings.get(internal)
        if ending is None:
            return (Completion(token_ids=tokens),)
        reason, stop = str(ending.finish_reason), ending.stop_reason
        return (Completion(token_ids=tokens, finish_reason=reason, stop_reason=stop),)

    def happen(self, event: Event) -> None:
        if event.kind is EventKind.KILL_DRAFTER:
            self.connection.kill()
        elif event.kind is EventKind.STOP_DRAFTER:
            self.connection.is_stopped = True
        else:
            forced = event.kind is EventKind.RESET_RUNNING
            self.engine.scheduler.reset_prefix_cache(reset_running_requests=forced)

    def resume_drafter(self) -> None:
        self.connection.is_stopped = False

    def has_drafter(self) -> bool:
        return not self._has_drafter or self.engine.scheduler._source.available

    def footprint(self) -> Mapping[str, int]:
        scheduler = self.engine.scheduler
        counts = dict(scheduler_footprint(scheduler))
        if self._has_drafter and scheduler._source.available:
            counts["free blocks of the drafter"] = self.connection.device.num_free_blocks
            counts["requests in the drafter's book"] = len(self.connection.book)
        return counts

    def figures(self) -> Mapping[str, int]:
        """See `drive.Subject`."""
        counters = self.engine.scheduler._source.counters
        return {
            "steps": len(self.engine.steps),
            "preemptions": sum(each.num_preemptions for each in self._requests),
            "draft tokens": counters.draft_tokens,
            "accepted tokens": self.engine.target.num_accepted,
            "stale drafts": counters.stale_drafts,
        }
