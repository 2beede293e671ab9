"""TETRIS: what is kept, and that keeping never bends the output."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from minedraft.selection import TakeAll, Tetris, make_selection

LOGS = st.floats(-20.0, 0.0)
DRAFTS = st.dictionaries(st.sampled_from("abcdef"), st.lists(LOGS, max_size=6), max_size=6)


def test_the_most_promising_are_kept() -> None:
    drafts = {"a": [-0.1, -0.1, -0.1], "b": [-1.0, -0.1, -0.1], "c": [-0.05, -3.0, -0.1]}
    assert Tetris(k=1, capacity=4).lengths(drafts) == {"a": 3, "b": 0, "c": 1}
    assert Tetris(k=2).lengths(drafts) == {"a": 3, "b": 2, "c": 1}
    assert Tetris(k=3).lengths(drafts) == {"a": 3, "b": 3, "c": 3}


def test_equal_promises_are_shared_out() -> None:
    drafts = {"a": [0.0] * 5, "b": [0.0] * 5, "c": [0.0] * 5}
    assert Tetris(k=2).lengths(drafts) == {"a": 2, "b": 2, "c": 2}


def test_small_steps_verify_k_each() -> None:
    drafts = {"a": [-9.0] * 5, "b": [-0.1]}
    assert Tetris(k=3, min_requests=3).lengths(drafts) == {"a": 3, "b": 1}
    assert Tetris(k=3, min_requests=2).lengths(drafts) == {"a": 5, "b": 1}


@given(drafts=DRAFTS, k=st.integers(1, 5), capacity=st.none() | st.integers(1, 40))
def test_it_fills_the_capacity_with_leading_tokens(
    drafts: dict[str, list[float]], k: int, capacity: int | None
) -> None:
    kept = Tetris(k=k, capacity=capacity).lengths(drafts)
    limit = k * len(drafts) if capacity is None else capacity
    assert kept.keys() == drafts.keys()
    assert all(0 <= kept[name] <= len(each) for name, each in drafts.items())
    assert sum(kept.values()) == min(limit, sum(map(len, drafts.values())))
    sums = {name: np.cumsum(each) for name, each in drafts.items()}
    worst = min((sums[name][n - 1] for name, n in kept.items() if n), default=math.inf)
    best = max(
        (sums[name][n] for name, n in kept.items() if n < len(drafts[name])), default=-math.inf
    )
    assert worst >= best or math.isclose(worst, best)


@given(drafts=DRAFTS)
def test_nothing_is_chosen_without_extra_tokens(drafts: dict[str, list[float]]) -> None:
    selection = make_selection(k=2, extra_tokens=0, capacity=None, min_requests=1)
    assert isinstance(selection, TakeAll)
    assert selection.lengths(drafts) == {name: len(each) for name, each in drafts.items()}
    assert isinstance(make_selection(k=2, extra_tokens=1, capacity=None, min_requests=1), Tetris)


# -- exactness at a temperature above 0 ----------------------------------------------

SAMPLES = 20_000
# Rows: the token before (the first row stands for the prompt's end too); columns: the next one.
P = np.array([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6], [0.5, 0.4, 0.1]])  # the target
Q = np.array([[0.3, 0.6, 0.1], [0.05, 0.05, 0.9], [0.4, 0.3, 0.3]])  # the draft model
RIVALS = [math.log(0.5), math.log(0.45)]
"""Two tokens of another request, which beat those that the drafter holds unlikely."""

Score = Callable[[np.ndarray, int], float]


def by_peak(q: np.ndarray, token: int) -> float:
    """What minedraft sends: the drafter's highest probability."""
    return float(np.log(q.max()))


def by_own_probability(q: np.ndarray, token: int) -> float:
    """The paper's rule: the drawn token's own probability."""
    return float(np.log(q[token]))


def _pairs(score: Score) -> np.ndarray:
    """How often each pair of first output tokens came, of a request that shares each step's
    capacity of two with a rival: counts [3, 3]."""
    rng = np.random.default_rng(1)
    selection = Tetris(k=1, capacity=2)
    counts = np.zeros((3, 3), dtype=int)
    for _ in range(SAMPLES):
        output: list[int] = []
        while len(output) < 2:
            output += _step(selection, score, output, rng)
        counts[output[0], output[1]] += 1
    return counts


def _step(
    selection: Tetris, score: Score, output: Sequence[int], rng: np.random.Generator
) -> list[int]:
    """Draft two tokens, keep what the selection keeps, verify as in arXiv:2211.17192."""
    last = output[-1] if output else 0
    drafts: list[int] = []
    scores = []
    for _ in range(2):
        q = Q[drafts[-1] if drafts else last]
        drafts.append(_draw(q, rng))
        scores.append(score(q, drafts[-1]))
    kept = selection.lengths({"ours": scores, "rival": RIVALS})["ours"]
    tokens: list[int] = []
    for draft in drafts[:kept]:
        p, q = P[tokens[-1] if tokens else last], Q[tokens[-1] if tokens else last]
        if rng.random() >= min(1.0, p[draft] / q[draft]):
            rest = np.maximum(p - q, 0.0)
            return [*tokens, _draw(rest / rest.sum(), rng)]
        tokens.append(draft)
    return [*tokens, _draw(P[tokens[-1] if tokens else last], rng)]


def _draw(p: np.ndarray, rng: np.random.Generator) -> int:
    return min(2, bisect(list(accumulate(p.tolist())), rng.random()))


def _p_value(counts: np.ndarray) -> float:
    expected = P[0][:, None] * P * SAMPLES
    return float(chisquare(counts.ravel(), expected.ravel()).pvalue)


def test_what_is_kept_by_peak_leaves_the_output_exact() -> None:
    """Also where the number of tokens kept depends on the tokens before."""
    assert _p_value(_pairs(by_peak)) > 0.001


def test_the_papers_rule_bends_the_output() -> None:
    """The same harness fails for it, so that the test above can fail."""
    assert _p_value(_pairs(by_own_probability)) < 1e-6


def test_for_greedy_drafts_the_two_rules_are_one() -> None:
    """The most likely token's own probability is the highest."""
    for q in Q:
        assert by_peak(q, int(q.argmax())) == by_own_probability(q, int(q.argmax()))
