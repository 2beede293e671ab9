"""The book under any order of updates and passes, against the true tokens of every request.

The toy device checks the KV cache position by position; this machine checks the answers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from minedraft.drafter import DraftBook, TokensOnlyDevice
from minedraft.methods import DoubleDrafter, Surroundings
from minedraft.transport.messages import Add, Commit, Drafts, Update, Want
from toy_device import VOCAB

K = 4
NAMES = ("a", "b", "c", "d", "e")
SMALL = st.fixed_dictionaries(
    {
        "max_model_len": st.integers(12, 80),
        "max_num_batched_tokens": st.integers(5, 30),
        "max_num_seqs": st.integers(1, 5),
        "num_kv_blocks": st.integers(3, 30),
        "block_size": st.integers(1, 8),
    }
)
ROOMY = st.fixed_dictionaries({"max_model_len": st.integers(12, 100)})


class BookMachine(RuleBasedStateMachine):
    """What stands below is set by the test."""

    new_device: Callable[..., Any]
    true_greedy: Callable[..., list[int]]
    """What the target accepts."""
    greedy: Callable[..., list[int]]
    """What drafts are checked against: the same, but for the test of this very check."""
    tight_pools_settle = True
    """Whether idle work must end even if the KV pool does not hold everyone: True as soon as
    test_idle_work_ends_whatever_the_pool (test_book.py) passes."""

    gives_all = True
    """Whether the device has all guesses that anyone wants."""

    def __init__(self) -> None:
        super().__init__()
        self.truth: dict[str, tuple[int, list[int]]] = {}
        self.open: dict[int, Want] = {}
        self.waiting: list[int] = []
        self.version = 0
        self.ticket = 0

    @initialize(
        info=SMALL | ROOMY,
        prefix_caching=st.booleans(),
        lengths=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    )
    def begin(self, info: dict[str, int], prefix_caching: bool, lengths: list[int]) -> None:
        self.roomy = "block_size" not in info
        self.device = type(self).new_device(prefix_caching=prefix_caching, **info)
        self.book = DraftBook(self.device)
        self.max_len = self.device.info.max_model_len

        for length in lengths:
            self.add(NAMES[len(self.truth)], length, 0, False)

    # -- updates ---------------------------------------------------------------------

    @rule(
        name=st.sampled_from(NAMES),
        length=st.integers(1, 30),
        like=st.sampled_from((0, 0, 1)),
        reuse=st.booleans(),
    )
    def add(self, name: str, length: int, like: int, reuse: bool) -> None:
        known = self.truth.get(name)
        if not (reuse and known):
            self.version += 1
        version = known[0] if reuse and known else self.version
        tokens = [(like + place) % 5 for place in range(length)]
        self._apply(Update(adds=[Add(name, version, tokens)]))
        self.truth[name] = (version, tokens)

    @precondition(lambda self: self.truth)
    @rule(data=st.data(), accepted=st.integers(0, 2 * K), wrong=st.booleans())
    def commit(self, data: st.DataObject, accepted: int, wrong: bool) -> None:
        self._commit(data.draw(st.sampled_from(sorted(self.truth))), accepted, wrong)

    @precondition(lambda self: self.truth)
    @rule(
        outcomes=st.lists(st.tuples(st.integers(0, K), st.booleans()), min_size=5, max_size=5),
        may_wait=st.booleans(),
        lead=st.integers(0, K + 1),
        most=st.integers(0, 6),
    )
    def round_of_everyone(
        self, outcomes: list[tuple[int, bool]], may_wait: bool, lead: int, most: int
    ) -> None:
        for name, (accepted, wrong) in zip(sorted(self.truth), outcomes, strict=False):
            self._commit(name, accepted, wrong)
        self.want(sorted(self.truth), K, may_wait, lead)
        self.some_passes(most)

    def _commit(self, name: str, accepted: int, wrong: bool) -> None:
        version, tokens = self.truth[name]
        new = type(self).true_greedy(tokens, accepted + wrong)
        if wrong:
            new[-1] += 1
        self._apply(Update(commits=[Commit(name, version, len(tokens), new)]))
        self.truth[name] = (version, [*tokens, *new])

    @precondition(lambda self: self.truth)
    @rule(data=st.data(), off=st.sampled_from((-1, 1)))
    def news_of_another_life(self, data: st.DataObject, off: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.truth)))
        version, tokens = self.truth[name]
        self._apply(Update(commits=[Commit(name, max(0, version + off), len(tokens), [1])]))
        self._apply(Update(releases=[(name, version - 1)]))

    @precondition(lambda self: len(self.truth) > 2)
    @rule(data=st.data(), how=st.sampled_from(("release", "older", "length")))
    def lose_one(self, data: st.DataObject, how: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.truth)))
        version, tokens = self.truth.pop(name)
        if how == "length":
            off = data.draw(st.sampled_from((-1, 1, 7)))
            self._apply(Update(commits=[Commit(name, version, len(tokens) + off, [1])]))
        else:
            self._apply(Update(releases=[(name, version + (how == "older"))]))

    @rule(name=st.sampled_from(NAMES))
    def release_unknown(self, name: str) -> None:
        if name not in self.truth:
            self._apply(Update(releases=[(name, 10**6)]))

    @rule(
        names=st.lists(st.sampled_from((*NAMES, "unknown")), unique=True, max_size=5),
        num=st.sampled_from((K, K, 1, 0)),
        may_wait=st.booleans(),
        lead=st.integers(0, K + 1),
    )
    def want(self, names: list[str], num: int, may_wait: bool, lead: int) -> None:
        self.ticket += 1
        want = Want(
            ticket=self.ticket, request_ids=names, num_tokens=num, may_wait=may_wait, lead=lead
        )
        self.open[want.ticket] = want
        if may_wait:
            self.waiting.append(want.ticket)
        self._apply(Update(wants=[want]))
        assert may_wait or want.ticket not in self.open, "an answer that need not wait is at once"

    def _apply(self, update: Update) -> None:
        self.book.apply(update, 1)
        for answer in self.book.take_answers():
            assert not self.open[answer.ticket].may_wait
            self._check(answer)

    # -- passes ----------------------------------------------------------------------

    @rule(most=st.integers(1, 4))
    def some_passes(self, most: int) -> None:
        for _ in range(most):
            self._pass()

    @rule()
    def drain(self) -> None:
        for _ in range(600):
            if not self._pass():
                break
        else:
            assert not self.tight_pools_settle and self._is_tight(), "passes without end"
        assert not self.open, "a ticket without an answer"

    def teardown(self) -> None:
        if hasattr(self, "book"):
            self.drain()

    def _is_tight(self) -> bool:
        info = self.device.info
        longest = (min(len(tokens) + 3 * K, self.max_len) for _, tokens in self.truth.values())
        return sum(-(-each // info.block_size) for each in longest) > info.num_kv_blocks

    def _pass(self) -> bool:
        rows = self.book.next_pass(2)
        if rows:
            self.book.record(rows, self.device.run(rows), 3)
        for answer in self.book.take_answers():
            assert answer.ticket == self.waiting.pop(0), "out of turn"
            self._check(answer)
        return bool(rows)

    # -- answers ---------------------------------------------------------------------

    def _check(self, answer: Drafts) -> None:
        want = self.open.pop(answer.ticket)
        names = [draft.request_id for draft in answer.drafts]
        assert len(names) == len(set(names))
        assert set(names) <= set(want.request_ids) & set(self.truth)
        for draft in answer.drafts:
            version, tokens = self.truth[draft.request_id]
            assert (draft.version, draft.committed_len) == (version, len(tokens))
            num = len(draft.token_ids)
            assert draft.token_ids == type(self).greedy(tokens, num)
            room = max(0, self.max_len - len(tokens))
            goal = min(want.num_tokens, room)
            assert num <= goal
            if self.roomy and want.may_wait and self.gives_all:
                assert num == goal, "there was room for all"
        assert answer.start_ns <= answer.end_ns
        if not want.may_wait:
            assert answer.num_passes == 0

    @invariant()
    def the_book_follows_what_is_followed(self) -> None:
        if hasattr(self, "book"):
            assert len(self.book) == len(self.truth)
            lives = {f"{name}@{version}" for name, (version, _) in self.truth.items()}
            holders = getattr(self.device, "holders", lives)
            assert holders <= lives, "blocks of a request that is gone"


def _run(
    toy_device: Any, toy_greedy: Any, checked: Any, *, gives_all: bool = True, **options: Any
) -> None:
    BookMachine.gives_all = gives_all
    BookMachine.new_device = toy_device
    BookMachine.true_greedy = staticmethod(toy_greedy)
    BookMachine.greedy = staticmethod(checked)
    logging.disable(logging.ERROR)
    try:
        run_state_machine_as_test(BookMachine, settings=settings(**options))
    finally:
        logging.disable(logging.NOTSET)


def test_book_in_any_order(toy_device: Any, toy_greedy: Any) -> None:
    _run(toy_device, toy_greedy, toy_greedy, max_examples=250, stateful_step_count=40)


@pytest.mark.parametrize("most", [None, 1, 3])
def test_book_in_any_order_with_a_drafter_that_has_no_model(
    toy_greedy: Any, most: int | None
) -> None:
    """As many guesses in a pass as are wanted, or fewer."""

    def device(*, prefix_caching: bool, **info: int) -> TokensOnlyDevice:
        surroundings = Surroundings(
            vocab_size=VOCAB,
            max_model_len=info.get("max_model_len", 10_000),
            max_num_seqs=info.get("max_num_seqs", 1000),
            num_speculative_tokens=K,
            seed=0,
        )
        double = DoubleDrafter(surroundings, toy_greedy, most=most)
        return TokensOnlyDevice(double, surroundings, "double")

    counts = {"max_examples": 80, "stateful_step_count": 40}
    _run(device, toy_greedy, toy_greedy, gives_all=most is None, **counts)


def test_the_machine_notices_wrong_drafts(toy_device: Any, toy_greedy: Any) -> None:
    """A check that cannot fail would be worth nothing."""

    def other(tokens: list[int], num: int) -> list[int]:
        return list(toy_greedy([*tokens, 9], num))

    phases = (Phase.generate,)
    with pytest.raises(AssertionError):
        _run(toy_device, toy_greedy, other, max_examples=50, phases=phases, database=None)
