"""Drafters without a model behind the book: several guesses a pass, fewer than wanted, none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from minedraft.drafter import DraftBook, TokensOnlyDevice
from minedraft.errors import DrafterError
from minedraft.methods import DoubleDrafter, Needs, Surroundings, Text
from minedraft.transport.messages import Add, Commit, Drafts, Guesses, Update, Want
from toy_device import greedy

SURROUNDINGS = Surroundings(
    vocab_size=50, max_model_len=64, max_num_seqs=8, num_speculative_tokens=4, seed=0
)


class Listed:
    """Drafts what is written down for a text, and nothing else."""

    def __init__(self, drafts: dict[tuple[int, ...], list[int]]) -> None:
        self.drafts = drafts
        self.asked: list[tuple[tuple[int, ...], int]] = []

    def needs(self) -> Needs:
        return Needs.TOKENS

    def draft(self, texts: Sequence[Text]) -> list[list[int]]:
        found = []
        for text in texts:
            tokens = (*text.committed, *text.guesses)
            self.asked.append((tokens, text.num_wanted))
            found.append(self.drafts.get(tokens, [])[: text.num_wanted])
        return found

    def roll_back(self, request_id: str, length: int) -> None:
        pass

    def release(self, request_id: str) -> None:
        pass


def _book(drafter: Any) -> tuple[DraftBook, TokensOnlyDevice]:
    device = TokensOnlyDevice(drafter, SURROUNDINGS, "it")
    return DraftBook(device), device


def _run(book: DraftBook, device: TokensOnlyDevice) -> list[Drafts | Guesses]:
    answers = []
    for number in range(100):
        rows = book.next_pass(number)
        answers += book.take_answers()
        if not rows:
            return answers
        book.record(rows, device.run(rows), number)
        answers += book.take_answers()
    raise AssertionError("passes without end")


def _want(ticket: int, num_tokens: int = 4, lead: int = 0) -> Want:
    return Want(ticket=ticket, request_ids=["a"], num_tokens=num_tokens, lead=lead)


def _drafted(answers: Sequence[Drafts | Guesses]) -> list[list[int]]:
    return [draft.token_ids for answer in answers for draft in answer.drafts]


def test_all_drafts_of_a_ticket_come_from_one_pass() -> None:
    drafter = Listed({(1, 2): [3, 4, 5, 6, 7]})
    book, device = _book(drafter)
    book.apply(Update(adds=[Add("a", 1, [1, 2])], wants=[_want(1)]), 0)
    (answer,) = _run(book, device)
    assert _drafted([answer]) == [[3, 4, 5, 6]]
    assert isinstance(answer, Drafts)
    assert answer.num_passes == 1


@pytest.mark.parametrize("draft", [[], [3], [3, 4, 5]])
def test_a_ticket_is_answered_with_what_there_is(draft: list[int]) -> None:
    drafter = Listed({(1, 2): draft})
    book, device = _book(drafter)
    book.apply(Update(adds=[Add("a", 1, [1, 2])], wants=[_want(1)]), 0)
    assert _drafted(_run(book, device)) == [draft]
    assert not book.next_pass(9), "nobody is asked again"


def test_it_is_asked_again_once_the_target_has_gone_on() -> None:
    drafter = Listed({(1, 2, 3): [4, 5]})
    book, device = _book(drafter)
    book.apply(Update(adds=[Add("a", 1, [1, 2])], wants=[_want(1)]), 0)
    assert _drafted(_run(book, device)) == [[]]
    book.apply(Update(commits=[Commit("a", 1, 2, [3])], wants=[_want(2)]), 0)
    assert _drafted(_run(book, device)) == [[4, 5]]


def test_nothing_is_drafted_that_nobody_wants() -> None:
    """The prompt is taken in, and what the target adds to drafts that were all accepted."""
    drafter = Listed({(1, 2): [3, 4], (1, 2, 3, 4, 5): [6]})
    book, device = _book(drafter)
    book.apply(Update(adds=[Add("a", 1, [1, 2])]), 0)
    _run(book, device)
    book.apply(Update(wants=[_want(1, num_tokens=2)]), 0)
    _run(book, device)
    book.apply(Update(commits=[Commit("a", 1, 2, [3, 4, 5])]), 0)
    _run(book, device)
    book.apply(Update(wants=[_want(2, num_tokens=2)]), 0)
    assert _drafted(_run(book, device)) == [[6]]
    wanted = [each for each in drafter.asked if each[1]]
    assert wanted == [((1, 2), 2), ((1, 2, 3, 4, 5), 2)]


def test_guesses_ahead_are_reported_with_all_that_is_known() -> None:
    drafter = Listed({(1, 2): [3, 4], (1, 2, 3, 4): [5, 6, 7, 8, 9]})
    book, device = _book(drafter)
    book.apply(Update(adds=[Add("a", 1, [1, 2], reported_lead=6)]), 0)
    assert _drafted(_run(book, device)) == [[3, 4]]
    book.apply(Update(commits=[Commit("a", 1, 2, [3])]), 0)
    assert _drafted(_run(book, device)) == [[4, 5, 6, 7, 8, 9]]
    book.apply(Update(commits=[Commit("a", 1, 3, [4, 5])]), 0)
    assert _drafted(_run(book, device)) == []
    assert drafter.asked[-1] == ((1, 2, 3, 4, 5, 6, 7, 8, 9), 2)


def test_texts_are_told_as_they_are() -> None:
    """The double asserts it at every call: rejections, full acceptance, lives of one id."""
    drafter = DoubleDrafter(SURROUNDINGS, greedy, acceptance=[0.7])
    book, device = _book(drafter)
    tokens, ticket = [1, 2, 3], 0
    for version in (1, 2):
        book.apply(Update(adds=[Add("a", version, tokens)]), 0)
        for _ in range(12):
            ticket += 1
            book.apply(Update(wants=[_want(ticket, lead=ticket % 4)]), 0)
            (draft,) = _drafted(_run(book, device))
            assert len(draft) == 4
            right = greedy(tokens, 5)
            agreed = next((at for at in range(4) if draft[at] != right[at]), 4)
            new = right[: agreed + 1]
            book.apply(Update(commits=[Commit("a", version, len(tokens), new)]), 0)
            tokens = [*tokens, *new]
        tokens = tokens[:5]
    assert set(drafter.texts) == {"a@2"}


@pytest.mark.parametrize(
    ("draft", "named"),
    [
        ([50], "returned [50]"),
        ([-1], "returned [-1]"),
        ([1] * 5, "returned [1, 1, 1, 1, 1]"),
        ([1.0], "returned [1.0]"),
        (["1"], "returned ['1']"),
        ([True], "returned [True]"),
        ("12", "returned '12'"),
        (None, "returned None"),
        (7, "returned 7"),
    ],
)
def test_what_is_no_draft_is_refused(draft: Any, named: str) -> None:
    with pytest.raises(DrafterError) as error:
        _first_pass([draft])
    assert f"it.draft {named}; allowed: up to 4 integers from 0 to 49" in str(error.value)


@pytest.mark.parametrize("drafts", [[], [[1], [2]], None, 7])
def test_there_is_a_draft_for_each_text(drafts: Any) -> None:
    with pytest.raises(DrafterError, match="allowed: a list of 1 drafts"):
        _first_pass(drafts)


def test_integers_of_any_kind_are_tokens() -> None:
    class Eleven:
        def __index__(self) -> int:
            return 11

    assert _first_pass([(3, Eleven())]) == [3, 11]


def _first_pass(drafts: Any) -> list[int]:
    class Fixed(Listed):
        def draft(self, texts: Sequence[Text]) -> Any:
            return drafts

    book, device = _book(Fixed({}))
    book.apply(Update(adds=[Add("a", 1, [1])], wants=[_want(1)]), 0)
    return [guess.token_id for guess in device.run(book.next_pass(0))["a@1"]]
