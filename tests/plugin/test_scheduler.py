"""MineDraftScheduler inside vLLM's own scheduling, against a toy target and a toy drafter."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fake_engine import BLOCK, FakeEngine, continuation, make_vllm_config

pytestmark = pytest.mark.vllm

MODES = ["none", "sequential", "two-batch", "pearl", "wait-free"]


def _prompt(rng: random.Random, longest: int = 200) -> list[int]:
    return [rng.randrange(500) for _ in range(rng.choice([1, 2, 31, 32, 33, longest]))]


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _check(engine: FakeEngine, wanted: dict[str, tuple[list[int], int]]) -> None:
    for name, (prompt, count) in wanted.items():
        assert engine.finished[name] == continuation(prompt, count), name


@pytest.mark.parametrize("seed", range(6))
def test_tokens_are_the_targets_own(mode: str, seed: int, pairs: dict[str, Any]) -> None:
    rng = random.Random(seed)
    engine = FakeEngine(make_vllm_config(pairs["high"].target, mode), seed=seed)
    wanted = {f"r{i}": (_prompt(rng), rng.randrange(1, 60)) for i in range(24)}
    for name, (prompt, count) in wanted.items():
        engine.add(name, prompt, count)
        for _ in range(rng.choice([0, 0, 1, 3])):
            engine.step()
    engine.run()
    _check(engine, wanted)


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("seed", range(4))
def test_preemption(mode: str, policy: str, seed: int, pairs: dict[str, Any]) -> None:
    rng = random.Random(seed)
    config = make_vllm_config(pairs["high"].target, mode, scheduling_policy=policy)
    engine = FakeEngine(config, num_blocks=22, seed=seed)
    wanted = {f"r{i}": (_prompt(rng, 90), rng.randrange(30, 150)) for i in range(12)}
    requests = []
    for name, (prompt, count) in wanted.items():
        requests.append(engine.add(name, prompt, count, priority=rng.randrange(3)))
        engine.step()
    engine.run()
    _check(engine, wanted)
    assert any(request.num_preemptions for request in requests), "the pool was not tight"
    pool = engine.scheduler.kv_cache_manager.block_pool
    assert pool.get_num_free_blocks() == 22 - 1  # block 0 is vLLM's null block


@pytest.mark.parametrize("seed", range(6))
def test_aborts_at_any_time(mode: str, seed: int, pairs: dict[str, Any]) -> None:
    rng = random.Random(seed)
    engine = FakeEngine(make_vllm_config(pairs["high"].target, mode), seed=seed)
    wanted = {f"r{i}": (_prompt(rng), rng.randrange(20, 60)) for i in range(16)}
    aborted = set()
    for name, (prompt, count) in wanted.items():
        engine.add(name, prompt, count)
        engine.step()
        if rng.random() < 0.4:
            victim = rng.choice([each for each in wanted if each in engine.scheduler.requests])
            engine.abort(victim)
            aborted.add(victim)
    engine.run()
    _check(engine, {name: each for name, each in wanted.items() if name not in aborted})
    assert not engine.scheduler._known
    assert not engine.scheduler._decoding
    assert not engine.scheduler._in_flight


def test_an_id_may_be_used_again_at_once(pairs: dict[str, Any]) -> None:
    engine = FakeEngine(make_vllm_config(pairs["high"].target, "sequential"))
    engine.add("same", [1, 2, 3], 50)
    engine.add("other", [4, 5, 6], 50)
    for _ in range(6):
        engine.step()
    engine.abort("same")
    engine.finished.pop("same", None)
    engine.add("same", [7, 8, 9], 20)
    engine.run()
    assert engine.finished["same"] == continuation([7, 8, 9], 20)
    assert engine.finished["other"] == continuation([4, 5, 6], 50)


def test_a_held_back_request_owns_no_block_for_unverified_drafts(pairs: dict[str, Any]) -> None:
    """The paper's deferred allocation; drafts of verified requests do get blocks."""
    engine = FakeEngine(make_vllm_config(pairs["high"].target, "two-batch"), accuracy=1.0)
    for index in range(8):
        engine.add(f"r{index}", [index] * (20 + index), 100)
    scheduler = engine.scheduler
    held_steps = verified_with_more = 0
    for _ in range(120):
        output = engine.step()
        if output is None or not output.scheduled_spec_decode_tokens:
            continue
        for name, request in scheduler._decoding.items():
            blocks = len(scheduler.kv_cache_manager.get_block_ids(name)[0])
            committed = -(-request.num_tokens // BLOCK)
            if name in scheduler._in_flight:
                verified_with_more += blocks > committed
            else:
                held_steps += 1
                assert blocks <= committed, f"{name} holds {blocks} blocks, needs {committed}"
    assert held_steps > 100
    assert verified_with_more > 0


def test_newcomers_make_no_third_group(pairs: dict[str, Any]) -> None:
    config = make_vllm_config(pairs["high"].target, "two-batch")
    steps = {}
    for staggered in (False, True):
        engine = FakeEngine(config, accuracy=1.0)
        for index in range(8):
            engine.add(f"r{index}", [index, 1, 2], 100)
            for _ in range(2 if staggered else 0):
                engine.step()
        engine.run()
        steps[staggered] = len(engine.steps)
    # 100 tokens at 5 a step, two batches; newcomers add their prompts and one plain step each.
    assert steps[False] <= 2 * 21 + 4
    assert steps[True] <= steps[False] + 2 * 8


def test_one_request_is_sequential_and_a_second_brings_two_batches_back(
    pairs: dict[str, Any],
) -> None:
    engine = FakeEngine(make_vllm_config(pairs["high"].target, "two-batch"), accuracy=1.0)
    engine.add("a", [1, 2, 3], 200)
    for _ in range(40):
        engine.step()
    assert all(set(step.num_scheduled_tokens) == {"a"} for step in engine.steps)
    assert len(engine.finished["a"]) > 60
    alone = len(engine.steps)
    engine.add("b", [4, 5, 6], 200)
    engine.run()
    later = [set(step.scheduled_spec_decode_tokens) for step in engine.steps[alone:]]
    assert {"a"} in later
    assert {"b"} in later
    assert not any(each == {"a", "b"} for each in later)


def test_a_lost_drafter_costs_no_token(mode: str, pairs: dict[str, Any]) -> None:
    engine = FakeEngine(make_vllm_config(pairs["high"].target, mode))
    wanted = {f"r{i}": ([i, 2, 3], 80) for i in range(10)}
    for name, (prompt, count) in wanted.items():
        engine.add(name, prompt, count)
    for _ in range(12):
        engine.step()
    engine.connection.is_dead = True
    engine.run()
    _check(engine, wanted)
    last = engine.steps[-1]
    assert not last.scheduled_spec_decode_tokens


@pytest.mark.parametrize("mode", MODES[1:])
@pytest.mark.parametrize("seed", range(6))
def test_a_drafter_that_comes_and_goes_costs_no_token(
    mode: str, seed: int, pairs: dict[str, Any]
) -> None:
    rng = random.Random(seed)
    config = make_vllm_config(pairs["high"].target, mode, max_num_batched_tokens=64)
    engine = FakeEngine(config, num_blocks=30, seed=seed)
    wanted = {f"r{i}": (_prompt(rng), rng.randrange(20, 120)) for i in range(24)}
    for name, (prompt, count) in wanted.items():
        engine.add(name, prompt, count)
        for _ in range(rng.randrange(8)):
            engine.step()
        if rng.random() < 0.5:
            engine.connection.is_dead = True
        elif rng.random() < 0.7:
            engine.is_reviving = True
    engine.is_reviving = True
    for _ in range(20):
        engine.step()
    returned = engine.scheduler._source.counters.returns
    drafted = engine.scheduler._source.counters.draft_tokens
    engine.run()
    _check(engine, wanted)
    assert returned >= 2
    assert engine.scheduler._source.counters.draft_tokens > drafted, "it drafts again"


def test_no_step_is_smaller_than_it_must_be_without_a_drafter(pairs: dict[str, Any]) -> None:
    engine = FakeEngine(make_vllm_config(pairs["high"].target, "two-batch"))
    for index in range(8):
        engine.add(f"r{index}", [index, 2, 3], 60)
    for _ in range(12):
        engine.step()
    engine.connection.is_dead = True
    for _ in range(6):
        engine.step()
    begin = len(engine.steps)
    for _ in range(20):
        engine.step()
    sizes = [len(step.num_scheduled_tokens) for step in engine.steps[begin:]]
    assert min(sizes) == len(engine.scheduler.running)


def test_a_queued_step_runs_from_the_end_of_the_one_before(
    pairs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted from when it was scheduled, the wait for drafts would end too early."""
    engine = FakeEngine(make_vllm_config(pairs["high"].target, "two-batch"))
    for index in range(4):
        engine.add(f"r{index}", [index, 2, 3], 60)
    while not engine.scheduler._steps:
        engine.step()
    scheduler = engine.scheduler
    begin_ns = scheduler._steps[0].begin_ns
    scheduler._last_verify_s = 0.040
    scheduler._last_landed_ns = begin_ns + 20_000_000
    monkeypatch.setattr("time.monotonic_ns", lambda: begin_ns + 30_000_000)
    assert scheduler._running_step_left_s() == pytest.approx(0.030)


def test_a_prompt_in_chunks_costs_its_batch_no_turn(pairs: dict[str, Any]) -> None:
    """A request whose last chunk is queued is not decoding when the chunk before lands."""
    config = make_vllm_config(pairs["high"].target, "two-batch", max_num_batched_tokens=64)
    engine = FakeEngine(config, accuracy=1.0)
    for index in range(4):
        engine.add(f"r{index}", [index, 1, 2], 120)
    for _ in range(20):
        engine.step()
    late = engine.add("late", [9] * 150, 60)
    admitted_in_flight = False
    while not late.is_finished():
        engine.step()
        scheduler = engine.scheduler
        is_new = "late" in scheduler._decoding and not late.num_output_tokens
        admitted_in_flight |= is_new
    assert not admitted_in_flight


@pytest.mark.parametrize("mode", ["sequential", "two-batch"])
def test_requests_that_cannot_be_drafted_run_together(mode: str, pairs: dict[str, Any]) -> None:
    engine = FakeEngine(make_vllm_config(pairs["high"].target, mode))
    wanted = {f"r{i}": ([i, 2, 3], 40) for i in range(8)}
    for name, (prompt, count) in wanted.items():
        # A streaming-input session is one that minedraft does not draft for.
        engine.add(name, prompt, count, resumable=True)
    while len(engine.finished.get("r0", ())) < 35:
        engine.step()
    assert engine.finished["r0"] == continuation([0, 2, 3], len(engine.finished["r0"]))
    assert not any(step.scheduled_spec_decode_tokens for step in engine.steps)
    assert {len(step.num_scheduled_tokens) for step in engine.steps} == {8}


def test_undrafted_requests_among_drafted_ones(pairs: dict[str, Any]) -> None:
    engine = FakeEngine(make_vllm_config(pairs["high"].target, "two-batch"))
    wanted = {f"r{i}": ([i, 2, 3], 60) for i in range(6)}
    for name, (prompt, count) in wanted.items():
        engine.add(name, prompt, count)
    engine.add("session", [7, 8], 40, resumable=True)
    while len(engine.finished.get("session", ())) < 35 or any(
        len(engine.finished.get(name, ())) < 60 for name in wanted
    ):
        engine.step()
    _check(engine, wanted)
    count = len(engine.finished["session"])
    assert engine.finished["session"] == continuation([7, 8], count)


@pytest.mark.parametrize("seed", range(6))
def test_forced_reset_of_the_prefix_cache(mode: str, seed: int, pairs: dict[str, Any]) -> None:
    """Every running request is preempted, with steps in flight, and resumes at once."""
    rng = random.Random(seed)
    engine = FakeEngine(make_vllm_config(pairs["high"].target, mode), seed=seed)
    wanted = {f"r{i}": (_prompt(rng), rng.randrange(20, 60)) for i in range(10)}
    for name, (prompt, count) in wanted.items():
        engine.add(name, prompt, count)
        engine.step()
        if rng.random() < 0.4:
            engine.scheduler.reset_prefix_cache(reset_running_requests=True)
    engine.run()
    _check(engine, wanted)


def test_stop_tokens_inside_accepted_drafts(mode: str, pairs: dict[str, Any]) -> None:
    engine = FakeEngine(make_vllm_config(pairs["high"].target, mode), accuracy=1.0)
    expected = {}
    for index in range(8):
        tokens = continuation([index, 1], 60)
        stop = tokens[20 + index]
        expected[f"r{index}"] = tokens[: tokens.index(stop) + 1]
        engine.add(f"r{index}", [index, 1], 60, sampling={"stop_token_ids": [stop]})
    assert engine.run() == expected


@pytest.mark.parametrize("limit", [64, 65, 66, 67, 68])
def test_up_to_the_last_position(mode: str, limit: int, pairs: dict[str, Any]) -> None:
    config = make_vllm_config(pairs["high"].target, mode, max_model_len=limit)
    engine = FakeEngine(config, accuracy=1.0)
    prompts = {f"r{i}": [i] * (30 + i) for i in range(6)}
    for name, prompt in prompts.items():
        engine.add(name, prompt, limit - len(prompt))
    engine.run()
    _check(engine, {name: (each, limit - len(each)) for name, each in prompts.items()})


def test_no_step_with_drafts_crosses_min_tokens(mode: str, pairs: dict[str, Any]) -> None:
    """vLLM would keep stop tokens out of the bonus token of such a step."""
    engine = FakeEngine(make_vllm_config(pairs["high"].target, mode), accuracy=1.0)
    requests = {
        f"r{i}": engine.add(f"r{i}", [i, 2, 3], 40, sampling={"min_tokens": 10 + i})
        for i in range(8)
    }
    while engine.scheduler.has_requests():
        before = {name: each.num_output_tokens for name, each in requests.items()}
        step = engine.step()
        for name, drafts in (step.scheduled_spec_decode_tokens if step else {}).items():
            least = 10 + int(name[1:])
            assert before[name] >= least or before[name] + len(drafts) < least
    _check(engine, {name: ([int(name[1:]), 2, 3], 40) for name in requests})


@pytest.mark.parametrize("mode", MODES[1:])
def test_a_request_may_ask_for_fewer_drafts(
    mode: str, pairs: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    engine = FakeEngine(make_vllm_config(pairs["high"].target, mode))
    limits = [0, 1, 2, 64, "2", -1, None]
    wanted = {f"r{i}": ([i, 2, 3], 60) for i in range(len(limits))}
    for (name, (prompt, count)), limit in zip(wanted.items(), limits, strict=True):
        extra = {"minedraft_num_speculative_tokens": limit}
        engine.add(name, prompt, count, sampling={"extra_args": extra})
    engine.run()
    _check(engine, wanted)
    most = [
        max(len(step.scheduled_spec_decode_tokens.get(name, ())) for step in engine.steps)
        for name in wanted
    ]
    assert most == [0, 1, 2, 4, 4, 4, 4]
    assert caplog.text.count("minedraft_num_speculative_tokens") == 2
