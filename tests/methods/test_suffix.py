"""Suffix decoding: what the trees are given. They are Arctic Inference's, if it is installed."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from minedraft.errors import ConfigError
from minedraft.methods import make_drafter
from texts import SURROUNDINGS, Story


class _Trees:
    """Notes what it is told, and drafts nothing."""

    def __init__(self, **options: int) -> None:
        self.calls: list[Any] = [("new", options)]

    def start_request(self, name: str, prompt: list[int]) -> None:
        self.calls.append(("start", name, prompt))

    def add_active_response(self, name: str, tokens: list[int]) -> None:
        self.calls.append(("add", name, tokens))

    def speculate(self, name: str, pattern: list[int], **options: float) -> Any:
        self.calls.append(("speculate", name, pattern, options["max_spec_tokens"]))
        return type("Draft", (), {"token_ids": pattern[-1:]})

    def stop_request(self, name: str) -> None:
        self.calls.append(("stop", name))


def _install(monkeypatch: pytest.MonkeyPatch, cache: type | None) -> None:
    module = ModuleType("arctic_inference.suffix_decoding")
    if cache is not None:
        module.SuffixDecodingCache = cache  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "arctic_inference", ModuleType("arctic_inference"))
    monkeypatch.setitem(sys.modules, "arctic_inference.suffix_decoding", module)


def test_trees_are_given_what_is_decided_and_asked_with_guesses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _install(monkeypatch, _Trees)
    options = {"suffix_decoding_max_tree_depth": 3}
    drafter: Any = make_drafter("suffix", options, SURROUNDINGS)
    story = Story([1, 2, 3, 4])
    assert drafter.draft([story.text(5)]) == [[4]]
    story.go_on(drafter, [5, 6], 0)
    drafter.draft([story.text(2, num_guesses=1)])
    story.go_on(drafter, [7], 1)
    drafter.draft([story.text(2)])
    drafter.release("a")
    drafter.release("a")
    assert drafter._cache.calls[1:] == [
        ("start", "a", [1, 2, 3, 4]),
        ("speculate", "a", [2, 3, 4], 5),
        ("add", "a", [5]),
        ("speculate", "a", [4, 5, 6], 2),
        ("add", "a", [7]),
        ("speculate", "a", [4, 5, 7], 2),
        ("stop", "a"),
    ]


def test_without_arctic_inference_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, None)
    with pytest.raises(ConfigError, match="install arctic-inference"):
        make_drafter("suffix", {}, SURROUNDINGS)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"suffix_decoding_max_tree_depth": 0}, "max_tree_depth = 0"),
        ({"suffix_decoding_max_cached_requests": -1}, "max_cached_requests = -1"),
        ({"suffix_decoding_min_token_prob": 1.5}, "min_token_prob = 1.5"),
        ({"suffix_decoding_max_spec_factor": -1}, "max_spec_factor = -1"),
    ],
)
def test_wrong_options_are_named(options: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError) as error:
        make_drafter("suffix", options, SURROUNDINGS)
    assert named in str(error.value)


def test_drafts_are_those_of_vllm() -> None:
    """Its proposer, given the same requests, with each request's tokens as they come."""
    pytest.importorskip("arctic_inference.suffix_decoding")
    import random
    from types import SimpleNamespace

    import numpy as np
    from vllm.v1.spec_decode.suffix_decoding import SuffixDecodingProposer

    spec = SimpleNamespace(
        num_speculative_tokens=4,
        suffix_decoding_max_tree_depth=24,
        suffix_decoding_max_spec_factor=1.0,
        suffix_decoding_min_token_prob=0.1,
        suffix_decoding_max_cached_requests=10_000,
    )
    model = SimpleNamespace(max_model_len=SURROUNDINGS.max_model_len)
    proposer = SuffixDecodingProposer(SimpleNamespace(speculative_config=spec, model_config=model))
    drafter = make_drafter("suffix", {}, SURROUNDINGS)
    coins = random.Random(3)
    num_drafted = 0
    for name in ("a", "b", "c"):
        prompt = [coins.randrange(4) for _ in range(20)]
        story = Story(prompt, name)
        while len(story.tokens) < SURROUNDINGS.max_model_len - 8:
            new = [coins.randrange(4) for _ in range(coins.randint(1, 5))]
            story.go_on(drafter, new, 0)
            rows = np.zeros((1, SURROUNDINGS.max_model_len), dtype=np.int32)
            rows[0, : len(story.tokens)] = story.tokens
            batch = SimpleNamespace(
                req_ids=[name],
                num_tokens_no_spec=[len(story.tokens)],
                req_id_to_index={name: 0},
                num_prompt_tokens=[len(prompt)],
                token_ids_cpu=rows,
            )
            theirs = proposer.propose(4, batch, [new])
            assert drafter.draft([story.text(4)]) == [list(each) for each in theirs]
            num_drafted += len(theirs[0])
        drafter.release(name)
    assert num_drafted > 20
