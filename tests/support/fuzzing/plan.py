"""One whole run as data: requests, what happens to them, and the engine they run on.

Owns the shape and its JSON; plans are made by `generate` and cut down by `shrink`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import msgspec

VOCAB = 500
"""Token ids of prompts and settings are below this, so that every toy model knows them."""

MAX_MODEL_LEN = 384
"""Of every engine, in tokens: short, so that a KV pool for one such request is tight for eight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What is fixed when an engine starts; plans with equal settings may share one."""

    mode: str
    k: int = 3
    pair: str = "low"
    """The made-up pair, by how many drafts it accepts: 'low' or 'high'."""
    policy: str = "fcfs"
    max_num_batched_tokens: int = 512
    tight_kv: bool = False
    """Whether the target must preempt."""
    tight_draft_kv: bool = False
    """Whether the drafter cannot hold all requests at once."""
    drawn: bool = False
    """Whether drafts of requests with a temperature are drawn."""
    method: str = "model"
    """How drafts are made, a draft_method of minedraft's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Settings under which the next token is a function of the tokens before it.

    Greedy, or, with a temperature, at random among the one best token.
    """

    max_tokens: int
    temperature: float = 0.0
    n: int = 1
    ignore_eos: bool = True
    min_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    bad_words: tuple[tuple[int, ...], ...] = ()
    allowed_token_ids: tuple[int, ...] = ()
    logprobs: int | None = None
    stop: tuple[str, ...] = ()
    regex: str = ""
    """What the text must match."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPlan:
    """One request; `arrival` is the turn of the engine's loop before which it is added."""

    name: str
    prompt: tuple[int, ...]
    sampling: Sampling
    arrival: int = 0
    priority: int = 0
    abort_tokens: int | None = None
    """Abort it when it has this many output tokens."""
    abort_turns: int | None = None
    """Abort it this many turns after its arrival."""
    again: bool = False
    """After an abort the id is used again at once, for the prompt back to front."""


class EventKind(StrEnum):
    """What can happen to a whole engine."""

    RESET_CACHE = "reset the prefix cache"
    RESET_RUNNING = "reset the prefix cache, preempting what runs"
    STOP_DRAFTER = "stop the drafter for a while"
    KILL_DRAFTER = "kill the drafter"


FAULTS = frozenset({EventKind.STOP_DRAFTER, EventKind.KILL_DRAFTER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Happens before turn `turn`; only a stop lasts, for `turns` turns."""

    kind: EventKind
    turn: int
    turns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """A run that can be replayed."""

    seed: int
    engine: EngineSettings
    requests: tuple[RequestPlan, ...]
    events: tuple[Event, ...] = ()

    def to_json(self) -> bytes:
        """Readable JSON of the whole plan."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1)

    @classmethod
    def from_json(cls, data: bytes) -> RunPlan:
        """A plan from `to_json`."""
        return msgspec.json.decode(data, type=cls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One use of a request's id."""

    name: str
    number: int
    prompt: tuple[int, ...]
    sampling: Sampling

    def __str__(self) -> str:
        return f"{self.name} (second life)" if self.number else self.name


def lives(request: RequestPlan) -> Iterator[Life]:
    """Every life that the request may have."""
    yield Life(name=request.name, number=0, prompt=request.prompt, sampling=request.sampling)
    if request.again:
        prompt = request.prompt[::-1]
        yield Life(name=request.name, number=1, prompt=prompt, sampling=request.sampling)
