"""The batch manager against a plain model, over any order of events."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minedraft.batching import Batch, BatchManager

BATCHES = st.sampled_from(Batch)


class BatchMachine(RuleBasedStateMachine):
    """Admits, removes, resumes, verifies and rebalances in any order; a dict is the model."""

    def __init__(self) -> None:
        super().__init__()
        self.manager = BatchManager()
        self.model: dict[str, Batch] = {}
        self.preempted: list[str] = []
        self.turn = Batch.ZERO
        self.count = 0

    @initialize(num=st.integers(0, 6))
    def begin(self, num: int) -> None:
        for _ in range(num):
            self.admit(None)

    def _admit(self, request_id: str, just_verified: Batch | None) -> None:
        balance = self.manager.balance
        batch = self.manager.admit(request_id, just_verified)
        expected = just_verified
        if expected is None:
            expected = Batch.ZERO if balance >= 0 else Batch.ONE
        assert batch is expected
        assert self.manager.members(batch)[-1] == request_id
        self.model[request_id] = batch

    @rule(just_verified=st.none() | BATCHES)
    def admit(self, just_verified: Batch | None) -> None:
        self.count += 1
        self._admit(f"r{self.count}", just_verified)

    @precondition(lambda self: self.preempted)
    @rule(just_verified=st.none() | BATCHES)
    def resume(self, just_verified: Batch | None) -> None:
        self._admit(self.preempted.pop(0), just_verified)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), comes_back=st.booleans())
    def finish_abort_or_preempt(self, data: st.DataObject, comes_back: bool) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.model)))
        self.manager.remove(request_id)
        del self.model[request_id]
        if comes_back:
            self.preempted.append(request_id)
        if not self.model:
            self.turn = Batch.ZERO

    @rule()
    def remove_unknown(self) -> None:
        self.manager.remove("unknown")
        if not self.model:
            self.turn = Batch.ZERO

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def admit_twice(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.model)))
        with pytest.raises(ValueError, match=request_id):
            self.manager.admit(request_id, Batch.ONE)

    @rule(batch=BATCHES)
    def verified(self, batch: Batch) -> None:
        self.manager.verified(batch)
        self.turn = batch.other

    @rule(data=st.data())
    def rebalance_some(self, data: st.DataObject) -> None:
        names = sorted(self.model)
        self._rebalance(data.draw(st.sets(st.sampled_from(names)) if names else st.just(set())))

    @rule()
    def rebalance_all(self) -> None:
        self._rebalance(set(self.model))
        assert abs(self.manager.balance) <= 1

    def _rebalance(self, movable: set[str]) -> None:
        before, balance = dict(self.model), self.manager.balance
        larger = Batch.ONE if balance > 0 else Batch.ZERO
        candidates = [each for each in self.manager.members(larger) if each in movable]
        moved = self.manager.rebalance([*sorted(movable), "unknown"])
        assert len(moved) == len(set(moved)) == min(abs(balance) // 2, len(candidates))
        assert set(moved) <= movable
        assert set(moved) == set(candidates[len(candidates) - len(moved) :]), "newest move first"
        for request_id in moved:
            assert before[request_id] is larger
            self.model[request_id] = larger.other
        assert abs(self.manager.balance) == abs(balance) - 2 * len(moved)

    @invariant()
    def batches_are_disjoint_and_cover_the_admitted(self) -> None:
        manager = self.manager
        zero, one = manager.members(Batch.ZERO), manager.members(Batch.ONE)
        assert len(zero) == len(set(zero))
        assert len(one) == len(set(one))
        assert not set(zero) & set(one)
        assert {each: manager.batch_of(each) for each in (*zero, *one)} == self.model
        assert set(manager) == set(self.model)
        assert len(manager) == len(self.model)
        assert all(each in manager for each in self.model)
        assert (manager.size(Batch.ZERO), manager.size(Batch.ONE)) == (len(zero), len(one))
        assert manager.balance == len(one) - len(zero)

    @invariant()
    def turn_alternates(self) -> None:
        assert self.manager.next_to_verify is self.turn


TestBatchMachine = BatchMachine.TestCase
TestBatchMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_other_is_an_involution() -> None:
    assert Batch.ZERO.other is Batch.ONE
    assert Batch.ONE.other is Batch.ZERO


def test_first_step_fills_the_batches_in_turn_and_begins_with_batch_0() -> None:
    manager = BatchManager()
    batches = [manager.admit(f"r{number}", None) for number in range(5)]
    assert batches == [Batch.ZERO, Batch.ONE, Batch.ZERO, Batch.ONE, Batch.ZERO]
    assert manager.balance == -1
    assert manager.next_to_verify is Batch.ZERO


@pytest.mark.parametrize("batch", Batch)
def test_later_steps_join_the_batch_just_verified_whatever_the_balance(batch: Batch) -> None:
    manager = BatchManager()
    assert [manager.admit(f"r{number}", batch) for number in range(4)] == [batch] * 4
    assert abs(manager.balance) == 4


def test_unknown_requests() -> None:
    manager = BatchManager()
    manager.remove("nobody")
    assert "nobody" not in manager
    with pytest.raises(KeyError):
        manager.batch_of("nobody")


def test_an_empty_manager_begins_again_with_batch_0() -> None:
    manager = BatchManager()
    manager.admit("a", None)
    manager.verified(Batch.ZERO)
    assert manager.next_to_verify is Batch.ONE
    manager.remove("a")
    assert manager.next_to_verify is Batch.ZERO


def test_rebalance_moves_the_newest() -> None:
    manager = BatchManager()
    for name in "abcd":
        manager.admit(name, Batch.ONE)
    assert sorted(manager.rebalance({"a", "b", "d"})) == ["b", "d"]
    assert manager.members(Batch.ONE) == ("a", "c")
    assert set(manager.members(Batch.ZERO)) == {"b", "d"}


@given(st.integers(0, 40), st.integers(0, 40))
def test_rebalance_evens_out_any_two_sizes(zero: int, one: int) -> None:
    manager = BatchManager()
    for batch, size in ((Batch.ZERO, zero), (Batch.ONE, one)):
        for number in range(size):
            manager.admit(f"{batch.value}-{number}", batch)
    manager.rebalance(list(manager))
    assert abs(manager.balance) == (zero + one) % 2
    assert manager.rebalance(list(manager)) == [], "an even split stays as it is"
