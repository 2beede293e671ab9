"""The drafter's loop over a channel in memory: what it takes in, runs, and sends, and when."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from minedraft.drafter import DrafterLoop, EmulatedDraftDevice
from minedraft.emulated_text import true_token
from minedraft.emulation import Emulation, LatencyModel
from minedraft.errors import ProtocolError
from minedraft.transport.messages import Add, Commit, Drafts, Shutdown, Update, Want

K = 4
PROMPT = [1, 2, 3, 4, 5]


class _Channel:
    """The drafter's end. `inbox` holds lists of messages: one list for each look."""

    def __init__(self, *looks: list[Any]) -> None:
        self.looks = deque(looks)
        self.sent: list[Any] = []
        self.timeouts: list[float] = []

    def receive(self, timeout_s: float = 0.0) -> Any:
        if not self.looks:
            return Shutdown()
        if self.looks[0]:
            message = self.looks[0].pop(0)
            if isinstance(message, Exception):
                raise message
            return message
        self.looks.popleft()
        self.timeouts.append(timeout_s)
        return None

    def send(self, message: Any) -> None:
        self.sent.append(message)


def _want(ticket: int, *names: str, may_wait: bool = True, lead: int = 0) -> Want:
    return Want(ticket=ticket, request_ids=list(names), num_tokens=K, may_wait=may_wait, lead=lead)


def test_it_serves_until_shutdown(
    toy_device: Any, toy_greedy: Callable[[list[int], int], list[int]]
) -> None:
    device = toy_device()
    update = Update(adds=[Add("a", 1, PROMPT)], wants=[_want(1, "a")])
    channel = _Channel([update], *([] for _ in range(K)))
    DrafterLoop(channel, device).run()  # type: ignore[arg-type]
    (answer,) = channel.sent
    assert answer.drafts[0].token_ids == toy_greedy(PROMPT, K)
    assert len(device.passes) == K


def test_shutdown_ends_it_before_another_pass(toy_device: Any) -> None:
    device = toy_device()
    update = Update(adds=[Add("a", 1, PROMPT)], wants=[_want(1, "a")])
    channel = _Channel([update, Shutdown(), update])
    DrafterLoop(channel, device).run()  # type: ignore[arg-type]
    assert device.passes == []
    assert channel.sent == []


def test_news_between_two_passes_counts(
    toy_device: Any, toy_greedy: Callable[[list[int], int], list[int]]
) -> None:
    device = toy_device()
    begin = Update(adds=[Add("a", 1, PROMPT)], wants=[_want(1, "a")])
    news = Update(commits=[Commit("a", 1, len(PROMPT), [9])])
    channel = _Channel([begin], [], [news], *([] for _ in range(2 * K)))
    DrafterLoop(channel, device).run()  # type: ignore[arg-type]
    (answer,) = channel.sent
    assert answer.drafts[0].committed_len == len(PROMPT) + 1
    assert answer.drafts[0].token_ids == toy_greedy([*PROMPT, 9], K)


def test_it_waits_for_news_only_when_idle(toy_device: Any) -> None:
    device = toy_device()
    update = Update(adds=[Add("a", 1, PROMPT)], wants=[_want(1, "a")])
    channel = _Channel([], [update], *([] for _ in range(K + 1)))
    DrafterLoop(channel, device).run()  # type: ignore[arg-type]
    # Only the first look for news waits; those that follow a message do not.
    assert channel.timeouts[0] > 0
    assert channel.timeouts[1 : K + 2] == [0.0] * (K + 1)
    assert channel.timeouts[K + 2 :] == [] or channel.timeouts[-1] > 0


def test_times_come_from_the_given_clock(toy_device: Any) -> None:
    times = iter(range(100, 1000, 10))
    update = Update(adds=[Add("a", 1, PROMPT)], wants=[_want(1, "a")])
    channel = _Channel([update], *([] for _ in range(K)))
    DrafterLoop(channel, toy_device(), clock_ns=lambda: next(times)).run()  # type: ignore[arg-type]
    (answer,) = channel.sent
    assert 100 <= answer.start_ns < answer.end_ns < 1000


@pytest.mark.parametrize("may_wait", [False, True])
def test_an_answer_that_needs_no_pass_leaves_before_the_next_pass(
    toy_device: Any, may_wait: bool
) -> None:
    """Drafts guessed ahead are there: the target must not wait for other work of the drafter."""
    device = toy_device()
    channel = _Channel()
    seen: list[int] = []
    run = device.run

    def watched(rows: Any) -> Any:
        seen.append(len(channel.sent))
        return run(rows)

    ahead = Update(adds=[Add("a", 1, PROMPT)], wants=[_want(1, "a", lead=K + 1)])
    # The second ticket needs no pass; the prompt of another request does.
    more = Update(
        adds=[Add("b", 1, PROMPT[1:])],
        wants=[_want(2, "a", may_wait=may_wait), _want(3, "b")],
    )
    channel.looks = deque([[ahead], *([] for _ in range(4 * K))])
    loop = DrafterLoop(channel, device)  # type: ignore[arg-type]
    loop.run()
    assert [answer.ticket for answer in channel.sent] == [1]
    device.run = watched
    channel.looks = deque([[more], *([] for _ in range(2 * K))])
    loop.run()
    assert [answer.ticket for answer in channel.sent] == [1, 2, 3]
    assert seen[0] == 2


def test_an_emulated_device_is_the_inner_one_but_takes_its_time(toy_device: Any) -> None:
    inner = toy_device()
    model = LatencyModel(fixed_ms=10.0, per_token_ms=2.0, per_request_ms=5.0)
    emulation = Emulation(target=LatencyModel(fixed_ms=0.0), draft=model)
    device = EmulatedDraftDevice(inner, emulation, vocab_size=50, k=K)
    assert device.info is inner.info
    update = Update(adds=[Add("a", 1, PROMPT)])
    channel = _Channel([update], [])
    begin = time.monotonic()
    DrafterLoop(channel, device).run()  # type: ignore[arg-type]
    assert inner.passes == [{"a@1": (0, 5)}]
    assert time.monotonic() - begin >= 0.025
    release = Update(releases=[("a", 1)])
    book_loop = DrafterLoop(_Channel([update, release]), device)  # type: ignore[arg-type]
    book_loop.run()
    device.close()
    assert inner.holders == set()


def test_an_unreadable_message_ends_nothing(
    toy_device: Any, toy_greedy: Callable[[list[int], int], list[int]]
) -> None:
    update = Update(adds=[Add("a", 1, PROMPT)], wants=[_want(1, "a")])
    channel = _Channel([ProtocolError("noise")], [update], *([] for _ in range(K)))
    DrafterLoop(channel, toy_device()).run()  # type: ignore[arg-type]
    (answer,) = channel.sent
    assert answer.drafts[0].token_ids == toy_greedy(PROMPT, K)


def test_emulated_drafts_are_right_as_often_as_told(toy_device: Any) -> None:
    """Position by position: the truth is known without any model."""
    latency = LatencyModel(fixed_ms=0.0)
    rates = (0.9, 0.5, 0.2)
    emulation = Emulation(target=latency, draft=latency, acceptance=rates)
    device = EmulatedDraftDevice(toy_device(), emulation, vocab_size=50, k=K)
    names = [f"r{number}" for number in range(2000)]
    prompts = {name: [number % 50, number // 50, 7] for number, name in enumerate(names)}
    update = Update(
        adds=[Add(name, 1, tokens) for name, tokens in prompts.items()], wants=[_want(1, *names)]
    )
    channel = _Channel([update], *([] for _ in range(3 * K)))
    DrafterLoop(channel, device).run()  # type: ignore[arg-type]
    (answer,) = (each for each in channel.sent if isinstance(each, Drafts))
    right = [[0, 0] for _ in range(K)]
    for draft in answer.drafts:
        tokens = list(prompts[draft.request_id])
        for position, token in enumerate(draft.token_ids):
            is_right = token == true_token(tokens, len(tokens), 50)
            right[position][0] += is_right
            right[position][1] += 1
            if not is_right:
                break
            tokens.append(token)
    found = [good / count for good, count in right]
    assert found == pytest.approx([0.9, 0.5, 0.2, 0.2][:K], abs=0.05)
