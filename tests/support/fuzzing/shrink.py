"""From a plan that fails to a small one that still does.

Owns the order in which a plan is cut down; whether a smaller one still fails is asked of
the caller, since every try costs a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, replace
from typing import Any

from fuzzing.plan import EngineSettings, RequestPlan, RunPlan, Sampling

Predicate = Callable[[RunPlan], bool]


def shrink(
    plan: RunPlan, fails: Predicate, *, most_tries: int = 300, keep_engine: bool = False
) -> RunPlan:
    """The smallest plan found that still fails; `plan` itself must.

    Greedy: every candidate that fails is taken, and the search begins again from it, until
    none fails or `most_tries` are used up.
    """
    tries = 0
    found = True
    while found:
        found = False
        for candidate in _candidates(plan, keep_engine):
            if tries == most_tries:
                return plan
            tries += 1
            if fails(candidate):
                plan, found = candidate, True
                break
    return plan


def _candidates(plan: RunPlan, keep_engine: bool) -> Iterator[RunPlan]:
    """Smaller plans, those that cut away most first."""
    yield from (replace(plan, requests=each) for each in _parts(plan.requests) if each)
    yield from (replace(plan, events=each) for each in _parts(plan.events))
    if any(request.arrival for request in plan.requests):
        yield replace(plan, requests=tuple(replace(each, arrival=0) for each in plan.requests))
    for at, request in enumerate(plan.requests):
        for smaller in _smaller_requests(request):
            yield replace(plan, requests=_put(plan.requests, at, smaller))
    for at, event in enumerate(plan.events):
        for turn in _below(event.turn, 0):
            yield replace(plan, events=_put(plan.events, at, replace(event, turn=turn)))
    for name, value in _defaults(EngineSettings) if not keep_engine else ():
        if name != "pair" and getattr(plan.engine, name) != value:
            yield replace(plan, engine=replace(plan.engine, **{name: value}))


def _smaller_requests(request: RequestPlan) -> Iterator[RequestPlan]:
    for name, value in _defaults(RequestPlan):
        if getattr(request, name) != value:
            yield replace(request, **{name: value})
    for turn in _below(request.arrival, 0):
        yield replace(request, arrival=turn)
    for length in _below(len(request.prompt), 1):
        yield replace(request, prompt=request.prompt[:length])
    for sampling in _smaller_settings(request.sampling):
        yield replace(request, sampling=sampling)


def _smaller_settings(sampling: Sampling) -> Iterator[Sampling]:
    for name, value in _defaults(Sampling):
        if getattr(sampling, name) != value:
            yield replace(sampling, **{name: value})
    for count in _below(sampling.max_tokens, 1):
        yield replace(sampling, max_tokens=count, min_tokens=min(count, sampling.min_tokens))
    for name in ("stop_token_ids", "bad_words"):
        yield from (replace(sampling, **{name: each}) for each in _parts(getattr(sampling, name)))
    # Of the tokens that are allowed one must stay, or all would be.
    parts = _parts(sampling.allowed_token_ids)
    yield from (replace(sampling, allowed_token_ids=each) for each in parts if each)


def _defaults(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    for each in fields(kind):
        if each.default is not MISSING:
            yield each.name, each.default


def _parts(items: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """`items` without a half, a quarter, and so on down to a single one."""
    size = len(items)
    while size > 1:
        size = (size + 1) // 2
        for start in range(0, len(items), size):
            yield items[:start] + items[start + size :]
    if len(items) == 1:
        yield ()


def _below(value: int, least: int) -> Iterator[int]:
    """Values from `least` up to just below `value`, boldest first."""
    step = value - least
    while step > 0:
        yield value - step
        step //= 2


def _put(items: tuple[Any, ...], at: int, item: Any) -> tuple[Any, ...]:
    return (*items[:at], item, *items[at + 1 :])
