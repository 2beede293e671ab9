"""The emulated text: both ends agree on it, and its coins are fair and apart."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minedraft.emulated_text import CONTEXT, draft_token, true_token

TOKENS = st.lists(st.integers(0, 50_000), min_size=1, max_size=9)


@given(tokens=TOKENS, position=st.integers(1, 10**6), size=st.integers(5, 10**5))
def test_tokens_are_of_the_vocabulary_and_depend_on_the_end_alone(
    tokens: list[int], position: int, size: int
) -> None:
    token = true_token(tokens, position, size)
    assert 3 <= token < size
    long = [5] * CONTEXT + tokens
    assert true_token([9, *long], position, size) == true_token(long, position, size)
    assert draft_token(tokens, position, size, 1.0) == token
    assert draft_token(tokens, position, size, 0.0) != token
    assert 3 <= draft_token(tokens, position, size, 0.0) < size


@pytest.mark.parametrize("acceptance", [0.1, 0.5, 0.86])
def test_the_coin_is_fair_and_runs_of_it_are_independent(acceptance: float) -> None:
    rng = random.Random(1)
    hits = []
    for _ in range(400):
        tokens = [rng.randrange(500) for _ in range(CONTEXT)]
        for position in range(4, 54):
            token = true_token(tokens, position, 500)
            hits.append(draft_token(tokens, position, 500, acceptance) == token)
            tokens = [*tokens[1:], token]
    assert sum(hits) / len(hits) == pytest.approx(acceptance, abs=0.012)
    pairs = sum(a and b for a, b in pairwise(hits)) / len(hits)
    assert pairs == pytest.approx(acceptance**2, abs=0.02)


def test_tokens_use_the_whole_vocabulary() -> None:
    found = {true_token([number, 5], 7, 60) for number in range(2000)}
    assert found == set(range(3, 60))


def test_requests_that_meet_in_a_token_do_not_go_on_alike() -> None:
    one, other = [1, 2, 3, 9], [4, 5, 6, 9]
    same = 0
    for position in range(4, 204):
        one.append(true_token(one, position, 500))
        other.append(true_token(other, position, 500))
        same += one[-1] == other[-1]
    assert same < 10
