"""Prompt lookup against a search through the whole text, and against vLLM's own proposer."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minedraft.errors import ConfigError
from minedraft.methods import Text, make_drafter
from texts import SURROUNDINGS, Story
from vllm_lookup import lookups

WORDS = st.integers(0, 3)


def searched(tokens: list[int], low: int, high: int, count: int) -> list[int]:
    """The longest suffix of `low` to `high` tokens that came before, and what followed first."""
    for n in range(min(high, len(tokens)), low - 1, -1):
        for start in range(len(tokens) - n):
            if tokens[start : start + n] == tokens[len(tokens) - n :]:
                return tokens[start + n : start + n + count]
    return []


def _drafter(low: int, high: int) -> Any:
    options = {"prompt_lookup_min": low, "prompt_lookup_max": high}
    return make_drafter("ngram", options, SURROUNDINGS)


@given(st.lists(WORDS, min_size=1, max_size=40), st.integers(1, 3), st.integers(0, 3), WORDS)
def test_drafts_are_those_of_a_search(tokens: list[int], low: int, more: int, count: int) -> None:
    text = Text(
        request_id="a",
        committed=tokens,
        guesses=[],
        num_prompt=1,
        num_known=0,
        num_wanted=count,
    )
    assert _drafter(low, low + more).draft([text]) == [searched(tokens, low, low + more, count)]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(WORDS, max_size=6), st.integers(0, 8), st.integers(0, 4)), max_size=12
    ),
    st.integers(1, 2),
)
def test_the_index_follows_a_text_that_grows_and_is_rolled_back(
    moves: list[tuple[list[int], int, int]], low: int
) -> None:
    """As if it had seen nothing but the last text."""
    drafter, story = _drafter(low, 3), Story([0, 1, 0])
    for new, rolled_back, wanted in moves:
        story.go_on(drafter, new, rolled_back)
        (draft,) = drafter.draft([story.text(wanted)])
        assert draft == searched(story.tokens, low, 3, wanted)


def test_requests_are_apart_and_end() -> None:
    drafter = _drafter(1, 2)
    one, other = Story([1, 2, 1], "one"), Story([1, 3, 1], "other")
    assert drafter.draft([one.text(1), other.text(1)]) == [[2], [3]]
    drafter.release("one")
    drafter.release("never seen")
    assert drafter.draft([Story([1], "one").text(1)]) == [[]]


@pytest.mark.parametrize(
    ("options", "lengths"),
    [
        ({}, (5, 5)),
        ({"prompt_lookup_min": 2}, (2, 2)),
        ({"prompt_lookup_max": 4}, (4, 4)),
        ({"prompt_lookup_min": 2, "prompt_lookup_max": 4}, (2, 4)),
    ],
)
def test_lengths_default_as_in_vllm(options: dict[str, int], lengths: tuple[int, int]) -> None:
    from minedraft.methods.ngram import NgramOptions

    assert NgramOptions(**options).lengths == lengths


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"prompt_lookup_min": 0}, "draft_options.prompt_lookup_min = 0"),
        ({"prompt_lookup_max": 65}, "draft_options.prompt_lookup_max = 65"),
        ({"prompt_lookup_min": 3, "prompt_lookup_max": 2}, "prompt_lookup_min = 3"),
        ({"prompt_lookup_min": 2.0}, "prompt_lookup_min = 2.0"),
        ({"min": 2}, "unknown option 'min'"),
    ],
)
def test_wrong_options_are_named(options: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError) as error:
        make_drafter("ngram", options, SURROUNDINGS)
    assert named in str(error.value)


@pytest.mark.vllm
def test_drafts_are_those_of_vllm() -> None:
    coins = random.Random(5)
    questions = []
    for _ in range(500):
        tokens = [coins.randrange(5) for _ in range(coins.randint(1, 60))]
        low = coins.randint(1, 4)
        questions.append((tokens, low, low + coins.randint(0, 3), coins.randint(1, 6)))
    theirs = lookups(questions)
    for (tokens, low, high, k), draft in zip(questions, theirs, strict=True):
        assert _drafter(low, high).draft([Story(tokens).text(k)]) == [draft]
    assert sum(map(bool, theirs)) > 100
