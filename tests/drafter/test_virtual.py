"""Scheduler and drafter under one virtual time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minedraft.clock import VirtualClock
from minedraft.drafter import DrafterClient, EmulatedDraftDevice, VirtualDrafterLoop, VirtualLine
from minedraft.emulation import Emulation, LatencyModel
from minedraft.errors import ProtocolError
from minedraft.transport.messages import Add, Alive, Drafts, Guesses, Shutdown, Tock, Update, Want
from toy_device import VOCAB, ToyDevice, greedy

K = 3
FIXED_MS, TOKEN_MS = 5.0, 0.5
MS = 1_000_000


@dataclass(slots=True)
class Pipe:
    """Both ends of a channel in one thread: the loop runs when the scheduler waits for it."""

    to_drafter: deque[Any] = field(default_factory=deque)
    to_scheduler: deque[Any] = field(default_factory=deque)
    loop: VirtualDrafterLoop | None = None
    process: Any = None

    def send(self, message: Any) -> None:
        self.to_drafter.append(message)

    def receive(self, timeout_s: float = 0.0) -> Any:
        if self.loop is not None and not self.to_scheduler:
            self.to_drafter.append(Shutdown())
            self.loop.run()
        return self.to_scheduler.popleft() if self.to_scheduler else None

    def close(self) -> None:
        pass


@dataclass(slots=True)
class DrafterEnd:
    pipe: Pipe

    def send(self, message: Any) -> None:
        self.pipe.to_scheduler.append(message)

    def receive(self, timeout_s: float = 0.0) -> Any:
        return self.pipe.to_drafter.popleft()


@dataclass(slots=True, kw_only=True)
class Setup:
    clock: VirtualClock
    line: VirtualLine
    device: ToyDevice
    pipe: Pipe
    channel: VirtualLine = field(init=False)
    is_dead: bool = False

    def __post_init__(self) -> None:
        self.channel = self.line

    def is_alive(self) -> bool:
        return not self.is_dead


def make_setup(silence_s: float = 5.0) -> Setup:
    pipe, clock, device = Pipe(), VirtualClock(), ToyDevice()
    model = LatencyModel(fixed_ms=FIXED_MS, per_token_ms=TOKEN_MS)
    drafter_clock = VirtualClock()
    emulated = EmulatedDraftDevice(
        device,
        Emulation(target=model, draft=model, clock="virtual"),
        vocab_size=VOCAB,
        k=K,
        clock=drafter_clock,
    )
    end: Any = DrafterEnd(pipe)
    pipe.loop = VirtualDrafterLoop(end, emulated, drafter_clock)
    setup: Setup
    line = VirtualLine(pipe, clock, is_alive=lambda: setup.is_alive(), silence_s=silence_s)
    setup = Setup(clock=clock, line=line, device=device, pipe=pipe)
    return setup


def test_drafts_take_the_modelled_time_and_no_other() -> None:
    setup = make_setup()
    connection: Any = setup
    client = DrafterClient(
        connection, k=K, reply_timeout_s=60.0, hang_timeout_s=60.0, clock=setup.clock
    )
    begin_ns = setup.clock.now_ns()
    client.follow("a", [1, 2, 3])
    client.ask(["a"])
    client.flush()
    assert client.wait(["a"], 1.0)
    draft = client.draft_of("a", 3)
    assert draft is not None
    assert draft.draft.token_ids == greedy([1, 2, 3], K)
    # Three passes: the prompt, and one token each.
    expected_ms = K * FIXED_MS + (3 + 1 + 1) * TOKEN_MS
    assert setup.clock.now_ns() - begin_ns == round(expected_ms * MS)
    [times] = draft.origins
    assert (times.start_ns, times.end_ns) == (begin_ns, setup.clock.now_ns())


def test_a_wait_that_is_too_short_ends_on_time() -> None:
    setup = make_setup()
    begin_ns = setup.clock.now_ns()
    setup.line.send(_asking("a", 1))
    assert isinstance(setup.line.receive(0.010), Alive)
    assert setup.clock.now_ns() == begin_ns + 10 * MS
    assert isinstance(setup.line.receive(1.0), Drafts)
    assert setup.clock.now_ns() == begin_ns + round((3 * FIXED_MS + 3 * TOKEN_MS) * MS)


def test_every_wait_puts_the_clock_forward() -> None:
    setup = make_setup()
    begin_ns = setup.clock.now_ns()
    setup.line.receive(1e-12)
    assert setup.clock.now_ns() == begin_ns + 1
    setup.line.receive(0.0)
    assert setup.clock.now_ns() == begin_ns + 1


def test_news_does_not_reach_a_pass_that_runs() -> None:
    setup = make_setup()
    setup.line.send(_asking("a", 1, reported_lead=K))
    assert isinstance(setup.line.receive(0.001), Alive)
    setup.line.send(_asking("b", 2, reported_lead=K))
    assert isinstance(setup.line.receive(1.0), Guesses)
    assert isinstance(setup.line.receive(1.0), Guesses)
    assert [len(each) for each in setup.device.passes[:2]] == [1, 2]


@pytest.mark.parametrize("at_ms", [0, 7])
def test_an_answer_that_needs_no_pass_is_heard_before_time_goes_on(at_ms: int) -> None:
    """What the scheduler asks in reply begins at once, not when its wait would have ended."""
    setup = make_setup()
    setup.line.receive(at_ms / 1e3)
    begin_ns = setup.clock.now_ns()
    setup.line.send(
        Update(
            adds=[Add("a", 1, [2], limit=0)],
            wants=[Want(ticket=1, request_ids=["a"], num_tokens=K)],
        )
    )
    assert isinstance(setup.line.receive(0.010), Drafts)
    assert setup.clock.now_ns() == begin_ns
    setup.line.send(_asking("b", 2))
    answer = setup.line.receive(1.0)
    assert isinstance(answer, Drafts)
    assert answer.start_ns == begin_ns
    assert setup.clock.now_ns() == begin_ns + round((3 * FIXED_MS + 3 * TOKEN_MS) * MS)


def test_a_dead_drafter_says_nothing() -> None:
    setup = make_setup()
    setup.is_dead = True
    assert setup.line.receive(1.0) is None


def test_a_silent_drafter_breaks_the_protocol() -> None:
    setup = make_setup(silence_s=0.0)
    setup.pipe.loop = None
    with pytest.raises(ProtocolError, match="no tock for 0 s"):
        setup.line.receive(1.0)


def test_what_is_no_tock_breaks_the_protocol() -> None:
    setup = make_setup()
    setup.pipe.loop = None
    setup.pipe.to_scheduler.append(Alive())
    with pytest.raises(ProtocolError, match="a tock was expected"):
        setup.line.receive(1.0)


def test_an_update_without_time_ends_the_drafter() -> None:
    setup = make_setup()
    assert setup.pipe.loop is not None
    setup.pipe.to_drafter.append(Update())
    with pytest.raises(ProtocolError, match="Update has no virtual time"):
        setup.pipe.loop.run()


def _asking(name: str, ticket: int, lead: int = 0, reported_lead: int = 0) -> Update:
    wants = (
        [] if reported_lead else [Want(ticket=ticket, request_ids=[name], num_tokens=K, lead=lead)]
    )
    return Update(adds=[Add(name, 1, [ticket + 1], reported_lead=reported_lead)], wants=wants)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.booleans()), min_size=1, max_size=6),
    st.lists(st.integers(0, 60), max_size=12),
)
def test_looking_more_often_changes_nothing(news: list[tuple[int, bool]], looks: list[int]) -> None:
    """Requests come at given ms; when the answers come, and what they say, is the same however
    often the scheduler looks."""
    assert _answers(news, []) == _answers(news, looks)


def _answers(news: list[tuple[int, bool]], looks: list[int]) -> list[tuple[int, Drafts | Guesses]]:
    setup = make_setup()
    begin_ns = setup.clock.now_ns()
    events = sorted(
        [(at, 1, is_reported) for at, is_reported in news] + [(at, 0, False) for at in looks]
    )
    found: list[tuple[int, Drafts | Guesses]] = []

    def look_until(at_ms: int) -> None:
        while (left_ns := begin_ns + at_ms * MS - setup.clock.now_ns()) >= 0:
            message = setup.line.receive(left_ns / 1e9)
            if not isinstance(message, Drafts | Guesses):
                return
            found.append((setup.clock.now_ns() - begin_ns, message))

    for number, (at_ms, is_news, is_reported) in enumerate(events):
        look_until(at_ms)
        if is_news:
            name = str(sum(each[1] for each in events[: number + 1]))
            update = _asking(name, int(name), reported_lead=K if is_reported else 0)
            setup.line.send(update)
    look_until(2000)
    return found


def test_a_tock_knows_as_far_as_it_was_asked() -> None:
    setup = make_setup()
    setup.line.receive(0.5)
    assert not any(isinstance(each, Tock) for each in setup.pipe.to_scheduler)
    assert setup.clock.now_ns() == VirtualClock().now_ns() + 500 * MS
