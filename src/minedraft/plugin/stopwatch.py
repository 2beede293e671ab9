"""When the target's passes begin and end: measured by its workers, or modelled.

Owns the times of steps; where they are written is the trace's business.
"""

from __future__ import annotations

import multiprocessing
from typing import Any, Protocol

from vllm.v1.core.sched.output import SchedulerOutput

from minedraft.clock import Clock, VirtualClock
from minedraft.config import MineDraftConfig
from minedraft.emulation import LatencyModel, make_clock
from minedraft.errors import ConfigError
from minedraft.plugin.step import Step


class Stopwatch(Protocol):
    """Times of steps by `clock`, which is the scheduler's too."""

    clock: Clock

    def start(self, step: Step) -> None:
        """Note that a step was handed to the target."""
        ...

    def stop(self, step: Step, output: Any) -> None:
        """Note that it is back, with vLLM's `output`."""
        ...


class WorkerStopwatch:
    """As the workers measured; the scheduler cannot once two steps are queued."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def start(self, step: Step) -> None:
        """See Stopwatch."""
        step.begin_ns = self.clock.now_ns()

    def stop(self, step: Step, output: Any) -> None:
        """See Stopwatch; the scheduler's own time where the worker has no stopwatch."""
        step.verify_start_ns = getattr(output, "start_ns", step.begin_ns)
        step.verify_end_ns = getattr(output, "end_ns", self.clock.now_ns())


class ModelledStopwatch:
    """As `model` says, one step after the other; the clock is put forward to their ends."""

    def __init__(self, clock: Clock, model: LatencyModel) -> None:
        self.clock = clock
        self._model = model
        self._free_ns = 0

    def start(self, step: Step) -> None:
        """See Stopwatch."""
        step.begin_ns = self.clock.now_ns()
        step.verify_start_ns = max(step.begin_ns, self._free_ns)
        self._free_ns = step.verify_end_ns = step.verify_start_ns + target_pass_ns(
            self._model, step.output
        )

    def stop(self, step: Step, output: Any) -> None:
        """See Stopwatch."""
        self.clock.sleep_until_ns(step.verify_end_ns)


def make_stopwatch(config: MineDraftConfig) -> Stopwatch:
    """The stopwatch of an engine's scheduler.

    Raises:
        ConfigError: a virtual clock in an engine process of its own.
    """
    clock = make_clock(config.emulate)
    if config.emulate is not None and isinstance(clock, VirtualClock):
        _refuse_process_of_its_own()
        return ModelledStopwatch(clock, config.emulate.target)
    return WorkerStopwatch(clock)


def _refuse_process_of_its_own() -> None:
    # vLLM's asynchronous front end runs its core there whatever the environment says.
    if multiprocessing.parent_process() is not None:
        raise ConfigError.bad_value(
            "emulate.clock", "virtual", "'real' in a server: its requests come by another clock"
        )


def target_pass_ns(model: LatencyModel, output: SchedulerOutput) -> int:
    """Modelled time of the pass that vLLM scheduled."""
    return model.pass_ns(
        output.total_num_scheduled_tokens,
        len(output.num_scheduled_tokens),
        _num_kv_tokens(output),
    )


def _num_kv_tokens(output: SchedulerOutput) -> int:
    """Tokens in the KV cache of the requests of a step, after it."""
    computed = (each.num_computed_tokens for each in output.scheduled_new_reqs)
    cached = output.scheduled_cached_reqs.num_computed_tokens
    return int(output.total_num_scheduled_tokens + sum(computed) + sum(cached))
