"""From a seed to a plan.

Owns the choice of what runs look like; it runs none. A plan depends on its arguments alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fuzzing.plan import (
    MAX_MODEL_LEN,
    VOCAB,
    EngineSettings,
    Event,
    EventKind,
    RequestPlan,
    RunPlan,
    Sampling,
)
from minedraft.methods import EAGLE_HEADS, MEDUSA

_FIRST_TOKEN = 3  # what is below is special to the made-up tokenizer
_LENGTHS = (1, 2, 5, 17, 31, 32, 33, 63, 64, 65, 97, 150, 200, 300, MAX_MODEL_LEN - 12)
_PREFIX_LENGTHS = (16, 32, 33, 64, 100, 160)
_STOP_STRINGS = ("a", "x", "th", "q", "zz", "o p", "1")
_REGEXES = (
    "[a-z ]{1,60}",
    "(ab|cd|ef){30}",
    r"\{\"[a-z]{2,5}\": [0-9]{1,12}(, \"[a-z]{2,5}\": \"[^\"]{0,9}\"){0,3}\}",
    "yes|no",
)

SETTINGS = (
    EngineSettings(mode="two-batch"),
    EngineSettings(mode="two-batch", tight_kv=True, tight_draft_kv=True),
    EngineSettings(
        mode="two-batch",
        k=5,
        pair="high",
        policy="priority",
        max_num_batched_tokens=64,
        tight_kv=True,
    ),
    EngineSettings(mode="sequential", tight_kv=True, policy="priority"),
    EngineSettings(mode="two-batch", k=1, max_num_batched_tokens=64, tight_draft_kv=True),
    EngineSettings(
        mode="sequential", k=5, pair="high", max_num_batched_tokens=64, tight_draft_kv=True
    ),
    EngineSettings(
        mode="two-batch", k=5, pair="high", policy="priority", tight_draft_kv=True, drawn=True
    ),
    EngineSettings(mode="sequential", k=1, pair="high", tight_kv=True),
    EngineSettings(mode="wait-free", pair="high", tight_kv=True, tight_draft_kv=True),
    EngineSettings(mode="wait-free", k=5, policy="priority", max_num_batched_tokens=64, drawn=True),
    EngineSettings(mode="pearl", pair="high", tight_draft_kv=True),
)
"""Few, so that plans share engines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Style:
    """What the requests of one run have in common."""

    prefixes: tuple[tuple[int, ...], ...]
    longest_pause: int
    """Turns between two arrivals, at most."""
    odd: float
    """Share of requests with one of each kind of unusual settings."""
    aborted: float


def generate(seed: int, engine: EngineSettings | None = None, *, faults: bool = True) -> RunPlan:
    """The run of this seed, on `engine` if that is given."""
    rng = random.Random(f"minedraft {seed}")
    drawn = rng.choice(SETTINGS)
    style = _Style(
        prefixes=tuple(_tokens(rng, rng.choice(_PREFIX_LENGTHS)) for _ in range(2)),
        longest_pause=rng.choice((0, 0, 1, 3, 8)),
        odd=rng.choice((0.0, 0.1, 0.35)),
        aborted=rng.choice((0.0, 0.15, 0.4)),
    )
    requests = []
    arrival = 0
    for index in range(rng.choice((1, 2, 4, 7, 10, 14))):
        requests.append(_request(rng, style, index, arrival))
        arrival += rng.randint(0, style.longest_pause)
    plan = RunPlan(
        seed=seed,
        engine=engine or drawn,
        requests=tuple(requests),
        events=_events(rng, arrival + 30, faults),
    )
    return plan


def method_engine(seed: int, method: str, engine: EngineSettings | None = None) -> EngineSettings:
    """These settings, or some of `SETTINGS`, for drafts that are made by another method."""
    rng = random.Random(f"minedraft method {seed}")
    settings = replace(engine or rng.choice(SETTINGS), method=method)
    if method in EAGLE_HEADS:
        return settings
    if method == MEDUSA and settings.mode == "pearl":
        settings = replace(settings, mode="wait-free")
    # They have no KV cache, and draw nothing.
    return replace(settings, tight_draft_kv=False, drawn=False)


def any_engine(seed: int) -> EngineSettings:
    """Any settings at all, for engines that cost nothing to start."""
    rng = random.Random(f"minedraft engine {seed}")
    return EngineSettings(
        mode=rng.choice(("two-batch", "wait-free", "pearl", "sequential", "none")),
        k=rng.choice((1, 3, 5)),
        pair=rng.choice(("low", "high")),
        policy=rng.choice(("fcfs", "priority")),
        max_num_batched_tokens=rng.choice((64, 512)),
        tight_kv=rng.random() < 0.5,
        tight_draft_kv=rng.random() < 0.5,
    )


def _request(rng: random.Random, style: _Style, index: int, arrival: int) -> RequestPlan:
    request = RequestPlan(
        name=f"r{index}",
        prompt=_prompt(rng, style.prefixes),
        sampling=_sampling(rng, style.odd),
        arrival=arrival,
        priority=rng.randrange(3),
    )
    if rng.random() >= style.aborted:
        return request
    again = rng.random() < 0.5
    if rng.random() < 0.5:
        return replace(request, abort_turns=rng.randrange(25), again=again)
    return replace(request, abort_tokens=rng.randint(1, 15), again=again)


def _prompt(rng: random.Random, prefixes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    kind = rng.random()
    if kind < 0.1:
        return (rng.randrange(_FIRST_TOKEN, VOCAB),) * rng.choice(_LENGTHS[:-3])
    if kind < 0.5:
        # A prompt that is nothing but the prefix is wanted too.
        return rng.choice(prefixes) + _tokens(rng, rng.choice((0, 1, 5, 40)))
    return _tokens(rng, rng.choice(_LENGTHS))


def _sampling(rng: random.Random, odd: float) -> Sampling:
    sampling = Sampling(max_tokens=rng.randint(1, 40))
    for change in (_penalties, _allowed, _banned, _stops, _least, _eos, _strings, _regex, _random):
        if rng.random() < odd:
            sampling = change(rng, sampling)
    if rng.random() < odd:
        sampling = replace(sampling, logprobs=rng.choice((0, 1, 3)))
    return sampling


def _penalties(rng: random.Random, sampling: Sampling) -> Sampling:
    return replace(
        sampling,
        repetition_penalty=rng.choice((1.0, 0.8, 1.3)),
        presence_penalty=rng.choice((0.0, 0.7, -0.5)),
        frequency_penalty=rng.choice((0.0, 0.9, -0.3)),
    )


def _allowed(rng: random.Random, sampling: Sampling) -> Sampling:
    return replace(sampling, allowed_token_ids=_choice(rng, rng.choice((4, 30, 200))))


def _banned(rng: random.Random, sampling: Sampling) -> Sampling:
    return replace(sampling, bad_words=_bad_words(rng, sampling.allowed_token_ids))


def _stops(rng: random.Random, sampling: Sampling) -> Sampling:
    known = sampling.allowed_token_ids or tuple(range(_FIRST_TOKEN, VOCAB))
    stops = rng.sample(known[1:], max(1, len(known) // 20))
    return replace(sampling, stop_token_ids=tuple(sorted(stops)))


def _least(rng: random.Random, sampling: Sampling) -> Sampling:
    return replace(sampling, min_tokens=rng.randint(1, sampling.max_tokens))


def _eos(rng: random.Random, sampling: Sampling) -> Sampling:
    return replace(sampling, ignore_eos=False)


def _strings(rng: random.Random, sampling: Sampling) -> Sampling:
    return replace(sampling, stop=tuple(rng.sample(_STOP_STRINGS, 3)))


def _regex(rng: random.Random, sampling: Sampling) -> Sampling:
    """Alone: with other limits on what may come next, there might be nothing that may."""
    return Sampling(max_tokens=sampling.max_tokens, regex=rng.choice(_REGEXES))


def _random(rng: random.Random, sampling: Sampling) -> Sampling:
    return replace(sampling, temperature=rng.choice((0.5, 1.0, 2.0)), n=rng.choice((1, 2)))


def _bad_words(rng: random.Random, allowed: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Single tokens, and pairs that can be met where few tokens are allowed.

    The first token that is allowed stays possible: with nothing left, a result means nothing.
    """
    if not allowed:
        return tuple((token,) for token in _choice(rng, 40))
    singles = rng.sample(allowed[1:], len(allowed) // 4)
    pairs = [(rng.choice(allowed), rng.choice(allowed[1:])) for _ in range(len(allowed))]
    return (*((token,) for token in singles), *pairs)


def _events(rng: random.Random, last_turn: int, faults: bool) -> tuple[Event, ...]:
    chances = {EventKind.RESET_CACHE: 0.2, EventKind.RESET_RUNNING: 0.15}
    # Drawn in any case, so that a plan without faults is otherwise the same.
    fault_chances = {EventKind.STOP_DRAFTER: 0.12, EventKind.KILL_DRAFTER: 0.06}
    events = [
        Event(kind=kind, turn=rng.randrange(1, last_turn))
        for kind, chance in chances.items()
        if rng.random() < chance
    ]
    found = [
        Event(kind=kind, turn=rng.randrange(1, last_turn), turns=rng.randint(1, 40))
        for kind, chance in fault_chances.items()
        if rng.random() < chance
    ]
    return tuple(sorted(events + found * faults, key=lambda event: event.turn))


def _choice(rng: random.Random, count: int) -> tuple[int, ...]:
    return tuple(sorted(rng.sample(range(_FIRST_TOKEN, VOCAB), count)))


def _tokens(rng: random.Random, count: int) -> tuple[int, ...]:
    return tuple(rng.randrange(_FIRST_TOKEN, VOCAB) for _ in range(count))
