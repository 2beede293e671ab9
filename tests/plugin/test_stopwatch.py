"""When passes of the target begin and end."""

from __future__ import annotations

import multiprocessing
from types import SimpleNamespace
from typing import Any

import pytest

from minedraft.clock import VirtualClock
from minedraft.config import MineDraftConfig
from minedraft.emulation import LatencyModel
from minedraft.errors import ConfigError
from minedraft.plugin.step import Step
from minedraft.plugin.stopwatch import ModelledStopwatch, WorkerStopwatch, make_stopwatch
from minedraft.policies import StepPlan

pytestmark = pytest.mark.vllm

MS = 1_000_000
MODEL = LatencyModel(fixed_ms=10.0, per_token_ms=1.0, per_request_ms=0.5, per_kv_token_ms=0.01)
VIRTUAL = {"target": {"fixed_ms": 1.0}, "draft": {"fixed_ms": 1.0}, "clock": "virtual"}


def _step(tokens: dict[str, int], computed: int) -> Step:
    output: Any = SimpleNamespace(
        total_num_scheduled_tokens=sum(tokens.values()),
        num_scheduled_tokens=tokens,
        scheduled_new_reqs=[SimpleNamespace(num_computed_tokens=computed)],
        scheduled_cached_reqs=SimpleNamespace(num_computed_tokens=[3]),
    )
    return Step(
        plan=StepPlan(), output=output, requests={}, lengths={}, decodes=frozenset(), begin_ns=0
    )


def test_modelled_passes_follow_one_another() -> None:
    """5 tokens of 2 requests, with 4 and 3 more in the KV cache: 10 + 5 + 1 + 0.12 ms."""
    clock = VirtualClock()
    begin_ns, pass_ns = clock.now_ns(), round(16.12 * MS)
    stopwatch = ModelledStopwatch(clock, MODEL)
    first, second = (_step({"a": 3, "b": 2}, computed=4) for _ in range(2))
    stopwatch.start(first)
    stopwatch.start(second)
    assert (first.verify_start_ns, first.verify_end_ns) == (begin_ns, begin_ns + pass_ns)
    assert second.begin_ns == begin_ns
    assert second.verify_start_ns == begin_ns + pass_ns, "a queued pass begins when one ends"
    stopwatch.stop(first, None)
    assert clock.now_ns() == first.verify_end_ns
    stopwatch.stop(second, None)
    assert clock.now_ns() == second.verify_end_ns == begin_ns + 2 * pass_ns


def test_workers_measure_where_they_can() -> None:
    clock = VirtualClock()
    stopwatch = WorkerStopwatch(clock)
    step = _step({"a": 1}, computed=0)
    stopwatch.start(step)
    clock.sleep_until_ns(clock.now_ns() + 5)
    stopwatch.stop(step, SimpleNamespace())
    assert (step.verify_start_ns, step.verify_end_ns) == (clock.now_ns() - 5, clock.now_ns())
    stopwatch.stop(step, SimpleNamespace(start_ns=7, end_ns=9))
    assert (step.verify_start_ns, step.verify_end_ns) == (7, 9)


def test_an_engine_in_a_process_of_its_own_has_no_virtual_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = MineDraftConfig.from_mapping({"mode": "none", "emulate": VIRTUAL})
    assert isinstance(make_stopwatch(config), ModelledStopwatch)
    monkeypatch.setattr(multiprocessing, "parent_process", object)
    with pytest.raises(ConfigError, match=r"emulate\.clock = 'virtual'.*server"):
        make_stopwatch(config)
    real = MineDraftConfig.from_mapping({"mode": "none", "emulate": {**VIRTUAL, "clock": "real"}})
    assert isinstance(make_stopwatch(real), WorkerStopwatch)
