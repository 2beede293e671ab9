"""Requests and engines that are aborted, paused, put to sleep, reset or continued by chunks.

One AsyncLLM in two-batch mode; what is undisturbed must be answered as without the events.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

import minedraft
from engines import draft_options, random_prompts
from minedraft.trace import read_trace
from scenarios import ENGINE

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

PROMPTS = random_prompts(8, seed=31, longest=200)
LONG = 120
_ids = itertools.count()
Result = TypeVar("Result")


@dataclass(slots=True)
class Request:
    """One request and what came of it so far."""

    prompt: Any
    max_tokens: int = LONG
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self, llm: Any) -> list[int]:
        """Until it is finished; its tokens."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(
            temperature=0.0,
            max_tokens=self.max_tokens,
            ignore_eos=True,
            output_kind=RequestOutputKind.DELTA,
        )
        prompt = {"prompt_token_ids": self.prompt} if isinstance(self.prompt, list) else self.prompt
        async for output in llm.generate(prompt, params, f"request-{next(_ids)}"):
            self.token_ids += output.outputs[0].token_ids
            self.finish_reason = output.outputs[0].finish_reason or self.finish_reason
            self.arrived.set()
        return self.token_ids


@dataclass(slots=True)
class Client:
    """An engine, the loop it lives in, and the undisturbed answers."""

    llm: Any
    runner: asyncio.Runner
    trace: Path
    expected: list[list[int]] = field(default_factory=list)

    def run(self, scene: Callable[[Client], Awaitable[Result]]) -> Result:
        """Play a scene, then check that the engine answers as before."""

        async def play() -> Result:
            return await asyncio.wait_for(scene(self), 120)

        result = self.runner.run(play())
        assert self.runner.run(_all_answers(self)) == self.expected
        return result


async def _all_answers(client: Client) -> list[list[int]]:
    return await asyncio.gather(*(Request(each).follow(client.llm) for each in PROMPTS))


@pytest.fixture(scope="module")
def client(pairs: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    trace = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    options = draft_options(pairs["high"], mode="two-batch", trace=str(trace))
    args = AsyncEngineArgs(str(pairs["high"].target), **ENGINE, **minedraft.engine_args(**options))

    async def start() -> Any:
        return AsyncLLM.from_engine_args(args)

    with asyncio.Runner() as runner:
        client = Client(runner.run(start()), runner, trace)
        try:
            client.expected = runner.run(_all_answers(client))
            yield client
        finally:
            client.llm.shutdown()
            client.llm = None  # or it would shut down again when Python ends


def _started(client: Client, prompts: list[list[int]] = PROMPTS) -> tuple[list[Request], Any]:
    requests = [Request(each) for each in prompts]
    return requests, asyncio.gather(*(each.follow(client.llm) for each in requests))


async def _until(requests: list[Request], count: int) -> None:
    """Until each request has `count` tokens, or is finished."""
    while any(len(each.token_ids) < count and not each.finish_reason for each in requests):
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("seed", range(3))
def test_aborts_at_every_stage(client: Client, seed: int) -> None:
    """While waiting, in a prompt, drafted, in flight: the others go on as if alone."""

    async def scene(client: Client) -> None:
        rng = random.Random(seed)
        _, answers = _started(client)
        for _ in range(24):
            victim = asyncio.create_task(Request(rng.choice(PROMPTS)).follow(client.llm))
            await asyncio.sleep(rng.choice([0.0, 0.001, 0.005, 0.02, 0.05]))
            victim.cancel()
            with pytest.raises(asyncio.CancelledError):
                await victim
        assert await answers == client.expected

    client.run(scene)


@pytest.mark.parametrize("clear_cache", [False, True])
def test_pause_and_keep(client: Client, clear_cache: bool) -> None:
    async def scene(client: Client) -> None:
        requests, answers = _started(client)
        for count in (1, 20, 60):
            await _until(requests, count)
            await client.llm.pause_generation(mode="keep", clear_cache=clear_cache)
            assert await client.llm.is_paused()
            before = [len(each.token_ids) for each in requests]
            late = asyncio.create_task(Request([9, 8, 7], 4).follow(client.llm))
            await asyncio.sleep(0.2)
            assert [len(each.token_ids) for each in requests] == before
            assert not late.done()
            await client.llm.resume_generation()
            assert len(await late) == 4
        assert await answers == client.expected

    client.run(scene)


def test_pause_and_wait(client: Client) -> None:
    async def scene(client: Client) -> None:
        requests, answers = _started(client)
        await _until(requests, 10)
        await client.llm.pause_generation(mode="wait")
        assert all(each.finish_reason == "length" for each in requests)
        late = asyncio.create_task(Request([9, 8, 7], 4).follow(client.llm))
        await asyncio.sleep(0.2)
        assert not late.done()
        await client.llm.resume_generation()
        assert len(await late) == 4
        assert await answers == client.expected

    client.run(scene)


def test_pause_and_abort(client: Client) -> None:
    async def scene(client: Client) -> None:
        requests, answers = _started(client)
        await _until(requests, 10)
        await client.llm.pause_generation(mode="abort")
        got = await answers
        await client.llm.resume_generation()
        assert {each.finish_reason for each in requests} == {"abort"}
        for tokens, expected in zip(got, client.expected, strict=True):
            assert tokens == expected[: len(tokens)]

    client.run(scene)


@pytest.mark.parametrize("level", [0, 1])
def test_sleep_and_wake_up(client: Client, level: int) -> None:
    """A CPU frees nothing in its sleep; what counts is that scheduling stops and goes on."""

    async def scene(client: Client) -> None:
        requests, answers = _started(client)
        await _until(requests, 10)
        await client.llm.sleep(level=level, mode="keep")
        assert await client.llm.is_sleeping()
        before = [len(each.token_ids) for each in requests]
        await asyncio.sleep(0.2)
        assert [len(each.token_ids) for each in requests] == before
        await client.llm.wake_up(["scheduling"] if level == 0 else None)
        assert not await client.llm.is_sleeping()
        assert await answers == client.expected

    client.run(scene)


def test_reset_of_the_prefix_cache_preempts_and_changes_nothing(client: Client) -> None:
    async def scene(client: Client) -> None:
        requests, answers = _started(client)
        for count in (1, 10, 30, 60):
            await _until(requests, count)
            assert await client.llm.reset_prefix_cache(reset_running_requests=True)
        assert await answers == client.expected

    client.run(scene)


def test_drafts_come_back_after_all_that(client: Client) -> None:
    """Runs after the scenes above: the drafter must still serve."""
    before = _num_accepted(client.trace)
    client.run(_all_answers)
    assert _num_accepted(client.trace) > before + 100


def _num_accepted(trace: Path) -> int:
    _, steps = read_trace(trace)
    return sum(sum(step.accepted_per_position) for step in steps)


CHUNKS = [[5, 6, 7, 8], list(range(20, 90)), [11, 12]]
PER_CHUNK = 12


async def _chunks(arrival_s: float) -> AsyncIterator[Any]:
    from vllm.engine.protocol import StreamingInput

    for chunk in CHUNKS:
        yield StreamingInput({"prompt_token_ids": list(chunk)})  # vLLM appends to it
        await asyncio.sleep(arrival_s)


@pytest.mark.parametrize("arrival_s", [0.0, 0.3])
@pytest.mark.parametrize("neighbours", [0, 7])
def test_streaming_input(client: Client, neighbours: int, arrival_s: float) -> None:
    """A session is answered chunk by chunk; each answer keeps all but its last token."""

    async def scene(client: Client) -> None:
        _, answers = _started(client, PROMPTS[:neighbours])
        expected: list[int] = []
        context: list[int] = []
        session = Request(_chunks(arrival_s), PER_CHUNK)
        got = await session.follow(client.llm)
        for chunk in CHUNKS:
            context = [*context, *chunk]
            tokens = await Request(context, PER_CHUNK).follow(client.llm)
            expected += tokens
            context += tokens[:-1]
        assert got == expected
        assert await answers == client.expected[:neighbours]

    client.run(scene)


def test_sessions_given_up(client: Client) -> None:
    async def scene(client: Client) -> None:
        _, answers = _started(client, PROMPTS[:4])
        for wait_s in (0.0, 0.01, 0.1):
            session = asyncio.create_task(Request(_chunks(0.05), PER_CHUNK).follow(client.llm))
            await asyncio.sleep(wait_s)
            session.cancel()
            with pytest.raises(asyncio.CancelledError):
                await session
        assert await answers == client.expected[:4]

    client.run(scene)
