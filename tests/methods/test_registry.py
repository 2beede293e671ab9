"""Methods by name: their options, and the classes of other people."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from minedraft import MineDraftConfig
from minedraft.errors import ConfigError
from minedraft.methods import check_installed, check_method, make_drafter
from texts import SURROUNDINGS, Story

HERE = "strangers"
EMULATED = {"target": {"fixed_ms": 3.0}, "draft": {"fixed_ms": 1.0}}


def test_a_class_elsewhere_is_made_with_its_options() -> None:
    drafter = make_drafter(f"{HERE}:Echo", {"times": 3}, SURROUNDINGS)
    assert drafter.draft([Story([5, 6]).text(2), Story([7], "b").text(9)]) == [[6, 6], [7, 7, 7]]


@pytest.mark.parametrize(
    ("method", "options", "named"),
    [
        (f"{HERE}:Missing", {}, "draft_method = 'strangers:Missing'"),
        ("no.such.module:Echo", {}, "No module named 'no'"),
        (f"{HERE}:Echo", {"count": 3}, "draft_options = {'count': 3}"),
        (f"{HERE}:Echo", {"times": "x"}, "strangers:Echo could not be made: ValueError: times"),
        (f"{HERE}:Silent", {}, "has no method draft"),
        (f"{HERE}:Greedy", {}, "needs() = 'everything'"),
    ],
)
def test_a_class_that_is_no_drafter_is_refused(
    method: str, options: dict[str, object], named: str
) -> None:
    check_method(method, options)
    with pytest.raises(ConfigError) as error:
        make_drafter(method, options, SURROUNDINGS)
    assert named in str(error.value)


@pytest.mark.parametrize(
    "method", ["", "Ngram", "mtp", "a:b:c", "a.b", ":C", "a:", "a..b:C", "1a:C", "a:C()", 3, None]
)
def test_a_name_that_is_no_method_is_refused(method: object) -> None:
    with pytest.raises(ConfigError, match=r"draft_method = .*'model', 'eagle', .*'suffix', or the"):
        check_method(method, {})


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"draft_options": {"n": 2}, "draft_model": "m"}, "draft_options of draft_method 'model'"),
        ({"draft_options": {"n": 2}, "draft_method": "ngram"}, "draft_method 'ngram'; allowed"),
        ({"draft_options": [2], "draft_method": "ngram"}, "draft_options = [2]"),
        ({"draft_method": "ngram", "draft_model": "m"}, "draft_model = 'm'"),
        ({"draft_method": "ngram", "draft_dtype": "float32"}, "draft_dtype = 'float32'"),
        ({"draft_method": "ngram", "draft_kv_cache_gib": 1.0}, "draft_kv_cache_gib = 1.0"),
        ({"draft_method": "ngram", "draft_sample_method": "probabilistic"}, "sample_method"),
        ({"draft_method": "ngram", "draft_device": "cuda:1"}, "draft_device = 'cuda:1'"),
        ({"draft_method": "ngram", "tetris_extra_tokens": 2}, "tetris_extra_tokens = 2"),
        ({"draft_method": "a.b:C", "draft_options": {"x": float("nan")}}, "what JSON has a form"),
        ({"draft_method": "a.b:C", "draft_options": {"x": Path("y")}}, "what JSON has a form"),
        ({"draft_method": "ngram", "emulate": {**EMULATED, "acceptance": [0.5]}}, "'ngram' is not"),
        ({"draft_method": "model"}, "draft_model is missing"),
        ({}, "or a draft_method without one"),
    ],
)
def test_options_that_do_not_go_together_are_refused(given: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError) as error:
        MineDraftConfig.from_mapping(given)
    assert named in str(error.value)


@pytest.mark.parametrize(
    "given",
    [
        {"draft_method": "ngram"},
        {"draft_method": "ngram", "draft_options": {"prompt_lookup_min": 2}},
        {"draft_method": "suffix", "draft_device": "cpu:1", "draft_hang_timeout_s": 9.0},
        {"draft_method": "some.where:Else", "draft_options": {"any": [1, {"thing": None}]}},
    ],
)
def test_methods_go_through_a_plain_mapping(given: dict[str, object]) -> None:
    config = MineDraftConfig.from_mapping(given)
    assert config.drafter is not None
    assert not config.drafter.runs_model
    assert config.drafter.name == given["draft_method"]
    assert MineDraftConfig.from_mapping(config.to_mapping()) == config
    assert {**given, "draft_device": str(config.drafter.device)} == config.to_mapping()


def test_a_configuration_with_options_can_be_a_key() -> None:
    given = {"draft_method": "ngram", "draft_options": {"prompt_lookup_min": 2}}
    one, other = (MineDraftConfig.from_mapping(given) for _ in range(2))
    assert {one: 1}[other] == 1


@pytest.mark.parametrize(
    ("method", "named"),
    [
        ("no.such.module:Echo", "one whose module 'no.such.module' can be imported"),
        ("strangers.inside:Echo", "'strangers.inside' can be imported"),
        ("suffix", "'arctic_inference' can be imported; install arctic-inference"),
    ],
)
def test_what_is_not_installed_is_known_without_starting_it(
    method: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "arctic_inference", None)
    with pytest.raises(ConfigError) as error:
        check_installed(method)
    assert named in str(error.value)
    check_installed("ngram")
    check_installed(f"{HERE}:NoMatterWhich")
