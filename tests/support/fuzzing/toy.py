"""An engine without any model for fuzzed runs: our scheduler, our book, toy target and draft.

Owns the mapping of a plan onto `FakeEngine`, and the toy's plain decoding. Settings that
only a sampler knows do not exist here.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from fake_engine import FakeEngine, make_vllm_config, next_token
from fuzzing.footprint import drafter_figures, is_answering, scheduler_footprint
from fuzzing.plan import (
    FAULTS,
    MAX_MODEL_LEN,
    EngineSettings,
    Event,
    EventKind,
    Life,
    RunPlan,
    Sampling,
)
from fuzzing.toy_drafter import BookConnection, TurnClock
from fuzzing.verdict import Completion
from minedraft.drafter import client, link, wait_free_client

_TIGHT_BLOCKS, _AMPLE_BLOCKS = 14, 200
_TIGHT_DRAFT_BLOCKS = 26
_TURN_S, _REPLY_TIMEOUT_S, _HANG_TIMEOUT_S = 0.01, 0.08, 0.3
_LOOKS = 30  # a drafter that was late answers at one of them
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
        self._clock = TurnClock()
        self.engine = FakeEngine(
            config,
            num_blocks=_TIGHT_BLOCKS if plan.engine.tight_kv else _AMPLE_BLOCKS,
            new_connection=partial(
                BookConnection,
                random.Random(plan.seed),
                _ACCURACY[plan.engine.pair],
                plan.engine.k,
                _TIGHT_DRAFT_BLOCKS if plan.engine.tight_draft_kv else 1000,
                self._clock,
            ),
        )
        self._source = self.engine.scheduler._source
        self._has_drafter = plan.engine.mode != "none"
        if self._has_drafter:
            self._source._reply_timeout_s = _REPLY_TIMEOUT_S
            self._source._longest_pause_s = 2 * _REPLY_TIMEOUT_S
            self._source._link._hang_timeout_s = _HANG_TIMEOUT_S
        self._is_down = False
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
        self._revive()
        self.engine.step()
        self._clock.now_s += _TURN_S

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
        self._is_down |= event.kind in FAULTS
        if event.kind is EventKind.KILL_DRAFTER:
            self.connection.kill()
        elif event.kind is EventKind.STOP_DRAFTER:
            self.connection.is_stopped = True
        else:
            forced = event.kind is EventKind.RESET_RUNNING
            self.engine.scheduler.reset_prefix_cache(reset_running_requests=forced)

    def recover(self) -> None:
        self.connection.is_stopped = self._is_down = False

    def has_drafter(self) -> bool:
        for _ in range(_LOOKS):
            self._revive()
            self._source.collect()
        return not self._has_drafter or is_answering(self._source)

    def footprint(self) -> Mapping[str, int]:
        counts = dict(scheduler_footprint(self.engine.scheduler))
        if self._has_drafter and is_answering(self._source):
            self.connection.take_in()
            counts["free blocks of the drafter"] = self.connection.device.num_free_blocks
            counts["requests in the drafter's book"] = len(self.connection.book)
        return counts

    def figures(self) -> Mapping[str, int]:
        return {
            "steps": len(self.engine.steps),
            "preemptions": sum(each.num_preemptions for each in self._requests),
            "accepted tokens": self.engine.target.num_accepted,
            **drafter_figures(self._source),
        }

    def _revive(self) -> None:
        """One that hung too long was killed for it, and comes back too."""
        self.engine.is_reviving = self.connection.is_dead and not self._is_down

    @property
    def connection(self) -> BookConnection:
        """The drafter of the moment."""
        connection = self.engine.connection
        assert isinstance(connection, BookConnection)
        return connection

    @contextmanager
    def own_time(self) -> Iterator[None]:
        """Let the client go by turns, not by the clock on the wall."""
        modules: list[Any] = [client, link, wait_free_client]
        before = time
        for module in modules:
            module.time = self._clock
        if self._has_drafter:
            self._source._link._last_heard = self._clock.monotonic()
        try:
            yield
        finally:
            for module in modules:
                module.time = before
