"""The scheduler's client: drafts reach the life and the length they were made for, or nobody."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from minedraft.drafter import DraftBook, DrafterClient, HeldDraft, NoDrafter, PassTimes
from minedraft.errors import DrafterError, ProtocolError
from minedraft.policies import DraftState
from minedraft.transport.messages import Add, Alive, Commit, Draft, Drafts, Failed, Hello, Update

K = 4
TIMEOUT_S = 60.0
NONE, PENDING, READY = DraftState.NONE, DraftState.PENDING, DraftState.READY


@pytest.fixture
def client(connection: Any) -> DrafterClient:
    return DrafterClient(connection, k=K, reply_timeout_s=TIMEOUT_S, hang_timeout_s=TIMEOUT_S)


def _answer(ticket: int, *drafts: Draft) -> Drafts:
    return Drafts(ticket=ticket, drafts=list(drafts), start_ns=1, end_ns=2, num_passes=K)


def _asked(client: DrafterClient, *lengths: int) -> list[str]:
    """Follow requests r0, r1, ... of these lengths and ask for all under ticket 1."""
    names = [f"r{number}" for number in range(len(lengths))]
    for name, length in zip(names, lengths, strict=True):
        client.follow(name, [7] * length)
    client.ask(names)
    client.flush()
    return names


def _tokens(client: DrafterClient, name: str, length: int) -> list[int] | None:
    found = client.draft_of(name, length)
    return None if found is None else found.draft.token_ids


# -- what is sent --------------------------------------------------------------------


def test_one_update_tells_all_in_order(client: DrafterClient, connection: Any) -> None:
    client.follow("a", [1, 2, 3])
    client.follow("b", [4])
    client.commit("a", [5, 6])
    client.commit("a", [7])
    client.ask(["a", "b"])
    assert connection.channel.sent == []
    client.flush()
    client.flush()
    (update,) = connection.channel.sent
    assert update.releases == []
    assert update.adds == [Add("a", 1, [1, 2, 3]), Add("b", 2, [4])]
    assert update.commits == [Commit("a", 1, 3, [5, 6]), Commit("a", 1, 5, [7])]
    (want,) = update.wants
    assert (want.ticket, want.request_ids, want.num_tokens) == (1, ["a", "b"], K)
    assert want.may_wait
    assert want.lead == 0


def test_every_life_has_its_own_version(client: DrafterClient, connection: Any) -> None:
    for length in (1, 2):
        client.follow("a", [1] * length)
        client.flush()
    client.release("a")
    client.flush()
    first, second, third = connection.channel.sent
    assert first.adds == [Add("a", 1, [1])]
    assert (second.releases, second.adds) == ([("a", 1)], [Add("a", 2, [1, 1])])
    assert third.releases == [("a", 2)]


def test_unknown_requests_are_ignored(client: DrafterClient, connection: Any) -> None:
    client.commit("nobody", [1])
    client.release("nobody")
    client.ask(["nobody"])
    client.ask([])
    client.flush()
    assert connection.channel.sent == []
    assert client.state("nobody") is NONE
    assert client.draft_of("nobody", 3) is None
    assert client.wait(["nobody"], 1.0)


def test_an_empty_commit_is_no_news(client: DrafterClient, connection: Any) -> None:
    (name,) = _asked(client, 3)
    connection.channel.inbox.append(_answer(1, Draft(name, 1, 3, [1, 2])))
    client.collect()
    client.commit(name, [])
    client.flush()
    assert len(connection.channel.sent) == 1
    assert client.state(name) is READY


def test_a_request_that_comes_and_goes_between_two_flushes_is_not_followed(
    client: DrafterClient, connection: Any, toy_device: Any
) -> None:
    client.follow("a", [1, 2, 3])
    client.release("a")
    client.flush()
    book = DraftBook(toy_device())
    for update in connection.channel.sent:
        book.apply(update, 0)
    assert len(book) == 0


# -- what comes back -----------------------------------------------------------------


def test_states_of_a_request(client: DrafterClient, connection: Any) -> None:
    assert client.state("r0") is NONE
    client.follow("r0", [7, 7, 7])
    assert client.state("r0") is NONE
    client.ask(["r0"])
    assert client.state("r0") is PENDING
    client.flush()
    client.collect()
    assert client.state("r0") is PENDING
    assert client.draft_of("r0", 3) is None
    answer = _answer(1, Draft("r0", 1, 3, [1, 2]))
    connection.channel.inbox.append(answer)
    client.collect()
    assert client.state("r0") is READY
    assert client.draft_of("r0", 3) == HeldDraft(
        draft=answer.drafts[0], origins=(PassTimes(1, 2, K),)
    )
    assert client.draft_of("r0", 2) is None
    assert client.draft_of("r0", 4) is None
    client.commit("r0", [1, 2, 3])
    assert client.state("r0") is NONE
    assert client.draft_of("r0", 3) is None
    assert client.draft_of("r0", 6) is None
    client.ask(["r0"])
    client.release("r0")
    assert client.state("r0") is NONE


def test_asking_again_voids_the_draft(client: DrafterClient, connection: Any) -> None:
    (name,) = _asked(client, 3)
    connection.channel.inbox.append(_answer(1, Draft(name, 1, 3, [1, 2])))
    client.collect()
    client.ask([name])
    assert client.state(name) is PENDING
    assert client.draft_of(name, 3) is None


@pytest.mark.parametrize(
    "draft",
    [
        Draft("r0", 2, 3, [1]),
        Draft("r0", 0, 3, [1]),
        Draft("r0", 1, 2, [1]),
        Draft("r0", 1, 4, [1]),
        Draft("r0", 1, 3, [1] * (K + 1)),
    ],
    ids=["newer life", "older life", "shorter", "longer", "too many tokens"],
)
def test_a_draft_that_does_not_fit_is_no_draft(
    client: DrafterClient, connection: Any, draft: Draft
) -> None:
    names = _asked(client, 3, 5)
    good = Draft("r1", 2, 5, [8] * K)
    connection.channel.inbox.append(_answer(1, draft, good))
    client.collect()
    assert client.state("r0") is READY, "answered, with no drafts: it need not wait any longer"
    assert _tokens(client, "r0", 3) == []
    assert all(client.draft_of("r0", length) is None for length in (0, 1, 2, 4, 5))
    assert _tokens(client, "r1", 5) == [8] * K
    assert client.counters.stale_drafts == 1
    assert (client.counters.drafts, client.counters.draft_tokens) == (2, K)
    assert client.available
    assert client.wait(names, 1.0)


def test_a_request_that_the_answer_leaves_out_has_no_draft(
    client: DrafterClient, connection: Any
) -> None:
    _asked(client, 3, 5)
    connection.channel.inbox.append(_answer(1, Draft("r1", 2, 5, [8])))
    client.collect()
    assert _tokens(client, "r0", 3) == []
    assert client.counters.stale_drafts == 0


def test_drafts_that_nobody_asked_for_are_ignored(client: DrafterClient, connection: Any) -> None:
    _asked(client, 3)
    client.follow("other", [7] * 5)
    connection.channel.inbox.append(_answer(1, Draft("other", 2, 5, [8]), Draft("x", 1, 1, [8])))
    client.collect()
    assert client.state("other") is NONE
    assert client.draft_of("other", 5) is None


@pytest.mark.parametrize("moved", ["commit", "release", "follow", "ask"])
def test_an_answer_to_an_old_question_is_stale(
    client: DrafterClient, connection: Any, moved: str
) -> None:
    (name,) = _asked(client, 3)
    length = 3
    if moved == "commit":
        client.commit(name, [1])
        length = 4
    elif moved == "release":
        client.release(name)
    elif moved == "follow":
        client.follow(name, [7] * 3)
    else:
        client.ask([name])
    connection.channel.inbox.append(_answer(1, Draft(name, 1, 3, [1, 2])))
    client.collect()
    expected = {"commit": READY, "release": NONE, "follow": NONE, "ask": PENDING}[moved]
    assert client.state(name) is expected
    assert not _tokens(client, name, length)
    assert client.counters.stale_drafts == 1


def test_duplicate_and_unknown_tickets_are_ignored(
    client: DrafterClient, connection: Any, caplog: pytest.LogCaptureFixture
) -> None:
    (name,) = _asked(client, 3)
    with caplog.at_level(logging.WARNING, logger="minedraft"):
        connection.channel.inbox.extend(
            [
                _answer(9, Draft(name, 1, 3, [9])),
                _answer(1, Draft(name, 1, 3, [1])),
                _answer(1, Draft(name, 1, 3, [2])),
            ]
        )
        client.collect()
    assert _tokens(client, name, 3) == [1]
    assert "ticket 9" in caplog.text
    assert "ticket 1" in caplog.text
    assert client.available


def test_a_question_that_is_passed_over_starves_nobody(
    client: DrafterClient, connection: Any
) -> None:
    """Questions are answered in order: one that was passed over counts as unanswered."""
    client.follow("a", [7])
    client.follow("b", [7])
    client.ask(["a"])
    client.ask(["b"])
    client.flush()
    connection.channel.inbox.append(_answer(2, Draft("b", 2, 1, [2])))
    client.collect()
    assert (client.state("a"), client.state("b")) == (NONE, READY)
    connection.channel.inbox.append(_answer(1, Draft("a", 1, 1, [1])))
    client.collect()
    assert (client.draft_of("a", 1), _tokens(client, "b", 1)) == (None, [2])
    assert client.available


# -- waiting -------------------------------------------------------------------------


def test_wait_ends_with_the_answer_to_these_requests(
    client: DrafterClient, connection: Any, clock: Any
) -> None:
    client.follow("a", [7])
    client.follow("b", [7])
    client.ask(["a"])
    client.ask(["b"])
    client.flush()
    connection.channel.inbox.extend([_answer(1, Draft("a", 1, 1, [1])), "never looked at"])
    assert client.wait(["a"], 5.0)
    assert connection.channel.inbox == type(connection.channel.inbox)(["never looked at"])


def test_wait_ends_after_its_timeout(client: DrafterClient, clock: Any) -> None:
    (name,) = _asked(client, 3)
    begin = clock.now
    assert not client.wait([name], 1.0)
    assert clock.now - begin == pytest.approx(1.0)
    assert not client.wait([name], 0.0)
    assert not client.wait([name], -1.0)
    assert client.available


# -- a drafter that is lost ----------------------------------------------------------


def _check_lost(client: DrafterClient, connection: Any, names: list[str]) -> None:
    assert not client.available
    assert client.wait(names, 5.0), "nobody waits for it"
    for name in names:
        assert client.state(name) is NONE
        assert all(client.draft_of(name, length) is None for length in range(10))
    num_sent = len(connection.channel.sent)
    client.follow("late", [1])
    client.commit(names[0], [1])
    client.ask([*names, "late"])
    client.release(names[0])
    client.flush()
    client.collect()
    assert len(connection.channel.sent) == num_sent, "nothing is sent any more"
    assert client.state("late") is NONE


LOSSES: dict[str, Any] = {
    "garbage": ProtocolError("minedraft: unreadable message"),
    "another hello": Hello(
        token="", pid=1, vocab_size=1, max_model_len=1, num_kv_blocks=1, block_size=1
    ),
    "a failure": Failed(token="", reason="out of memory"),
    "nobody to ask for the time": DrafterError("minedraft: cannot send to the other end"),
}


@pytest.mark.parametrize("how", LOSSES)
@pytest.mark.parametrize("when", ["collect", "wait"])
def test_what_breaks_the_protocol_loses_the_drafter(
    client: DrafterClient,
    connection: Any,
    how: str,
    when: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = _asked(client, 3, 5)
    late = _answer(1, Draft("r0", 1, 3, [1]))
    connection.channel.inbox.extend([LOSSES[how], late])
    with caplog.at_level(logging.ERROR, logger="minedraft"):
        client.collect() if when == "collect" else client.wait(names, 5.0)
    assert "the drafter is lost" in caplog.text
    assert connection.is_killed
    _check_lost(client, connection, names)


def test_a_dead_process_loses_the_drafter_after_its_last_words(
    client: DrafterClient, connection: Any
) -> None:
    client.follow("a", [7])
    client.follow("b", [7])
    client.ask(["a"])
    client.ask(["b"])
    client.flush()
    connection.process.returncode = -9
    connection.channel.inbox.append(_answer(1, Draft("a", 1, 1, [1])))
    assert client.wait(["a"], 5.0)
    assert client.available
    assert _tokens(client, "a", 1) == [1]
    assert client.wait(["a", "b"], 5.0)
    _check_lost(client, connection, ["a", "b"])


def test_a_process_that_dies_while_it_is_awaited_is_noticed_soon(
    client: DrafterClient, connection: Any, clock: Any
) -> None:
    names = _asked(client, 3)
    begin = clock.now

    def die() -> None:
        connection.process.returncode = -9

    connection.channel.inbox.append(die)
    assert client.wait(names, 50.0)
    assert clock.now - begin < 1.0
    _check_lost(client, connection, names)


def test_an_idle_drafter_that_dies_is_noticed(client: DrafterClient, connection: Any) -> None:
    client.follow("a", [7])
    connection.process.returncode = 1
    client.collect()
    _check_lost(client, connection, ["a"])


def test_a_send_that_fails_loses_the_drafter(client: DrafterClient, connection: Any) -> None:
    client.follow("a", [7])
    connection.channel.send_error = DrafterError("minedraft: cannot send")
    client.ask(["a"])
    client.flush()
    _check_lost(client, connection, ["a"])


def test_silence_loses_the_drafter_only_after_the_reply_timeout(
    client: DrafterClient, connection: Any, clock: Any
) -> None:
    names = _asked(client, 3)
    clock.now += TIMEOUT_S - 0.5
    client.collect()
    assert client.available
    assert client.state(names[0]) is PENDING
    clock.now += 1.0
    client.collect()
    _check_lost(client, connection, names)


def test_silence_is_noticed_during_a_wait(
    client: DrafterClient, connection: Any, clock: Any
) -> None:
    names = _asked(client, 3)
    begin = clock.now
    assert client.wait(names, 10 * TIMEOUT_S)
    assert clock.now - begin == pytest.approx(TIMEOUT_S, abs=1.0)
    _check_lost(client, connection, names)


def test_silence_of_a_drafter_that_owes_nothing_is_fine(
    client: DrafterClient, connection: Any, clock: Any
) -> None:
    (name,) = _asked(client, 3)
    connection.channel.inbox.append(_answer(1, Draft(name, 1, 3, [1])))
    client.collect()
    clock.now += 10 * TIMEOUT_S
    client.collect()
    assert client.available
    client.ask([name])
    client.flush()
    clock.now += TIMEOUT_S - 1
    client.collect()
    assert client.available, "the time counts from the question"


def test_any_answer_shows_that_it_lives(client: DrafterClient, connection: Any, clock: Any) -> None:
    client.follow("a", [7])
    client.follow("b", [7])
    client.ask(["a"])
    client.ask(["b"])
    client.flush()
    clock.now += TIMEOUT_S - 1
    connection.channel.inbox.append(_answer(1))
    client.collect()
    clock.now += TIMEOUT_S - 1
    client.collect()
    assert client.available


def test_new_questions_do_not_hide_that_it_is_silent(client: DrafterClient, clock: Any) -> None:
    for number in range(10):
        client.follow(f"r{number}", [7])
        client.ask([f"r{number}"])
        client.flush()
        clock.now += 0.9 * TIMEOUT_S
        client.collect()
    assert not client.available


def test_a_question_that_is_not_sent_yet_is_not_overdue(client: DrafterClient, clock: Any) -> None:
    client.follow("a", [7])
    clock.now += 2 * TIMEOUT_S
    client.ask(["a"])
    client.collect()
    assert client.available


# -- a drafter that is late ----------------------------------------------------------

LATE_S = 5.0


@pytest.fixture
def patient(connection: Any) -> DrafterClient:
    """A client that goes on without drafts long before it gives the drafter up."""
    return DrafterClient(connection, k=K, reply_timeout_s=LATE_S, hang_timeout_s=TIMEOUT_S)


def test_a_late_drafter_is_not_waited_for_but_kept(
    patient: DrafterClient, connection: Any, clock: Any
) -> None:
    names = _asked(patient, 3, 5)
    begin = clock.now
    assert patient.wait(names, 50.0), "nobody waits longer than the reply timeout"
    assert clock.now - begin == pytest.approx(LATE_S, abs=0.5)
    assert not patient.available
    assert not connection.is_killed
    assert [patient.state(name) for name in names] == [NONE, NONE]
    assert (patient.counters.delays, patient.counters.losses) == (1, 0)


def test_a_late_drafter_is_told_all_but_asked_nothing(
    patient: DrafterClient, connection: Any, clock: Any
) -> None:
    (name,) = _asked(patient, 3)
    clock.now += LATE_S + 1
    patient.collect()
    patient.commit(name, [1])
    patient.follow("late", [7])
    patient.ask([name, "late"])
    patient.flush()
    update = connection.channel.sent[-1]
    assert update.commits == [Commit(name, 1, 3, [1])]
    assert update.adds == [Add("late", 2, [7])]
    assert update.wants == []


def test_a_late_answer_is_dropped_and_ends_the_delay(
    patient: DrafterClient, connection: Any, clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    (name,) = _asked(patient, 3)
    clock.now += LATE_S + 1
    patient.collect()
    caplog.clear()
    connection.channel.inbox.append(_answer(1, Draft(name, 1, 3, [1, 2])))
    with caplog.at_level(logging.WARNING, logger="minedraft"):
        patient.collect()
    assert caplog.text == ""
    assert patient.draft_of(name, 3) is None
    assert not patient.available, "not at once: it may be too slow for good"
    clock.now += LATE_S
    assert patient.available
    patient.ask([name])
    patient.flush()
    connection.channel.inbox.append(_answer(2, Draft(name, 1, 3, [3, 4])))
    patient.collect()
    assert _tokens(patient, name, 3) == [3, 4]


def test_pauses_double_for_a_drafter_that_is_late_again_and_again(
    patient: DrafterClient, connection: Any, clock: Any
) -> None:
    (name,) = _asked(patient, 3)
    pauses = []
    for ticket in range(1, 8):
        clock.now += LATE_S + 1
        patient.collect()
        connection.channel.inbox.append(_answer(ticket, Draft(name, 1, 3, [1])))
        patient.collect()
        begin = clock.now
        while not patient.available:
            clock.now += 0.5
        pauses.append(clock.now - begin)
        patient.ask([name])
        patient.flush()
    assert pauses[:4] == pytest.approx([LATE_S, 2 * LATE_S, 4 * LATE_S, 8 * LATE_S], abs=0.6)
    assert pauses[-2:] == pytest.approx([60.0] * 2, abs=0.6)
    connection.channel.inbox.append(_answer(8, Draft(name, 1, 3, [1])))
    patient.collect()
    assert patient.available
    patient.ask([name])
    patient.flush()
    clock.now += LATE_S + 1
    patient.collect()
    connection.channel.inbox.append(_answer(9, Draft(name, 1, 3, [1])))
    patient.collect()
    clock.now += LATE_S
    assert patient.available, "an answer in time ends the row"


def test_drafts_that_are_here_survive_a_delay_of_others(
    patient: DrafterClient, connection: Any, clock: Any
) -> None:
    for name in ("a", "b"):
        patient.follow(name, [7])
        patient.ask([name])
    patient.flush()
    connection.channel.inbox.append(_answer(1, Draft("a", 1, 1, [5])))
    patient.collect()
    clock.now += LATE_S + 1
    patient.collect()
    assert not patient.available
    assert (patient.state("a"), patient.state("b")) == (READY, NONE)
    assert _tokens(patient, "a", 1) == [5]


def test_a_drafter_that_says_it_works_is_late_but_not_lost(
    patient: DrafterClient, connection: Any, clock: Any
) -> None:
    (name,) = _asked(patient, 3)
    for _ in range(30):
        clock.now += TIMEOUT_S / 4
        connection.channel.inbox.append(Alive())
        patient.collect()
    assert not patient.available
    assert (patient.counters.delays, patient.counters.losses) == (1, 0)
    connection.channel.inbox.extend([Alive(), _answer(1, Draft(name, 1, 3, [1]))])
    patient.collect()
    clock.now += LATE_S
    assert patient.available


def test_any_number_of_such_signs_may_be_queued(client: DrafterClient, connection: Any) -> None:
    (name,) = _asked(client, 3)
    connection.channel.inbox.extend([Alive()] * 5000)
    connection.channel.inbox.append(_answer(1, Draft(name, 1, 3, [1])))
    client.collect()
    assert _tokens(client, name, 3) == [1]


def test_a_drafter_that_stays_silent_is_lost_at_last(
    patient: DrafterClient, connection: Any, clock: Any
) -> None:
    names = _asked(patient, 3)
    clock.now += LATE_S + 1
    patient.collect()
    patient.commit(names[0], [1])
    patient.flush()
    clock.now += TIMEOUT_S
    patient.collect()
    assert connection.is_killed
    assert patient.counters.losses == 1
    _check_lost(patient, connection, names)


# -- a drafter that comes back -------------------------------------------------------


class FakeRevival:
    """Gives the connection that `ready` holds, once."""

    def __init__(self) -> None:
        self.lost: list[Any] = []
        self.ready: Any = None
        self.num_proven = 0
        self.is_closed = False

    def begin(self, lost: Any) -> None:
        self.lost.append(lost)

    def poll(self) -> Any:
        ready, self.ready = self.ready, None
        return ready

    def proven(self) -> None:
        self.num_proven += 1

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def revival() -> FakeRevival:
    return FakeRevival()


@pytest.fixture
def mortal(connection: Any, revival: Any) -> DrafterClient:
    return DrafterClient(connection, k=K, reply_timeout_s=1e9, hang_timeout_s=1e9, revival=revival)


def test_a_drafter_that_comes_back_knows_nobody_until_it_is_told(
    mortal: DrafterClient, revival: FakeRevival, connection: Any, new_connection: Callable[[], Any]
) -> None:
    (name,) = _asked(mortal, 3)
    connection.process.returncode = -9
    mortal.collect()
    assert revival.lost == [connection]
    mortal.commit(name, [1, 2])
    mortal.collect()
    assert not mortal.available
    revival.ready = fresh = new_connection()
    mortal.collect()
    assert mortal.available
    assert (mortal.counters.losses, mortal.counters.returns) == (1, 1)
    assert not mortal.follows(name)
    mortal.follow(name, [7] * 5)
    mortal.commit(name, [8])
    mortal.ask([name])
    mortal.flush()
    (update,) = fresh.channel.sent
    assert update.adds == [Add(name, 2, [7] * 5)]
    assert update.commits == [Commit(name, 2, 5, [8])]
    assert revival.num_proven == 0
    fresh.channel.inbox.append(_answer(2, Draft(name, 2, 6, [4])))
    mortal.collect()
    assert _tokens(mortal, name, 6) == [4]
    assert revival.num_proven == 1


def test_answers_of_the_life_before_reach_nobody(
    mortal: DrafterClient, revival: FakeRevival, connection: Any, new_connection: Callable[[], Any]
) -> None:
    (name,) = _asked(mortal, 3)
    connection.process.returncode = -9
    mortal.collect()
    revival.ready = fresh = new_connection()
    mortal.collect()
    mortal.follow(name, [7] * 3)
    mortal.ask([name])
    mortal.flush()
    fresh.channel.inbox.append(_answer(1, Draft(name, 1, 3, [1])))
    mortal.collect()
    assert mortal.state(name) is PENDING
    assert mortal.draft_of(name, 3) is None


def test_close_ends_a_drafter_on_its_way_up(
    mortal: DrafterClient, revival: FakeRevival, connection: Any, new_connection: Callable[[], Any]
) -> None:
    connection.process.returncode = -9
    mortal.collect()
    mortal.close()
    revival.ready = new_connection()
    mortal.collect()
    assert revival.is_closed
    assert not mortal.available


def test_close_ends_the_drafter(client: DrafterClient, connection: Any) -> None:
    client.follow("a", [7])
    client.close()
    assert connection.num_closed == 1
    assert not client.available
    client.flush()
    assert connection.channel.sent == []


def test_no_drafter_knows_nothing() -> None:
    source = NoDrafter()
    source.follow("a", [1])
    source.commit("a", [1])
    source.ask(["a"])
    source.flush()
    source.collect()
    assert not source.available
    assert source.state("a") is NONE
    assert source.draft_of("a", 1) is None
    assert source.wait(["a"], 5.0)
    source.release("a")
    source.close()
    assert source.counters.tickets == 0


# -- any order, any answer -----------------------------------------------------------

NAMES = ("a", "b", "c")


class ClientMachine(RuleBasedStateMachine):
    """A client between a scheduler that does anything and a drafter that says anything."""

    new_connection: Callable[[], Any]

    def __init__(self) -> None:
        super().__init__()
        self.connection = type(self).new_connection()
        self.client = DrafterClient(self.connection, k=K, reply_timeout_s=1e9, hang_timeout_s=1e9)
        self.truth: dict[str, tuple[int, int]] = {}
        self.count = 0
        self.tickets = 0
        self.lost = False

    @rule(name=st.sampled_from(NAMES), length=st.integers(1, 4))
    def follow(self, name: str, length: int) -> None:
        self.count += 1
        self.client.follow(name, [0] * length)
        self.truth[name] = (self.count, length)

    @rule(name=st.sampled_from(NAMES), num=st.integers(0, 3))
    def commit(self, name: str, num: int) -> None:
        self.client.commit(name, [0] * num)
        if name in self.truth:
            version, length = self.truth[name]
            self.truth[name] = (version, length + num)

    @rule(name=st.sampled_from(NAMES))
    def release(self, name: str) -> None:
        self.client.release(name)
        self.truth.pop(name, None)

    @rule(names=st.lists(st.sampled_from(NAMES), unique=True))
    def ask(self, names: list[str]) -> None:
        known = [name for name in names if name in self.truth]
        self.client.ask(names)
        if known and not self.lost:
            self.tickets += 1
            assert all(self.client.state(name) is PENDING for name in known)

    @rule()
    def flush(self) -> None:
        self.client.flush()

    @rule(
        back=st.integers(0, 2),
        drafts=st.lists(
            st.builds(
                Draft,
                request_id=st.sampled_from(NAMES),
                version=st.integers(0, 5),
                committed_len=st.integers(0, 8),
                token_ids=st.lists(st.integers(0, 9), max_size=K + 2),
            ),
            max_size=4,
        ),
        right=st.booleans(),
    )
    def answer(self, back: int, drafts: list[Draft], right: bool) -> None:
        ticket = max(0, self.tickets - back)
        if right:
            drafts = [Draft(name, *life, [1] * K) for name, life in sorted(self.truth.items())]
        self.connection.channel.inbox.append(_answer(ticket, *drafts))
        self.client.collect()

    @precondition(lambda self: self.tickets > 6)
    @rule()
    def die(self) -> None:
        self.connection.process.returncode = 1
        self.client.collect()
        self.lost = True

    @invariant()
    def a_draft_fits_its_request_or_is_not_there(self) -> None:
        assert self.client.available is not self.lost
        for name in NAMES:
            version, length = self.truth.get(name, (0, 0))
            for other in range(length + 6):
                found = self.client.draft_of(name, other)
                if found is None:
                    continue
                draft = found.draft
                assert name in self.truth
                assert other == length
                assert (draft.request_id, draft.version) == (name, version)
                assert draft.committed_len == length
                assert len(draft.token_ids) <= K
                assert self.client.state(name) is READY
            if name not in self.truth or self.lost:
                assert self.client.state(name) is NONE
            elif self.client.state(name) is READY:
                assert self.client.draft_of(name, length) is not None


def test_a_draft_never_reaches_a_request_at_another_length(new_connection: Any) -> None:
    ClientMachine.new_connection = staticmethod(new_connection)
    logging.disable(logging.ERROR)
    try:
        run_state_machine_as_test(
            ClientMachine,
            settings=settings(max_examples=100, stateful_step_count=40),
        )
    finally:
        logging.disable(logging.NOTSET)


class PairMachine(RuleBasedStateMachine):
    """A client and a book, with messages that may be late: the drafts of the whole chain."""

    new_connection: Callable[[], Any]
    new_device: Callable[..., Any]
    greedy: Callable[..., list[int]]

    def __init__(self) -> None:
        super().__init__()
        self.connection = type(self).new_connection()
        self.client = DrafterClient(self.connection, k=K, reply_timeout_s=1e9, hang_timeout_s=1e9)
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

    @rule(accepted=st.integers(0, K), names=st.sets(st.sampled_from(NAMES)))
    def verify(self, accepted: int, names: set[str]) -> None:
        """Some requests are verified, with the drafts that they have, and asked for again."""
        for name in sorted(names & set(self.truth)):
            tokens = self.truth[name]
            found = self.client.draft_of(name, len(tokens))
            drafts = [] if found is None else found.draft.token_ids
            assert drafts == type(self).greedy(tokens, len(drafts))
            new = [*drafts[:accepted], 3]
            self.client.commit(name, new)
            self.truth[name] = [*tokens, *new]
        self.client.ask(sorted(names))
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
        """Once all messages are through, both know the same requests and nobody is awaited."""
        self.client.flush()
        self.drafter_hears(10**6)
        self.drafter_works(300)
        self.client.collect()
        assert len(self.book) == len(self.truth)
        assert all(self.client.state(name) is not PENDING for name in NAMES)


def test_client_and_book_agree_however_late_the_messages(
    new_connection: Any, toy_device: Any, toy_greedy: Any
) -> None:
    PairMachine.new_connection = staticmethod(new_connection)
    PairMachine.new_device = toy_device
    PairMachine.greedy = staticmethod(toy_greedy)
    run_state_machine_as_test(
        PairMachine, settings=settings(max_examples=80, stateful_step_count=40)
    )


def test_an_update_is_never_empty(client: DrafterClient, connection: Any) -> None:
    client.flush()
    client.follow("a", [1])
    client.flush()
    client.flush()
    assert [type(each) for each in connection.channel.sent] == [Update]
