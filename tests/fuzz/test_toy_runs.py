"""Fuzzed runs without a model: the code is right, and what is broken on purpose is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fuzzing.campaign import campaign
from fuzzing.generate import any_engine, generate
from fuzzing.plan import RunPlan

pytestmark = pytest.mark.vllm

NUM_BLOCKS_OF_RUNS, RUNS = 6, 40


@pytest.mark.parametrize("block", range(NUM_BLOCKS_OF_RUNS))
def test_nothing_is_lost_wrong_or_left_behind(block: int, toy_lab: Any, results: Path) -> None:
    seeds = range(block * RUNS, (block + 1) * RUNS)
    said: list[str] = []
    plans = [generate(seed, any_engine(seed)) for seed in seeds]
    tally = campaign(plans, toy_lab, results, said.append, retries=1)
    assert not tally.failed, "\n".join(said)


def test_runs_that_once_failed(found_plans: Callable[[str], list[Path]], toy_lab: Any) -> None:
    for path in found_plans("toy"):
        problems = toy_lab.judge(RunPlan.from_json(path.read_bytes())).problems
        assert not problems, path.name


def test_the_runs_are_worth_their_time(toy_lab: Any) -> None:
    """Preemption, rejected and accepted drafts, aborts, drafts that come too late."""
    counts: Counter[str] = Counter()
    for seed in range(50):
        result = toy_lab.judge(generate(seed, any_engine(seed))).result
        counts.update(result.figures)
        counts["aborted"] += len(result.aborted)
    assert counts["preemptions"] > 20
    assert counts["aborted"] > 10
    assert counts["stale drafts"] > 0
    assert counts["drafter late"] > 0
    assert counts["drafter back"] > 0
    assert counts["accepted tokens"] > 500
    assert counts["draft tokens"] > 2 * counts["accepted tokens"]


@pytest.fixture
def found(toy_lab: Any, tmp_path: Path) -> Callable[[], tuple[list[str], RunPlan]]:
    """What a campaign says of the first broken run, and the plan that it leaves."""

    def search() -> tuple[list[str], RunPlan]:
        said: list[str] = []
        for seed in range(200):
            plan = generate(seed, any_engine(seed), faults=False)
            if campaign([plan], toy_lab, tmp_path, said.append, retries=1).failed:
                return said, RunPlan.from_json((tmp_path / f"seed-{seed}.json").read_bytes())
        raise AssertionError("200 runs, and nothing was found")

    return search


def test_a_wrong_token_is_found(found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last draft is taken for the target's own token."""
    import fake_engine

    sample = fake_engine.FakeTarget._sample

    def gullible(self: Any, name: str, computed: int, step: Any) -> list[int]:
        sampled = sample(self, name, computed, step)
        drafts = step.scheduled_spec_decode_tokens.get(name, [])
        if drafts and len(sampled) == len(drafts) and sampled[-1] != drafts[-1]:
            sampled[-1] = self.outputs[name][-1] = drafts[-1]
        return sampled

    monkeypatch.setattr(fake_engine.FakeTarget, "_sample", gullible)
    said, plan = found()
    assert "plain decoding gives" in said[1]
    assert len(plan.requests) == 1
    assert len(plan.requests[0].prompt) == 1


def test_a_leak_is_found(found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The drafter forgets a request, and keeps its blocks."""
    from toy_device import ToyDevice

    monkeypatch.setattr(ToyDevice, "release", lambda self, request: None)
    said, plan = found()
    assert "leak: free blocks of the drafter" in said[1]
    assert len(plan.requests) == 1


def test_a_lost_request_is_found(found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that was preempted is never verified again."""
    from minedraft.plugin.scheduler import MineDraftScheduler

    hold_back = MineDraftScheduler._hold_back

    def forgetful(self: Any, plan: Any) -> None:
        hold_back(self, plan)
        for request in self._decoding.values():
            if request.num_preemptions:
                request.next_decode_eligible_step = self.current_step + 2

    monkeypatch.setattr(MineDraftScheduler, "_hold_back", forgetful)
    monkeypatch.setattr("fuzzing.lab._TOY_LIMITS", _short())
    said, plan = found()
    assert "does not end" in said[1]
    assert 1 <= len(plan.requests) <= 3


def test_a_crash_is_found(found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from minedraft.plugin.scheduler import MineDraftScheduler

    def fails(*_: Any) -> None:
        raise KeyError("r0")

    monkeypatch.setattr(MineDraftScheduler, "_flies_again", fails)
    said, plan = found()
    assert "crash: turn" in said[1]
    assert len(plan.requests) == 1


def _short() -> Any:
    from fuzzing.drive import Limits

    return Limits(turns=400, run_s=60.0)
