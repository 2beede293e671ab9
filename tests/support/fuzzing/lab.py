"""Where plans are run and judged: without a model, or on vLLM with the tiny made-up pairs.

Owns engines and their reuse; what a plan is and what is wrong with a run is decided elsewhere.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from fuzzing.drive import Limits, drive
from fuzzing.plan import EngineSettings, RunPlan, lives
from fuzzing.real import PlainDecoder, RealSubject, plain_decoder, real_subject
from fuzzing.toy import ToySubject, plain_decoding, strip
from fuzzing.verdict import Problem, RunResult, differences
from minedraft.models.made_up import (
    EPSILON_ACCEPTANCE_HIGH,
    EPSILON_ACCEPTANCE_LOW,
    MadeUpPair,
    make_pair,
)

_TOY_LIMITS = Limits(turns=5000, run_s=60.0)
_REAL_LIMITS = Limits(turns=20_000, run_s=120.0, settle_s=5.0, return_s=60.0)
_HANG_S = 300.0
_EPSILONS = {"low": EPSILON_ACCEPTANCE_LOW, "high": EPSILON_ACCEPTANCE_HIGH}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All that is wrong with a run, and what it gave."""

    problems: tuple[Problem, ...]
    result: RunResult


class Lab(Protocol):
    """Runs plans, one after the other."""

    def judge(self, plan: RunPlan) -> Verdict:
        """Run `plan` and compare it with plain decoding."""
        ...


class ToyLab:
    """A new engine for every plan; none of them has a model."""

    def __init__(self, folder: Path) -> None:
        self._target = made_up_pair(folder, "high").target

    def judge(self, plan: RunPlan) -> Verdict:
        """See Lab."""
        plan = strip(plan)
        subject = ToySubject(plan, self._target)
        with subject.own_time():
            result = drive(plan, subject, _TOY_LIMITS)
        wanted = {life: plain_decoding(life) for life in result.outputs}
        return Verdict(problems=(*result.problems, *differences(result, wanted)), result=result)


class RealLab:
    """Plain engines stay; the one with minedraft stays as long as plans want its settings."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._plain: dict[str, PlainDecoder] = {}
        self._plain_engines = ExitStack()
        self._subject_engine = ExitStack()
        self._settings: EngineSettings | None = None
        self._subject: RealSubject | None = None

    def judge(self, plan: RunPlan) -> Verdict:
        """See Lab. An engine with which something is wrong is not used again."""
        plain = self._plain_decoder(plan.engine.pair)
        wanted = plain.decode(life for request in plan.requests for life in lives(request))
        subject = self._ready_subject(plan.engine)
        with _alarm(_HANG_S):
            result = drive(plan, subject, _REAL_LIMITS)
        if result.problems:
            self._close_subject()
        found = [_with_gap(each, plain) for each in differences(result, wanted)]
        return Verdict(problems=(*result.problems, *found), result=result)

    def close(self) -> None:
        """End every engine."""
        self._close_subject()
        self._plain_engines.close()

    def _ready_subject(self, settings: EngineSettings) -> RealSubject:
        if self._subject is None or self._settings != settings or not self._subject.has_drafter():
            self._close_subject()
            pair = made_up_pair(self._folder, settings.pair)
            engine = real_subject(settings, pair, self._folder)
            self._subject = self._subject_engine.enter_context(engine)
            self._settings = settings
        return self._subject

    def _plain_decoder(self, pair: str) -> PlainDecoder:
        if pair not in self._plain:
            target = made_up_pair(self._folder, pair).target
            self._plain[pair] = self._plain_engines.enter_context(plain_decoder(target))
        return self._plain[pair]

    def _close_subject(self) -> None:
        self._subject = self._settings = None
        self._subject_engine.close()
        self._subject_engine = ExitStack()


def made_up_pair(folder: Path, name: str) -> MadeUpPair:
    """The tiny pair of that name below `folder`."""
    return make_pair(folder / "models" / name, epsilon=_EPSILONS[name])


@contextmanager
def open_lab(folder: Path, *, toy: bool) -> Iterator[Lab]:
    """A lab that keeps its models in `folder`."""
    if toy:
        yield ToyLab(folder)
        return
    lab = RealLab(folder)
    try:
        yield lab
    finally:
        lab.close()


def _with_gap(problem: Problem, plain: PlainDecoder) -> Problem:
    """With what tells rounding from a mistake."""
    if problem.life is None or problem.position is None:
        return problem
    gap = plain.gap(problem.life, problem.position)
    text = f"{problem.text}; plain decoding's best two tokens there are {gap:.2g} apart"
    return replace(problem, text=text)


@contextmanager
def _alarm(after_s: float) -> Iterator[None]:
    """TimeoutError in whatever blocks: a hung worker hangs vLLM's loop, and the run with it."""

    def ring(*_: object) -> None:
        raise TimeoutError(f"one turn of the engine hung; gave up after {after_s:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, after_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
