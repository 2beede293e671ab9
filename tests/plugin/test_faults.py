"""A drafter that is killed or stopped costs speed, never a token or a request.

For the long run: MINEDRAFT_KILLS=10 scripts/test tests/plugin/test_faults.py
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from engines import Engine, draft_options, random_prompts, running_engine
from minedraft.trace import StepRecord, read_trace
from processes import MARK, marked
from quick_start import spawned_engines

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

KILLS = int(os.environ.get("MINEDRAFT_KILLS", "2"))
#: On an idle machine of two cores it is back in about 16 s; this is a limit for a busy one.
BACK_WITHIN_S = 150.0
IN_FLIGHT = 8
PROMPTS = random_prompts(40, seed=11, longest=200)
_BLOCKED_S = 1.0


class Faults:
    """Feeds an engine until told to stop, and looks at its trace for signs of drafting."""

    def __init__(self, engine: Engine, mark: str) -> None:
        self.engine, self._mark = engine, mark
        self.tokens: dict[int, list[int]] = {}
        self._next = 0
        self._lengths = random.Random(3)

    def drafter(self) -> int | None:
        """The process id of the drafter, if there is one."""
        found = [pid for pid, command in marked(self._mark).items() if "drafter_main" in command]
        return found[0] if found else None

    def step(self) -> None:
        """Keep eight requests in flight, from the prompts again and again, and run a step."""
        from vllm import SamplingParams

        core = self.engine.llm.llm_engine
        while core.get_num_unfinished_requests() < IN_FLIGHT:
            params = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)
            prompt = PROMPTS[self._next % len(PROMPTS)]
            core.add_request(str(self._next), {"prompt_token_ids": prompt}, params)
            self._next += 1
        self.take(core.step())

    def take(self, outputs: Any) -> None:
        """Keep what is finished."""
        for output in outputs:
            if output.finished:
                self.tokens[int(output.request_id)] = list(output.outputs[0].token_ids)

    def finish(self) -> int:
        """Run until nothing is left; how many requests there were."""
        core = self.engine.llm.llm_engine
        while core.has_unfinished_requests():
            self.take(core.step())
        return self._next

    def steps_since(self, begin_ns: int) -> list[StepRecord]:
        """Traced steps that verified drafts which were begun after `begin_ns`."""
        if not self.engine.trace.exists():
            return []
        steps = read_trace(self.engine.trace)[1]
        return [step for step in steps if (step.draft_start_ns or 0) > begin_ns]

    def run_until_drafting(self, begin_ns: int, timeout_s: float) -> float:
        """Seconds until drafts begun after `begin_ns` were verified."""
        begin = time.monotonic()
        while time.monotonic() - begin < timeout_s:
            for _ in range(40):
                self.step()
            if self.steps_since(begin_ns):
                return time.monotonic() - begin
        raise AssertionError(f"drafting did not come back within {timeout_s:g} s")


@pytest.fixture(scope="module")
def mark() -> Iterator[str]:
    value = secrets.token_hex(8)
    os.environ[MARK] = value
    yield value
    del os.environ[MARK]


@pytest.fixture(scope="module")
def expected(pairs: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    trace = tmp_path_factory.mktemp("trace") / "none.jsonl"
    with running_engine(pairs["high"].target, trace, mode="none") as engine:
        return engine.run(PROMPTS, max_tokens=40).token_ids


@pytest.fixture(scope="module")
def faults(
    mark: str,
    expected: list[list[int]],
    pairs: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Faults]:
    trace = tmp_path_factory.mktemp("trace") / "two-batch.jsonl"
    options = draft_options(pairs["high"], draft_reply_timeout_s=_BLOCKED_S, draft_hang_timeout_s=4)
    with (
        spawned_engines(),
        running_engine(pairs["high"].target, trace, mode="two-batch", **options) as engine,
    ):
        yield Faults(engine, mark)


def _check(faults: Faults, expected: list[list[int]]) -> None:
    count = faults.finish()
    for index, tokens in faults.tokens.items():
        assert tokens == expected[index % len(PROMPTS)], f"request {index}"
    assert sorted(faults.tokens) == list(range(count))


def test_a_drafter_that_is_killed_again_and_again(
    faults: Faults, expected: list[list[int]]
) -> None:
    took_s = []
    for _ in range(KILLS):
        took_s.append(faults.run_until_drafting(time.monotonic_ns(), BACK_WITHIN_S))
        victim = faults.drafter()
        assert victim is not None
        os.kill(victim, signal.SIGKILL)
        for _ in range(5):
            faults.step()
    took_s.append(faults.run_until_drafting(time.monotonic_ns(), BACK_WITHIN_S))
    print("seconds until drafting was back:", [round(each, 1) for each in took_s[1:]])
    _check(faults, expected)
    assert len(faults.tokens) >= 20 * KILLS
    assert read_trace(faults.engine.trace)[1][-1].drafter_losses == KILLS


def test_a_drafter_that_stops_for_a_while(faults: Faults, expected: list[list[int]]) -> None:
    before = read_trace(faults.engine.trace)[1][-1].drafter_losses
    faults.run_until_drafting(time.monotonic_ns(), BACK_WITHIN_S)
    sleeper = faults.drafter()
    assert sleeper is not None
    os.kill(sleeper, signal.SIGSTOP)
    begin, longest = time.monotonic(), 0.0
    while time.monotonic() - begin < 2.5 * _BLOCKED_S:
        step_begin = time.monotonic()
        faults.step()
        longest = max(longest, time.monotonic() - step_begin)
    os.kill(sleeper, signal.SIGCONT)
    faults.run_until_drafting(time.monotonic_ns(), BACK_WITHIN_S)
    _check(faults, expected)
    assert faults.drafter() == sleeper, "it was kept"
    assert read_trace(faults.engine.trace)[1][-1].drafter_losses == before
    print(f"longest step while the drafter stood still: {longest:.2f} s")


def test_a_drafter_that_hangs_is_replaced(faults: Faults, expected: list[list[int]]) -> None:
    faults.run_until_drafting(time.monotonic_ns(), BACK_WITHIN_S)
    sleeper = faults.drafter()
    assert sleeper is not None
    os.kill(sleeper, signal.SIGSTOP)
    faults.run_until_drafting(time.monotonic_ns(), BACK_WITHIN_S)
    _check(faults, expected)
    assert faults.drafter() not in (None, sleeper)
