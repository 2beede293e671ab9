"""Runs one plan on one engine, turn by turn, and says what came out.

Owns when a request arrives or is aborted, when an event happens and when to give up; what
an engine is stands behind `Subject`.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fuzzing.plan import FAULTS, Event, Life, RequestPlan, RunPlan, lives
from fuzzing.verdict import Completion, Problem, RunResult


class Subject(Protocol):
    """An engine that minedraft runs in. Names are free again once a request is over."""

    def add(self, life: Life, priority: int) -> None:
        """Hand a request to the engine."""
        ...

    def abort(self, name: str) -> None:
        """Abort a request that is not over."""
        ...

    def turn(self) -> None:
        """One turn of the engine's loop."""
        ...

    def is_busy(self) -> bool:
        """Whether the engine has anything left to do."""
        ...

    def outputs(self, name: str) -> Sequence[Completion]:
        """What there is so far of the newest life of a name; ended ones have a reason."""
        ...

    def happen(self, event: Event) -> None:
        """Let something happen to the whole engine."""
        ...

    def recover(self) -> None:
        """Let a drafter that was stopped go on, and one that was killed come back."""
        ...

    def has_drafter(self) -> bool:
        """Whether the engine has the drafter that it should have, by now."""
        ...

    def footprint(self) -> Mapping[str, int]:
        """Counts that are the same before and after a run, or something leaked."""
        ...

    def figures(self) -> Mapping[str, int]:
        """Counts of what happened since the engine started."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a run counts as hung, and how long counts may take to settle after it."""

    turns: int = 20_000
    run_s: float = 60.0
    settle_s: float = 0.0
    return_s: float = 0.0
    """How long a lost drafter may take to come back after the run."""


def drive(plan: RunPlan, subject: Subject, limits: Limits) -> RunResult:
    """Run `plan`; every problem but differences is in the result. Raises nothing of vLLM's."""
    run = _Run(plan, subject, limits)
    try:
        return run.whole()
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
        problem = Problem(kind="crash", text=f"turn {run.turn}: {text}")
        return RunResult(problems=(problem,))


class _Run:
    def __init__(self, plan: RunPlan, subject: Subject, limits: Limits) -> None:
        self._plan, self._subject, self._limits = plan, subject, limits
        self._waiting = sorted(plan.requests, key=lambda request: request.arrival)
        self._events = sorted(plan.events, key=lambda event: event.turn)
        self._open: dict[str, tuple[RequestPlan, Life, int]] = {}
        self._outputs: dict[Life, Sequence[Completion]] = {}
        self._aborted: set[Life] = set()
        self._recover_at: int | None = None
        self.turn = 0

    def whole(self) -> RunResult:
        before, figures = self._subject.footprint(), self._subject.figures()
        deadline = time.monotonic() + self._limits.run_s
        in_time = True
        try:
            while in_time and (self._waiting or self._open or self._subject.is_busy()):
                self._one_turn()
                in_time = time.monotonic() < deadline and self.turn < self._limits.turns
        finally:
            self._recover(force=True)
        problems = tuple(self._lost() or self._left_behind(before))
        now = self._subject.figures()
        return RunResult(
            outputs=self._outputs,
            aborted=frozenset(self._aborted),
            problems=problems,
            figures={name: now[name] - figures[name] for name in now},
        )

    def _one_turn(self) -> None:
        self._recover()
        while self._events and self._events[0].turn <= self.turn:
            event = self._events.pop(0)
            self._subject.happen(event)
            if event.kind in FAULTS:
                self._recover_at = max(self._recover_at or 0, self.turn + event.turns)
        while self._waiting and self._waiting[0].arrival <= self.turn:
            request = self._waiting.pop(0)
            self._begin(request, next(lives(request)))
        for request, life, since in list(self._open.values()):
            if self._is_due(request, life, since):
                self._abort(request, life)
        if self._subject.is_busy():
            self._subject.turn()
        self.turn += 1
        for _, life, _ in list(self._open.values()):
            self._close_if_over(life)

    def _begin(self, request: RequestPlan, life: Life) -> None:
        self._subject.add(life, request.priority)
        self._open[life.name] = (request, life, self.turn)

    def _is_due(self, request: RequestPlan, life: Life, since: int) -> bool:
        if life.number:
            return False
        if request.abort_turns is not None and self.turn >= since + request.abort_turns:
            return True
        outputs = self._subject.outputs(life.name)
        most = max((len(each.token_ids) for each in outputs), default=0)
        return request.abort_tokens is not None and most >= request.abort_tokens

    def _abort(self, request: RequestPlan, life: Life) -> None:
        self._outputs[life] = self._subject.outputs(life.name)
        self._aborted.add(life)
        self._subject.abort(life.name)
        del self._open[life.name]
        if request.again:
            self._begin(request, list(lives(request))[1])

    def _close_if_over(self, life: Life) -> None:
        outputs = self._subject.outputs(life.name)
        if len(outputs) == life.sampling.n and all(each.finish_reason for each in outputs):
            self._outputs[life] = outputs
            del self._open[life.name]

    def _recover(self, *, force: bool = False) -> None:
        if self._recover_at is not None and (force or self.turn >= self._recover_at):
            self._subject.recover()
            self._recover_at = None

    def _lost(self) -> list[Problem]:
        """Requests that did not end; the engine is of no use after that."""
        problems = []
        for _, life, _ in self._open.values():
            count = sum(len(each.token_ids) for each in self._subject.outputs(life.name))
            text = f"request {life} has {count} tokens after {self.turn} turns, and does not end"
            problems.append(Problem(kind="lost request", text=text, life=life))
        if not problems and self._subject.is_busy():
            text = f"the engine is still busy after {self.turn} turns, with no request open"
            problems.append(Problem(kind="lost request", text=text))
        return problems

    def _left_behind(self, before: Mapping[str, int]) -> list[Problem]:
        is_faulty = any(event.kind in FAULTS for event in self._plan.events)
        # Without a fault it may be late, on a busy machine.
        within_s = self._limits.return_s if is_faulty else self._limits.settle_s
        if not self._eventually(self._subject.has_drafter, within_s):
            text = "it did not come back" if is_faulty else "no fault was planned, and it is gone"
            return [Problem(kind="lost drafter", text=text)]
        self._eventually(lambda: not self._leaks(before), self._limits.settle_s)
        return [
            Problem(kind="leak", text=f"{name}: {before[name]} before the run, {count} after")
            for name, count in self._leaks(before).items()
        ]

    def _leaks(self, before: Mapping[str, int]) -> Mapping[str, int]:
        now = self._subject.footprint()
        return {name: now[name] for name in before if name in now and now[name] != before[name]}

    def _eventually(self, holds: Callable[[], bool], within_s: float) -> bool:
        deadline = time.monotonic() + within_s
        while not holds():
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        return True
