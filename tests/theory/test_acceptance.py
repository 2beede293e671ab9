"""Chains of draft tokens against every outcome counted out."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minedraft.errors import ConfigError
from minedraft.theory import Acceptance

RATES = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=4)


def _by_enumeration(acceptance: Acceptance, k: int) -> float:
    """Mean tokens of a step, by all 2^k right-or-wrong outcomes of the k coins."""
    rates = [acceptance.at(position) for position in range(1, k + 1)]
    total = 0.0
    for outcome in product((True, False), repeat=k):
        chance = prod(a if right else 1 - a for a, right in zip(rates, outcome, strict=True))
        accepted = next((n for n, right in enumerate(outcome) if not right), k)
        total += chance * (accepted + 1)
    return total


@given(RATES, st.integers(0, 6))
def test_expected_tokens_count_every_outcome(rates: list[float], k: int) -> None:
    acceptance = Acceptance(tuple(rates))
    assert acceptance.expected_tokens(k) == pytest.approx(_by_enumeration(acceptance, k))


@given(st.floats(0.0, 0.999), st.integers(0, 40))
def test_equal_rates_give_the_geometric_sum(rate: float, k: int) -> None:
    expected = (1 - rate ** (k + 1)) / (1 - rate)
    assert Acceptance((rate,)).expected_tokens(k) == pytest.approx(expected)


def test_extremes() -> None:
    assert Acceptance((1.0,)).expected_tokens(7) == 8.0
    assert Acceptance((0.0,)).expected_tokens(7) == 1.0
    assert Acceptance((0.5, 1.0)).expected_accepted(3) == 1.5
    assert Acceptance((0.5, 1.0)).success_rate(3) == 0.5
    assert Acceptance((0.5,)).survival(0) == 1.0


def test_counts_become_conditional_rates() -> None:
    found = Acceptance.from_counts([10, 10, 8], [8, 4, 1])
    assert found.conditional == (0.8, 0.5, 0.25)
    assert Acceptance.from_counts([10, 10, 10], [5, 0, 0]).conditional == (0.5, 0.0)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=5), st.data())
def test_counts_of_full_drafts_give_the_measured_mean(
    shape: list[int], data: st.DataObject
) -> None:
    steps = 100
    accepted: list[int] = []
    for _ in shape:
        accepted.append(data.draw(st.integers(0, accepted[-1] if accepted else steps)))
    found = Acceptance.from_counts([steps] * len(shape), accepted)
    assert found.expected_accepted(len(shape)) == pytest.approx(sum(accepted) / steps)


@pytest.mark.parametrize(
    ("proposed", "accepted", "named"),
    [
        ([1], [1, 1], "accepted"),
        ([2], [3], r"accepted\[0\]"),
        ([5, 5], [1, 2], r"accepted\[1\]"),
        ([-1], [0], r"proposed\[0\]"),
        ([0], [0], "proposed"),
        ([], [], "proposed"),
    ],
)
def test_bad_counts_are_refused(proposed: list[int], accepted: list[int], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Acceptance.from_counts(proposed, accepted)


def test_bad_rates_are_refused() -> None:
    with pytest.raises(ConfigError, match="acceptance"):
        Acceptance(())
    with pytest.raises(ConfigError, match=r"acceptance\[1\]"):
        Acceptance((0.5, 1.1))
    with pytest.raises(ConfigError, match="position"):
        Acceptance((0.5,)).at(0)
