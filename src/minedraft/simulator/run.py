"""Builds a scenario's engines, drafters and requests, runs them, and sums them up.

Owns the wiring; every rule of the run is its parts'.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from minedraft.bench.load import Arrivals, make_arrivals
from minedraft.bench.metrics import figures
from minedraft.errors import MineDraftError
from minedraft.policies import Drafting, make_policy
from minedraft.simulator.clock import Clock
from minedraft.simulator.drafter import SimDrafter
from minedraft.simulator.drafter_room import DrafterLimits
from minedraft.simulator.engine import EngineLimits, SimEngine
from minedraft.simulator.kv_pool import KvPool
from minedraft.simulator.ledger import Ledger
from minedraft.simulator.link import Link
from minedraft.simulator.outcome import Outcome
from minedraft.simulator.recorder import StepRecorder
from minedraft.simulator.request import SimRequest
from minedraft.simulator.scenario import DrafterGroup, EngineGroup, Failure, Scenario
from minedraft.trace.writer import TraceSink


@dataclass(slots=True)
class _Fleet:
    """Everything that is simulated; engine i is served by drafter i modulo their number."""

    engines: list[SimEngine]
    drafters: list[SimDrafter]
    links: list[Link]
    pools: list[KvPool]

    def served_by(self, drafter: int) -> list[SimEngine]:
        """The engines of a drafter."""
        return self.engines[drafter :: len(self.drafters)]


def simulate(
    scenario: Scenario, *, sink: TraceSink | None = None, keeps_deliveries: bool = False
) -> Outcome:
    """Run a scenario to its end.

    `sink` takes the records of the first engine's steps, as a real run's trace has them.
    With `keeps_deliveries` the figures know inter-token latencies, at the price of memory.

    Raises:
        ConfigError: the load's file cannot be read or is too short.
        MineDraftError: the simulation came to rest before all requests were done.
    """
    clock = Clock()
    recorder = None if sink is None else StepRecorder(scenario, sink)
    source = _Source(clock, scenario)
    fleet = _build(clock, scenario, source, recorder, keeps_deliveries)
    source.engines = fleet.engines
    for failure in scenario.failures:
        _plan_failure(clock, fleet, failure)
    with _uncollected():
        source.start()
        clock.run()
    if source.num_open or source.num_left:
        raise MineDraftError(
            f"minedraft: the simulation came to rest with {source.num_open} requests open and "
            f"{source.num_left} to come; this is a defect of the simulator"
        )
    return _outcome(clock, scenario, fleet, source.done)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Do not look for cycles: events make millions of small objects and none that outlive
    their use, so that the search takes a fifth of the time and finds nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Source:
    """Makes requests as the load lets them arrive, for one engine after the other."""

    def __init__(self, clock: Clock, scenario: Scenario) -> None:
        self._clock = clock
        self._model = scenario.requests
        self._lengths = random.Random(f"{scenario.seed}/lengths")
        self._arrivals: Arrivals = make_arrivals(
            scenario.load, scenario.requests.count, random.Random(f"{scenario.seed}/arrivals")
        )
        self.engines: list[SimEngine] = []
        self.done = Ledger()
        self.num_open = 0
        self._num_arrived = 0
        self._waited_for_s = 0.0

    @property
    def num_left(self) -> int:
        """Requests that have not arrived."""
        return self._arrivals.num_left

    def start(self) -> None:
        """Let what is due arrive, and come back for the next."""
        # Seconds to milliseconds and back may fall short of the time that was waited for.
        now_s = max(self._clock.now_ms / 1e3, self._waited_for_s)
        for arrival_s in self._arrivals.due(now_s, self.num_open):
            self._arrive(arrival_s)
        next_s = self._arrivals.next_at_s()
        if next_s is not None:
            self._waited_for_s = next_s
            self._clock.at(max(self._clock.now_ms, next_s * 1e3), self.start)

    def finished(self, request: SimRequest) -> None:
        """One is done; in a closed loop another one comes."""
        self.done.add(request)
        self.num_open -= 1
        if self._arrivals.next_at_s() is None and self._arrivals.num_left:
            self._clock.at(self._clock.now_ms, self.start)

    def _arrive(self, arrival_s: float) -> None:
        number = self._num_arrived
        self._num_arrived += 1
        prompt, output = self._lengths.random(), self._lengths.random()
        request = SimRequest(
            id=f"r{number}",
            arrival_ms=arrival_s * 1e3,
            num_prompt_tokens=self._model.prompt_tokens.of(number, prompt),
            num_output_tokens=self._model.output_tokens.of(number, output),
        )
        self.num_open += 1
        self.engines[number % len(self.engines)].arrive(request)


def _build(
    clock: Clock,
    scenario: Scenario,
    source: _Source,
    recorder: StepRecorder | None,
    keeps_deliveries: bool,
) -> _Fleet:
    fleet = _Fleet([], [], [], [])
    if scenario.num_drafters:
        groups = [each for each in scenario.drafters for _ in range(each.count)]
        fleet.drafters = [_drafter(clock, scenario, group, at) for at, group in enumerate(groups)]
    for group in (each for each in scenario.engines for _ in range(each.count)):
        at = len(fleet.engines)
        drafter = fleet.drafters[at % len(fleet.drafters)] if fleet.drafters else None
        there, back = Link(clock, scenario.link), Link(clock, scenario.link)
        pool = KvPool(group.num_kv_blocks, group.block_size)
        is_recorded = at == 0 and recorder is not None
        engine = SimEngine(
            clock,
            _engine_limits(group),
            pool,
            make_policy(scenario.mode),
            k=scenario.num_speculative_tokens,
            drafter=drafter,
            to_drafter=there,
            from_drafter=back,
            on_finish=source.finished,
            on_step=recorder.take if is_recorded and recorder is not None else None,
            keeps_deliveries=keeps_deliveries,
        )
        if is_recorded and recorder is not None:
            recorder.watch(drafter)
        fleet.engines.append(engine)
        fleet.links += [there, back]
        fleet.pools.append(pool)
    return fleet


def _engine_limits(group: EngineGroup) -> EngineLimits:
    return EngineLimits(
        latency=group.target,
        overhead_ms=group.overhead_ms,
        max_num_batched_tokens=group.max_num_batched_tokens,
        max_num_seqs=group.max_num_seqs,
        max_queued_steps=group.max_queued_steps,
    )


def _drafter(clock: Clock, scenario: Scenario, group: DrafterGroup, at: int) -> SimDrafter:
    drafting = make_policy(scenario.mode).drafting
    return SimDrafter(
        clock,
        DrafterLimits(
            latency=group.draft,
            max_num_batched_tokens=group.max_num_batched_tokens,
            max_num_seqs=group.max_num_seqs,
            max_model_len=group.max_model_len,
        ),
        KvPool(group.num_kv_blocks, group.block_size),
        scenario.chains,
        random.Random(f"{scenario.seed}/drafter {at}"),
        k=scenario.num_speculative_tokens,
        lead=scenario.num_speculative_tokens + 1 if drafting is Drafting.AHEAD else 0,
        is_reported=drafting is Drafting.UNASKED,
    )


def _plan_failure(clock: Clock, fleet: _Fleet, failure: Failure) -> None:
    if not fleet.drafters:
        return
    drafter, engines = fleet.drafters[failure.drafter], fleet.served_by(failure.drafter)

    def fail() -> None:
        drafter.fail()
        for engine in engines:
            engine.drafter_is_lost()

    def restart() -> None:
        drafter.restart()
        for engine in engines:
            engine.drafter_is_back()

    clock.at(failure.at_s * 1e3, fail)
    clock.at((failure.at_s + failure.for_s) * 1e3, restart)


def _outcome(clock: Clock, scenario: Scenario, fleet: _Fleet, done: Ledger) -> Outcome:
    counters = [each.counters for each in fleet.engines]
    num_steps = sum(each.num_steps for each in counters)
    num_tokens = sum(each.num_output_tokens for each in counters)
    busy_ms = sum(each.busy_ms for each in counters)
    first_ms = done.first_arrival_ms
    span_ms = done.last_finish_ms - first_ms
    devices = {"target": scenario.num_engines, "draft": scenario.num_drafters}
    drafting_ms = sum(each.busy_ms for each in fleet.drafters)
    return Outcome(
        figures=figures(done, devices=devices),
        tokens_per_s=num_tokens / span_ms * 1e3,
        num_steps=num_steps,
        tokens_per_step=num_tokens / num_steps,
        mean_step_ms=busy_ms / num_steps,
        num_proposed=sum(each.num_proposed for each in counters),
        num_accepted=sum(each.num_accepted for each in counters),
        num_preemptions=sum(each.num_preemptions for each in counters),
        target_busy_share=busy_ms / span_ms / len(fleet.engines),
        drafter_busy_share=drafting_ms / (clock.now_ms - first_ms) / max(1, len(fleet.drafters)),
        num_link_bytes=sum(each.num_bytes for each in fleet.links),
        peak_kv_blocks=max(each.peak_used for each in fleet.pools),
        num_events=clock.num_events,
    )
