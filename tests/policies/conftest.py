"""A scheduler, a drafter and a target on a fake clock, around a real policy.

Owns time and the rules that every policy must keep, which it asserts at each turn; what a
single policy promises beyond them is for the tests. The turn has the shape of an engine
with a queue of steps: schedule while the queue has room, else take the oldest output in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from minedraft.batching import Batch
from minedraft.policies import (
    DraftState,
    NonePolicy,
    PearlPolicy,
    Policy,
    SequentialPolicy,
    States,
    StepPlan,
    TwoBatchPolicy,
)

WAIT_SLICE = 10
DECLINED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One request. Times are ms; `accepts` is cycled: tokens accepted, or DECLINED."""

    arrival: int = 0
    tokens: int = 20
    accepts: tuple[int, ...] = (4,)
    abort_at: int | None = None
    preempt_at: tuple[int, ...] = ()


@dataclass(slots=True, kw_only=True)
class Record:
    """One step as it ran."""

    start: int
    end: int
    plan: StepPlan
    lives: dict[str, int]
    prompts: tuple[str, ...]
    drafted: frozenset[str]
    busy: bool

    @property
    def verify(self) -> tuple[str, ...]:
        return self.plan.verify

    @property
    def batch(self) -> Batch | None:
        return self.plan.batch


@dataclass(slots=True, kw_only=True)
class Ticket:
    done_at: int
    members: dict[str, int]


@dataclass(slots=True, kw_only=True)
class Live:
    spec: Spec
    life: int = 0
    produced: int = 0
    num_verified: int = 0
    ticket: Ticket | None = None
    drafted: bool = False
    skipped: int = 0
    """Steps that it could have been part of since it was served last."""


@dataclass(slots=True, kw_only=True)
class Simulation:
    """Runs the requests `specs` (named r0, r1, ...) to their end."""

    policy: Policy
    specs: Sequence[Spec]
    draft_ms: int
    verify_ms: int
    dies_at: int | None = None
    max_skipped: int | None = None
    """Steps in a row that a request may be left out of, though it could run; None: two, and
    as many as prompts can fill while its batch is drafted."""
    max_steps: int | None = None
    """End after so many steps; None: when all requests are done."""
    now: int = 0
    records: list[Record] = field(default_factory=list)
    asked: list[tuple[str, ...]] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=dict)
    aborted: set[str] = field(default_factory=set)
    admitted_at: dict[str, int] = field(default_factory=dict)
    """Number of steps scheduled before the first token of each request came back."""
    _live: dict[str, Live] = field(default_factory=dict)
    _waiting: list[str] = field(default_factory=list)
    _decoding: dict[str, None] = field(default_factory=dict)
    _in_flight: dict[str, Record] = field(default_factory=dict)
    _steps: deque[Record] = field(default_factory=deque)
    _events: deque[tuple[int, str, str]] = field(default_factory=deque)
    _drafter_free_at: int = 0
    _acts: NonePolicy = field(default_factory=NonePolicy)

    def run(self) -> Simulation:
        """All requests to their end; AssertionError at the first broken rule."""
        for number, spec in enumerate(self.specs):
            name = f"r{number}"
            self._events.append((spec.arrival, name, "arrive"))
            self._events.extend((at, name, "preempt") for at in spec.preempt_at)
            if spec.abort_at is not None:
                self._events.append((spec.abort_at, name, "abort"))
        self._events = deque(sorted(self._events, key=lambda event: event[0]))
        budget = 60 * sum(spec.tokens + 4 for spec in self.specs) + 200
        while (self._events or self._live) and len(self.records) != self.max_steps:
            budget -= 1
            assert budget > 0, f"no end: {self._states()} at {self.now}"
            self._turn()
        return self

    # -- the engine's loop -----------------------------------------------------------

    def _turn(self) -> None:
        self._deliver()
        if self._live and len(self._steps) < self.policy.max_concurrent_batches:
            if self._schedule() and len(self._steps) < self.policy.max_concurrent_batches:
                return
            if not self._steps:
                return
        if self._steps:
            self._land(self._steps.popleft())
        elif self._events:
            self.now = max(self.now, self._events[0][0])

    def _schedule(self) -> bool:
        plan = self._select()
        if not plan.verify and plan.wait_for:
            if self._steps:
                self._wait(plan, max(WAIT_SLICE, self._steps[-1].end - self.now))
                plan = self._select()
            elif not self._waiting:
                self._wait(plan, WAIT_SLICE)
                plan = self._select()
        if not plan.verify and not self._waiting:
            assert self._steps or plan.wait_for or not self._live, "an idle target with no plan"
            return False
        self._begin(plan)
        return True

    def _wait(self, plan: StepPlan, limit: int) -> None:
        tickets = (self._live[each].ticket for each in plan.wait_for)
        answered = max(ticket.done_at for ticket in tickets if ticket is not None)
        self.now = max(self.now, min(self.now + limit, answered))

    def _begin(self, plan: StepPlan) -> None:
        prompts, self._waiting = tuple(self._waiting), []
        start = max(self.now, self._steps[-1].end if self._steps else 0)
        states = self._states()
        record = Record(
            start=start,
            end=start + self.verify_ms,
            plan=plan,
            lives={each: self._live[each].life for each in (*plan.verify, *prompts)},
            prompts=prompts,
            drafted=frozenset(
                each
                for each in plan.verify
                if states[each] is DraftState.READY and self._live[each].drafted
            ),
            busy=bool(self._steps),
        )
        self._check_nobody_starves(states, record)
        self._in_flight.update(dict.fromkeys(record.lives, record))
        self._steps.append(record)
        self.records.append(record)

    def _check_nobody_starves(self, states: States, record: Record) -> None:
        limit = self.max_skipped
        if limit is None:
            limit = 2 + -(-self.draft_ms // self.verify_ms)
        for request_id, state in states.items():
            live = self._live[request_id]
            if request_id in record.lives or state is DraftState.IN_FLIGHT:
                live.skipped = 0
            elif state is not DraftState.PENDING:
                live.skipped += 1
            assert live.skipped <= limit, f"{request_id} starves at {self.now}"

    def _land(self, record: Record) -> None:
        self.now = max(self.now, record.end)
        self._deliver()
        finished = []
        for request_id, life in record.lives.items():
            if self._in_flight.get(request_id) is record:
                del self._in_flight[request_id]
            live = self._live.get(request_id)
            if live is None or live.life != life:
                continue
            self._commit(request_id, live, record)
            if live.produced >= live.spec.tokens:
                finished.append(request_id)
        for request_id in finished:
            self.done[request_id] = self._live[request_id].num_verified
            self._forget(request_id)
        for group in self._next_drafts():
            self._ask(group)

    def _commit(self, request_id: str, live: Live, record: Record) -> None:
        accepted = 0
        if request_id in record.drafted:
            accepted = live.spec.accepts[live.num_verified % len(live.spec.accepts)]
        live.produced += 1 + accepted
        live.ticket, live.drafted = None, False
        if request_id in record.prompts:
            self.admitted_at.setdefault(request_id, len(self.records))
            if live.produced < live.spec.tokens:
                self._decoding[request_id] = None
                self.policy.admit(request_id, record.batch)
        else:
            live.num_verified += 1

    # -- what comes from outside -----------------------------------------------------

    def _deliver(self) -> None:
        while self._events and self._events[0][0] <= self.now:
            _, request_id, kind = self._events.popleft()
            if kind == "arrive":
                self._live[request_id] = Live(spec=self.specs[int(request_id[1:])])
                self._waiting.append(request_id)
            elif request_id not in self._live:
                continue
            elif kind == "abort":
                self.aborted.add(request_id)
                self._forget(request_id)
            elif request_id not in self._waiting:
                self._preempt(request_id)

    def _preempt(self, request_id: str) -> None:
        live = self._live[request_id]
        self._forget(request_id)
        self._live[request_id] = live
        live.life += 1
        live.ticket, live.drafted, live.skipped = None, False, 0
        self._waiting.insert(0, request_id)

    def _forget(self, request_id: str) -> None:
        del self._live[request_id]
        self._in_flight.pop(request_id, None)
        if request_id in self._waiting:
            self._waiting.remove(request_id)
        if request_id in self._decoding:
            del self._decoding[request_id]
            self.policy.remove(request_id)

    # -- the policy, and the rules it must keep --------------------------------------

    @property
    def _available(self) -> bool:
        return self.dies_at is None or self.now < self.dies_at

    @property
    def _acting(self) -> Policy:
        return self.policy if self._available else self._acts

    def _states(self) -> dict[str, DraftState]:
        return {each: self._state(each) for each in self._decoding}

    def _state(self, request_id: str) -> DraftState:
        live = self._live[request_id]
        if request_id in self._in_flight:
            return DraftState.IN_FLIGHT
        if live.ticket is None or not self._available:
            return DraftState.NONE
        return DraftState.READY if live.ticket.done_at <= self.now else DraftState.PENDING

    def _select(self) -> StepPlan:
        states, busy = self._states(), bool(self._steps)
        plan = self._acting.select(states, busy=busy)
        usable = (DraftState.NONE, DraftState.READY)
        assert len(set(plan.verify)) == len(plan.verify)
        assert all(states[each] in usable for each in plan.verify), "awaited or in flight"
        assert all(states[each] is DraftState.PENDING for each in plan.wait_for)
        assert not (plan.verify and plan.wait_for)
        assert sum(plan.batch_sizes) == len(states)
        if not busy:
            assert plan.verify or plan.wait_for or not states, "a stall"
            assert plan.verify or DraftState.NONE not in states.values(), "an idle target"
        if isinstance(self._acting, TwoBatchPolicy):
            self._check_two_batch(self._acting, plan, states, busy)
        return plan

    @staticmethod
    def _check_two_batch(
        policy: TwoBatchPolicy, plan: StepPlan, states: States, busy: bool
    ) -> None:
        batches = policy.batches
        assert set(batches) == set(states)
        if plan.batch is not None:
            assert set(plan.verify) == set(batches.members(plan.batch)), "a batch is one unit"
        else:
            assert not (plan.verify and busy), "a busy target split some off"
            assert all(states[each] is DraftState.NONE for each in plan.verify)

    def _next_drafts(self) -> list[tuple[str, ...]]:
        states = self._states()
        groups = self._acting.next_drafts(states)
        members = [each for group in groups for each in group]
        assert len(members) == len(set(members))
        assert all(groups), "an empty group"
        assert all(states[each] is DraftState.NONE for each in members), "asked twice"
        if isinstance(self._acting, TwoBatchPolicy):
            wholes = [set(self._acting.batches.members(batch)) for batch in Batch]
            assert all(set(group) in wholes for group in groups), "a batch is one unit"
        elif isinstance(self._acting, SequentialPolicy | PearlPolicy):
            assert all(set(group) == set(states) for group in groups)
        else:
            assert not groups
        return groups

    def _ask(self, group: tuple[str, ...]) -> None:
        self.asked.append(group)
        begin = max(self.now, self._drafter_free_at)
        self._drafter_free_at = begin + self.draft_ms
        members = {each: self._live[each].life for each in group}
        ticket = Ticket(done_at=self._drafter_free_at, members=members)
        for request_id in group:
            live = self._live[request_id]
            accepts = live.spec.accepts[live.num_verified % len(live.spec.accepts)]
            live.ticket, live.drafted = ticket, accepts != DECLINED
        live_tickets = {id(each.ticket) for each in self._live.values() if each.ticket is not None}
        assert len(live_tickets) <= 2, "a third group at the drafter"


@pytest.fixture(scope="session")
def simulate() -> Callable[..., Simulation]:
    """Run requests under a policy: ``simulate(policy, specs, draft_ms=, verify_ms=)``."""

    def run(policy: Policy, specs: Sequence[Any], **options: Any) -> Simulation:
        requests = [each if isinstance(each, Spec) else Spec(**each) for each in specs]
        return Simulation(policy=policy, specs=requests, **options).run()

    return run
