"""The turns of a run, on an engine that gives every request one token a turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fuzzing.drive import Limits, drive
from fuzzing.plan import Event, EventKind, Life, RequestPlan, RunPlan
from fuzzing.verdict import Completion, RunResult


@dataclass(slots=True)
class Slow:
    """One token a turn; `log` holds what was asked of it, with the number of the turn."""

    stuck: str = ""
    leaks: bool = False
    fails_at: int = -1
    drafter: bool = True
    log: list[str] = field(default_factory=list)
    now: int = 0
    running: dict[str, Life] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)

    def add(self, life: Life, priority: int) -> None:
        self.log.append(f"{self.now} add {life}")
        self.running[life.name], self.tokens[life.name] = life, 0

    def abort(self, name: str) -> None:
        self.log.append(f"{self.now} abort {name}")
        del self.running[name]

    def turn(self) -> None:
        self.now += 1
        if self.now == self.fails_at:
            raise KeyError("r0")
        for name, life in list(self.running.items()):
            self.tokens[name] += name != self.stuck
            if self.tokens[name] == life.sampling.max_tokens:
                del self.running[name]

    def is_busy(self) -> bool:
        return bool(self.running)

    def outputs(self, name: str) -> Sequence[Completion]:
        reason = None if name in self.running else "length"
        return (Completion(token_ids=(1,) * self.tokens[name], finish_reason=reason),)

    def happen(self, event: Event) -> None:
        self.log.append(f"{self.now} {event.kind}")

    def recover(self) -> None:
        self.log.append(f"{self.now} recover")

    def has_drafter(self) -> bool:
        return self.drafter

    def footprint(self) -> Mapping[str, int]:
        return {"blocks": 10 - (self.now if self.leaks else 0)}

    def figures(self) -> Mapping[str, int]:
        return {"turns": self.now}


Change = Callable[[RequestPlan], RequestPlan]


def _run(plan: RunPlan, subject: Slow, change: Change = lambda request: request) -> RunResult:
    plan = replace(plan, requests=tuple(change(request) for request in plan.requests))
    return drive(plan, subject, Limits(turns=50))


def test_requests_arrive_at_their_turns(small_plan: Callable[..., RunPlan]) -> None:
    subject = Slow()
    result = _run(small_plan(1, 1), subject)
    assert subject.log == ["0 add r0", "1 add r1"]
    assert [len(outputs[0].token_ids) for outputs in result.outputs.values()] == [10, 10]
    assert not result.problems
    assert result.figures == {"turns": 11}


def test_an_abort_by_tokens_and_the_second_life(small_plan: Callable[..., RunPlan]) -> None:
    subject = Slow()
    plan = small_plan(1)
    result = _run(plan, subject, lambda each: replace(each, abort_tokens=3, again=True))
    assert subject.log == ["0 add r0", "3 abort r0", "3 add r0 (second life)"]
    first, second = result.outputs
    assert result.aborted == {first}
    assert [len(result.outputs[life][0].token_ids) for life in (first, second)] == [3, 10]


def test_an_abort_by_turns_and_one_that_comes_too_late(small_plan: Callable[..., RunPlan]) -> None:
    subject = Slow()
    plan = small_plan(1)
    assert _run(plan, subject, lambda each: replace(each, abort_turns=0)).aborted
    assert subject.log == ["0 add r0", "0 abort r0"]
    assert not _run(plan, Slow(), lambda each: replace(each, abort_turns=10)).aborted
    assert not _run(plan, Slow(), lambda each: replace(each, abort_tokens=10)).aborted


def test_events_and_the_end_of_a_stop(small_plan: Callable[..., RunPlan]) -> None:
    events = (
        Event(kind=EventKind.RESET_CACHE, turn=2),
        Event(kind=EventKind.STOP_DRAFTER, turn=4, turns=3),
    )
    subject = Slow()
    _run(replace(small_plan(1), events=events), subject)
    assert subject.log[1:] == [
        f"2 {EventKind.RESET_CACHE}",
        f"4 {EventKind.STOP_DRAFTER}",
        "7 recover",
    ]


def test_a_stop_ends_with_the_run_at_the_latest(small_plan: Callable[..., RunPlan]) -> None:
    events = (Event(kind=EventKind.STOP_DRAFTER, turn=4, turns=3000),)
    for subject in (Slow(), Slow(fails_at=6), Slow(stuck="r0")):
        _run(replace(small_plan(1), events=events), subject)
        assert subject.log[-1].endswith("recover")


def test_a_request_that_does_not_end_is_lost(small_plan: Callable[..., RunPlan]) -> None:
    (problem,) = _run(small_plan(1, 1), Slow(stuck="r1")).problems
    assert str(problem) == (
        "lost request: request r1 has 0 tokens after 50 turns, and does not end"
    )


def test_what_is_left_behind_is_a_leak(small_plan: Callable[..., RunPlan]) -> None:
    (problem,) = _run(small_plan(1), Slow(leaks=True)).problems
    assert str(problem) == "leak: blocks: 10 before the run, 0 after"


def test_an_exception_is_a_crash(small_plan: Callable[..., RunPlan]) -> None:
    (problem,) = _run(small_plan(1), Slow(fails_at=5)).problems
    assert str(problem).startswith("crash: turn 4: KeyError: 'r0' (turn, line ")


def test_a_drafter_must_be_there_in_the_end(small_plan: Callable[..., RunPlan]) -> None:
    plan = small_plan(1)
    (problem,) = _run(plan, Slow(drafter=False)).problems
    assert str(problem) == "lost drafter: no fault was planned, and it is gone"
    killed = replace(plan, events=(Event(kind=EventKind.KILL_DRAFTER, turn=1, turns=5),))
    (problem,) = _run(killed, Slow(drafter=False)).problems
    assert str(problem) == "lost drafter: it did not come back"
