"""The client of a drafter that is never asked: what it guessed holds only if it was right."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)

from minedraft.drafter import DraftBook, PassTimes, RequestTerms, WaitFreeClient
from minedraft.policies import DraftState
from minedraft.transport.messages import (
    Add,
    Candidates,
    Commit,
    Draft,
    Drafts,
    Guesses,
    Sampling,
    Update,
)

K = 3
HANG_S = 60.0
NAMES = ("a", "b", "c")


@pytest.fixture
def client(connection: Any) -> WaitFreeClient:
    return WaitFreeClient(connection, k=K, hang_timeout_s=HANG_S)


def _report(*drafts: Draft, start_ns: int = 1) -> Guesses:
    return Guesses(drafts=list(drafts), start_ns=start_ns, end_ns=start_ns + 1)


def _tokens(client: Any, name: str, length: int) -> list[int]:
    found = client.draft_of(name, length)
    return [] if found is None else list(found.draft.token_ids)


def _take_in(client: WaitFreeClient, connection: Any, *drafts: Draft, start_ns: int = 1) -> None:
    connection.channel.inbox.append(_report(*drafts, start_ns=start_ns))
    client.collect()


def test_the_drafter_is_told_once_and_never_asked(client: WaitFreeClient, connection: Any) -> None:
    client.follow("a", [7, 8])
    client.follow("b", [7], RequestTerms(limit=1))
    client.ask(["a", "b"])
    client.commit("a", [9])
    client.flush()
    client.release("a")
    client.flush()
    adds = [Add("a", 1, [7, 8], K, None, 2 * K + 1), Add("b", 2, [7], 1, None, 3)]
    assert connection.channel.sent == [
        Update(adds=adds, commits=[Commit("a", 1, 2, [9])]),
        Update(releases=[("a", 1)]),
    ]


def test_the_guesses_that_are_here_are_the_draft(client: WaitFreeClient, connection: Any) -> None:
    client.follow("a", [7, 8])
    assert client.state("a") is DraftState.NONE
    assert client.draft_of("a", 2) is None
    _take_in(client, connection, Draft("a", 1, 2, [1]), start_ns=10)
    assert client.state("a") is DraftState.READY
    assert _tokens(client, "a", 2) == [1]
    _take_in(client, connection, Draft("a", 1, 2, [1, 2, 3, 4, 5]), start_ns=20)
    found = client.draft_of("a", 2)
    assert found is not None
    assert found.draft.token_ids == [1, 2, 3], "k of them at most"
    assert found.origins == (PassTimes(10, 11, 1), PassTimes(20, 21, 1))
    assert client.draft_of("a", 3) is None
    assert client.wait(["a"], 100.0)


@pytest.mark.parametrize(
    ("reports", "origins"),
    [
        ([[1], [1, 2, 3, 4, 5, 6]], [10, 20, 20]),
        ([[1, 2], [1, 2, 3, 4]], [10, 10, 20]),
        ([[1, 2, 3]], [10, 10, 10]),
        ([[1], [1, 2], [1, 2, 3]], [10, 20, 30]),
        ([[8, 9], [1, 2, 3]], [20, 20, 20]),
        ([[1, 9, 9, 9], [1, 2], [1, 2, 3]], [20, 20, 30]),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_each_guess_has_the_pass_that_made_it(
    client: WaitFreeClient,
    connection: Any,
    reports: list[list[int]],
    origins: list[int],
    at_once: bool,
) -> None:
    """Several in a pass, and several passes before anyone looks."""
    client.follow("a", [7, 8])
    shrinks = any(len(b) < len(a) for a, b in pairwise(reports))
    if shrinks and not at_once:
        pytest.skip("fewer guesses than are held tell nothing new")
    for number, tokens in enumerate(reports, start=1):
        connection.channel.inbox.append(_report(Draft("a", 1, 2, tokens), start_ns=10 * number))
        if not at_once:
            client.collect()
    client.collect()
    found = client.draft_of("a", 2)
    assert found is not None
    assert found.origins == tuple(
        PassTimes(start, start + 1, 1) for start in dict.fromkeys(origins)
    )


@pytest.mark.parametrize(
    ("committed", "left"),
    [
        ([1, 2, 3, 4], [5, 6, 7]),
        ([1, 2], [3, 4, 5]),
        ([1, 2, 3, 4, 5, 6], [7]),
        ([1, 2, 3, 4, 5, 6, 7], []),
        ([1, 2, 3, 4, 5, 6, 7, 8], []),
        ([9], []),
        ([1, 2, 9], []),
    ],
)
def test_what_agrees_with_the_target_stays(
    client: WaitFreeClient, connection: Any, committed: list[int], left: list[int]
) -> None:
    client.follow("a", [7, 8])
    _take_in(client, connection, Draft("a", 1, 2, [1, 2, 3, 4, 5, 6, 7]))
    client.commit("a", committed)
    assert _tokens(client, "a", 2 + len(committed)) == left
    assert client.state("a") is (DraftState.READY if left else DraftState.NONE)


def test_news_from_before_a_commit_hold_if_they_were_right(
    client: WaitFreeClient, connection: Any
) -> None:
    client.follow("a", [7, 8])
    client.follow("b", [7, 8])
    client.commit("a", [1, 2])
    client.commit("b", [1, 2])
    _take_in(client, connection, Draft("a", 1, 2, [1, 2, 3]), Draft("b", 2, 2, [1, 9, 3]))
    assert _tokens(client, "a", 4) == [3]
    assert _tokens(client, "b", 4) == []
    assert client.counters.stale_drafts == 0
    # The drafter has heard of the commit, and starts again from the truth.
    _take_in(client, connection, Draft("b", 2, 4, [5, 6]))
    assert _tokens(client, "b", 4) == [5, 6]


def test_fewer_guesses_than_are_held_take_nothing_away(
    client: WaitFreeClient, connection: Any
) -> None:
    client.follow("a", [7, 8])
    _take_in(client, connection, Draft("a", 1, 2, [1, 2, 3]))
    _take_in(client, connection, Draft("a", 1, 2, [4]))
    assert _tokens(client, "a", 2) == [1, 2, 3]
    _take_in(client, connection, Draft("a", 1, 2, [4, 5, 6]))
    assert _tokens(client, "a", 2) == [4, 5, 6]


@pytest.mark.parametrize(
    "draft",
    [
        Draft("a", 2, 3, [1]),
        Draft("a", 1, 2, [1]),
        Draft("a", 1, 5, [1]),
        Draft("a", 1, 3, []),
        Draft("a", 1, 3, [1] * (2 * K + 2)),
        Draft("a", 1, 3, [1], Candidates(1, b"\x01\0\0\0", struct.pack("<f", 1.0))),
        Draft("nobody", 1, 3, [1]),
    ],
    ids=["life", "left behind", "not reached", "empty", "too long", "not asked for", "unknown"],
)
def test_what_does_not_fit_is_no_draft(
    client: WaitFreeClient, connection: Any, draft: Draft
) -> None:
    client.follow("a", [7, 7, 7])
    _take_in(client, connection, draft)
    assert client.draft_of("a", 3) is None
    assert client.counters.stale_drafts == 1
    _take_in(client, connection, Draft("a", 1, 3, [4]))
    assert _tokens(client, "a", 3) == [4]


def test_of_many_reports_the_newest_counts_and_each_guess_has_its_own(
    client: WaitFreeClient, connection: Any
) -> None:
    client.follow("a", [7, 8])
    reports = [
        _report(Draft("a", 1, 2, list(range(1, count + 1))), start_ns=count)
        for count in range(1, 4)
    ]
    connection.channel.inbox.extend(reports)
    client.collect()
    found = client.draft_of("a", 2)
    assert found is not None
    assert found.draft.token_ids == [1, 2, 3]
    assert found.origins == tuple(PassTimes(start, start + 1, 1) for start in (1, 2, 3))
    assert (client.counters.drafts, client.counters.draft_tokens) == (1, 3)


def _certain(*tokens: int, width: int = 1) -> Candidates:
    """Each token was certain; the other candidates have probability 0."""
    ids = [token + column for token in tokens for column in range(width)]
    probs = [float(not column) for _ in tokens for column in range(width)]
    return Candidates(
        width, struct.pack(f"<{len(ids)}i", *ids), struct.pack(f"<{len(ids)}f", *probs)
    )


def test_drawn_guesses_keep_what_they_were_drawn_from(
    client: WaitFreeClient, connection: Any
) -> None:
    client.follow("a", [7, 8], RequestTerms(sampling=Sampling(1.0)))
    _take_in(client, connection, Draft("a", 1, 2, [1, 2], _certain(1, 2)))
    _take_in(client, connection, Draft("a", 1, 2, [1, 2, 3, 4, 5], _certain(1, 2, 3, 4, 5)))
    found = client.draft_of("a", 2)
    assert found is not None
    assert found.draft.candidates == _certain(1, 2, 3)
    client.commit("a", [1, 2, 3])
    found = client.draft_of("a", 5)
    assert found is not None
    assert (found.draft.token_ids, found.draft.candidates) == ([4, 5], _certain(4, 5))


def test_a_token_drawn_again_has_its_new_distribution(
    client: WaitFreeClient, connection: Any
) -> None:
    client.follow("a", [7, 8], RequestTerms(sampling=Sampling(1.0)))
    half = Candidates(2, struct.pack("<4i", 1, 9, 2, 9), struct.pack("<4f", 0.5, 0.5, 1.0, 0.0))
    _take_in(client, connection, Draft("a", 1, 2, [1], _certain(1, width=2)))
    _take_in(client, connection, Draft("a", 1, 2, [1, 2], half))
    found = client.draft_of("a", 2)
    assert found is not None
    assert found.draft.candidates == half


def test_a_fast_drafter_is_not_chased(client: WaitFreeClient, connection: Any) -> None:
    client.follow("a", [7])
    made: list[int] = []

    def report() -> Guesses:
        made.append(1)
        connection.channel.inbox.append(report)  # the next is ready before this one is taken in
        return _report(Draft("a", 1, 1, [1] * min(len(made), 2 * K + 1)))

    connection.channel.inbox.append(report)
    client.collect()
    assert len(made) <= 64


@pytest.mark.parametrize("candidates", [None, _certain(1, 2), _certain(1, 2, 4)])
def test_drawn_guesses_without_their_distribution_are_refused(
    client: WaitFreeClient, connection: Any, candidates: Candidates | None
) -> None:
    client.follow("a", [7, 8], RequestTerms(sampling=Sampling(1.0)))
    _take_in(client, connection, Draft("a", 1, 2, [1], _certain(1)))
    _take_in(client, connection, Draft("a", 1, 2, [1, 2, 3], candidates))
    assert _tokens(client, "a", 2) == [1]
    assert client.counters.stale_drafts == 1


def test_another_width_of_candidates_replaces_the_old_ones(
    client: WaitFreeClient, connection: Any
) -> None:
    client.follow("a", [7, 8], RequestTerms(sampling=Sampling(1.0)))
    _take_in(client, connection, Draft("a", 1, 2, [1], _certain(1)))
    _take_in(client, connection, Draft("a", 1, 2, [1, 9], _certain(1, 9, width=2)))
    found = client.draft_of("a", 2)
    assert found is not None
    assert found.draft.candidates == _certain(1, 9, width=2)


def test_silence_loses_the_drafter_once_somebody_is_followed(
    client: WaitFreeClient, connection: Any, clock: Any
) -> None:
    clock.now += 10 * HANG_S
    client.collect()
    client.follow("a", [7])
    client.collect()
    assert client.available
    clock.now += HANG_S - 1
    client.collect()
    assert client.available
    _take_in(client, connection, Draft("a", 1, 1, [4]))
    clock.now += HANG_S + 1
    client.collect()
    assert not client.available
    assert client.counters.losses == 1
    assert connection.is_killed
    assert client.draft_of("a", 1) is None


@pytest.mark.parametrize(
    "message", [Drafts(ticket=1, drafts=[], start_ns=1, end_ns=2, num_passes=1)]
)
def test_what_was_not_to_come_loses_the_drafter(
    client: WaitFreeClient, connection: Any, message: Any
) -> None:
    client.follow("a", [7])
    connection.channel.inbox.append(message)
    client.collect()
    assert not client.available


class RaceMachine(RuleBasedStateMachine):
    """A client and a book, with messages that may be late: what the target is given is what
    the draft model says after the true tokens, and nothing is missing once all is through."""

    new_connection: Callable[[], Any]
    new_device: Callable[..., Any]
    greedy: Callable[..., list[int]]

    def __init__(self) -> None:
        super().__init__()
        self.connection = type(self).new_connection()
        self.client = WaitFreeClient(self.connection, k=K, hang_timeout_s=1e9)
        self.device = type(self).new_device(num_kv_blocks=40, max_num_batched_tokens=24)
        self.book = DraftBook(self.device)
        self.truth: dict[str, list[int]] = {}

    @rule(name=st.sampled_from(NAMES), length=st.integers(1, 20))
    def follow(self, name: str, length: int) -> None:
        self.truth[name] = [place % 5 for place in range(length)]
        self.client.follow(name, self.truth[name])
        self.client.flush()

    @precondition(lambda self: len(self.truth) > 1)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.truth)))
        self.client.release(name)
        del self.truth[name]

    @rule(accepted=st.integers(0, K), right=st.booleans(), names=st.sets(st.sampled_from(NAMES)))
    def verify(self, accepted: int, right: bool, names: set[str]) -> None:
        for name in sorted(names & set(self.truth)):
            tokens = self.truth[name]
            drafts = _tokens(self.client, name, len(tokens))
            assert drafts == type(self).greedy(tokens, len(drafts))
            assert len(drafts) <= K
            kept = drafts[:accepted]
            bonus = type(self).greedy([*tokens, *kept], 1) if right else [3]
            self.client.commit(name, [*kept, *bonus])
            self.truth[name] = [*tokens, *kept, *bonus]
        self.client.flush()

    @rule(num=st.integers(1, 3))
    def drafter_hears(self, num: int) -> None:
        for _ in range(min(num, len(self.connection.channel.sent))):
            self.book.apply(self.connection.channel.sent.pop(0), 0)

    @rule(num=st.integers(1, 8))
    def drafter_works(self, num: int) -> None:
        for _ in range(num):
            if rows := self.book.next_pass(0):
                self.book.record(rows, self.device.run(rows), 0)
        self.connection.channel.inbox.extend(self.book.take_answers())

    @rule()
    def collect(self) -> None:
        self.client.collect()
        assert self.client.available

    def teardown(self) -> None:
        self.client.flush()
        self.drafter_hears(10**6)
        self.drafter_works(300)
        self.client.collect()
        assert len(self.book) == len(self.truth)
        for name, tokens in self.truth.items():
            assert _tokens(self.client, name, len(tokens)) == type(self).greedy(tokens, K)
        assert self.client.counters.losses == 0


def test_client_and_book_agree_however_late_the_messages(
    new_connection: Any, toy_device: Any, toy_greedy: Any
) -> None:
    RaceMachine.new_connection = staticmethod(new_connection)
    RaceMachine.new_device = toy_device
    RaceMachine.greedy = staticmethod(toy_greedy)
    run_state_machine_as_test(
        RaceMachine, settings=settings(max_examples=80, stateful_step_count=40)
    )
