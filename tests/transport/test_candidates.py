"""A draft whose distribution cannot be what it was drawn from is refused."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from minedraft.transport.candidates import is_sound
from minedraft.transport.messages import Candidates, Draft, Sampling

SAMPLING = Sampling(1.0)
IDS = [[5, 7, 9], [1, 5, 2]]
PROBS = [[0.5, 0.25, 0.25], [0.9, 0.1, 0.0]]


def _candidates(ids: Any = IDS, probs: Any = PROBS, width: int = 3) -> Candidates:
    flat_ids = [each for row in ids for each in row]
    flat_probs = [each for row in probs for each in row]
    return Candidates(
        width,
        struct.pack(f"<{len(flat_ids)}i", *flat_ids),
        struct.pack(f"<{len(flat_probs)}f", *flat_probs),
    )


def _draft(tokens: list[int], candidates: Candidates | None) -> Draft:
    return Draft("r", 1, 3, tokens, candidates)


def test_a_good_draft() -> None:
    assert is_sound(_draft([7, 5], _candidates()), SAMPLING)
    assert is_sound(_draft([], None), SAMPLING)
    assert is_sound(_draft([7, 5], None), None)


@pytest.mark.parametrize(
    ("tokens", "candidates"),
    [
        ([7, 5], None),
        ([7], _candidates()),
        ([7, 5, 5], _candidates()),
        ([8, 5], _candidates()),
        ([7, 2], _candidates()),
        ([7, 5], _candidates(ids=[[5, 7, 7], [1, 5, 2]])),
        ([7, 5], _candidates(ids=[[5, 7, -1], [1, 5, 2]])),
        ([7, 5], _candidates(probs=[[0.5, 0.25, 0.2], [0.9, 0.1, 0.0]])),
        ([7, 5], _candidates(probs=[[0.5, 0.75, -0.25], [0.9, 0.1, 0.0]])),
        ([7, 5], _candidates(probs=[[0.5, 0.25, float("nan")], [0.9, 0.1, 0.0]])),
        ([7, 5], _candidates(probs=[[0.5, 0.25, float("inf")], [0.9, 0.1, 0.0]])),
        ([7, 5], _candidates(width=2)),
        ([7, 5], Candidates(3, _candidates().token_ids, b"")),
        ([7, 5], Candidates(3, b"abc", _candidates().probs)),
    ],
    ids=[
        "none",
        "too many rows",
        "too few rows",
        "token is no candidate",
        "token without probability",
        "doubles",
        "negative id",
        "sum",
        "negative",
        "nan",
        "infinite",
        "width",
        "no probabilities",
        "ragged",
    ],
)
def test_a_bad_one(tokens: list[int], candidates: Candidates | None) -> None:
    assert not is_sound(_draft(tokens, candidates), SAMPLING)


def test_candidates_where_drafts_are_certain() -> None:
    assert not is_sound(_draft([7, 5], _candidates()), None)


def test_candidates_beyond_the_targets_vocabulary() -> None:
    assert is_sound(_draft([7, 5], _candidates()), SAMPLING, 10)
    assert not is_sound(_draft([7, 5], _candidates()), SAMPLING, 9)


def test_first_rows() -> None:
    assert _candidates().part(0, 1) == _candidates(ids=IDS[:1], probs=PROBS[:1])
    assert _candidates().part(1, 2) == _candidates(ids=IDS[1:], probs=PROBS[1:])
    assert _candidates().part(0, 2) == _candidates()
