"""What a policy decides, and the words for it.

Owns the Protocol and its data; it decides nothing itself. A policy is pure: it sees
request ids and the state of their drafts, so the scheduler inside vLLM and a simulator
can run the very same object.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from minedraft.batching import Batch


class DraftState(Enum):
    """What a decoding request has to be verified with."""

    NONE = auto()
    """No drafts, and none asked for: a plain decode."""
    PENDING = auto()
    """The drafter was asked and has not answered."""
    READY = auto()
    """The drafter answered (with no drafts, if it could not draft)."""
    IN_FLIGHT = auto()
    """Handed to the target; its output is not back."""


class Drafting(Enum):
    """How a policy comes by drafts."""

    ON_DEMAND = auto()
    """Requests are drafted when they are asked for."""
    AHEAD = auto()
    """So too, but the drafter guesses on meanwhile, and may hold the answer already."""
    UNASKED = auto()
    """The drafter always guesses, and reports after every pass."""


States = Mapping[str, DraftState]
"""The state of every decoding request, by request id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """The decoding requests of the next step; prompts are added by the scheduler."""

    verify: tuple[str, ...] = ()
    batch: Batch | None = None
    """The batch that `verify` is; None if it is no batch of two."""
    wait_for: tuple[str, ...] = ()
    """With nothing to verify: the requests whose drafts come next."""
    batch_sizes: tuple[int, int] = (0, 0)
    """Decoding requests in batch 0 and batch 1; an unsplit policy has them all in batch 0."""


class Policy(Protocol):
    """Chooses who is verified and who is drafted, one step after the other."""

    name: str
    drafting: Drafting
    max_concurrent_batches: int
    """How many steps may be queued on the target at once."""

    def admit(self, request_id: str, just_verified: Batch | None) -> None:
        """Take in a request that begins to decode.

        `just_verified` is the batch of the step that ended its prompt, if it had one.
        """
        ...

    def remove(self, request_id: str) -> None:
        """Forget a request that finished, was aborted or preempted; unknown ids are ignored."""
        ...

    def select(self, states: States, *, busy: bool) -> StepPlan:
        """Plan the next step; taking the plan counts as the turn of its batch.

        `busy` says that the target is running a step. A plan may hold nothing to verify and
        nothing to wait for: then the next step is due when the running one is back.
        """
        ...

    def next_drafts(self, states: States) -> list[tuple[str, ...]]:
        """Groups of requests to ask drafts for now, in the order they are needed."""
        ...


def undrafted(states: States) -> tuple[str, ...]:
    """The requests that could run now as plain decodes."""
    none = DraftState.NONE
    return tuple([each for each, state in states.items() if state is none])


def runnable(states: States) -> tuple[str, ...]:
    """The requests that could run now, with drafts or without."""
    none, ready = DraftState.NONE, DraftState.READY
    return tuple([each for each, state in states.items() if state is none or state is ready])


def pending(states: States) -> tuple[str, ...]:
    """The requests whose drafts are on their way."""
    awaited = DraftState.PENDING
    return tuple([each for each, state in states.items() if state is awaited])


def run_all(states: States, *, busy: bool) -> StepPlan:
    """Everyone at once; nobody while others decode, so that newcomers join the rest."""
    decoding = busy and DraftState.IN_FLIGHT in states.values()
    return StepPlan(verify=() if decoding else runnable(states), batch_sizes=(len(states), 0))


def draft_together(states: States) -> list[tuple[str, ...]]:
    """Everyone, as soon as nobody holds or awaits drafts."""
    return [tuple(states)] if is_draftable(states.values()) else []


def verify_together(states: States) -> StepPlan:
    """All requests in one step, once no drafts are awaited; until then those without drafts."""
    awaited, sizes = pending(states), (len(states), 0)
    if not awaited:
        return StepPlan(verify=runnable(states), batch_sizes=sizes)
    if fillers := undrafted(states):
        return StepPlan(verify=fillers, batch_sizes=sizes)
    return StepPlan(wait_for=awaited, batch_sizes=sizes)


def is_selectable(held: Collection[DraftState]) -> bool:
    """Whether requests in these states can be verified as one group now: none is awaited."""
    states = list(held)
    num_usable = states.count(DraftState.NONE) + states.count(DraftState.READY)
    return bool(states) and num_usable == len(states)


def is_draftable(held: Collection[DraftState]) -> bool:
    """Whether requests in these states can be drafted as one group now: none holds or awaits
    anything."""
    states = list(held)
    return bool(states) and states.count(DraftState.NONE) == len(states)
