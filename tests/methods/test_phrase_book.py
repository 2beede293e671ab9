"""The example that was written from docs/add_a_drafter.md alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minedraft.errors import ConfigError
from minedraft.methods import make_drafter
from texts import SURROUNDINGS, Story


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Any:
    examples = Path(__file__).resolve().parents[2] / "examples" / "drafters"
    monkeypatch.syspath_prepend(str(examples))
    return lambda **options: make_drafter("phrase_book:PhraseBook", options, SURROUNDINGS)


def test_it_walks_along_what_followed_most_often(make: Any) -> None:
    drafter = make()
    story = Story([1, 2, 3, 1, 2, 4, 1, 2, 3, 1, 2])
    assert drafter.draft([story.text(3)]) == [[3, 1, 2]]
    assert drafter.draft([Story([9], "b").text(3)]) == [[]]


def test_it_learns_across_requests_what_the_target_decided(make: Any) -> None:
    drafter = make()
    first = Story([5, 6], "first")
    first.go_on(drafter, [7, 8], 0)
    drafter.draft([first.text(1, num_guesses=1)])
    first.go_on(drafter, [9], 1)
    drafter.draft([first.text(1)])
    drafter.release("first")
    drafter.release("never drafted")
    assert drafter.draft([Story([5], "b").text(9)]) == [[6, 7, 9]]


def test_it_has_a_bound(make: Any) -> None:
    drafter = make(max_entries=1)
    assert drafter.draft([Story([1, 2, 3, 1]).text(4)]) == [[2]]
    with pytest.raises(ConfigError, match="max_entries must be at least 1"):
        make(max_entries=0)
