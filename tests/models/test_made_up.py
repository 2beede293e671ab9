"""Owns the tests of made-up pairs and their tokenizer; not those of serving them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from minedraft.models.agreement import greedy_text, measure_acceptance
from minedraft.models.folders import load_weights
from minedraft.models.made_up import (
    EPSILON_ACCEPTANCE_HIGH,
    EPSILON_ACCEPTANCE_LOW,
    MadeUpPair,
    main,
    make_pair,
)
from minedraft.models.tokenizer import EOS_ID, MIN_VOCAB_SIZE, build_tokenizer

PROMPTS = ("A short story:", "12 + 30 =", "Once upon a time", "def f(x):")


def _greedy(pair: MadeUpPair) -> list[tuple[list[int], list[int]]]:
    tokenizer = AutoTokenizer.from_pretrained(pair.target)
    target = AutoModelForCausalLM.from_pretrained(pair.target)
    prompts = [tokenizer(prompt).input_ids for prompt in PROMPTS]
    return [(prompt, greedy_text(target, prompt, max_tokens=96)) for prompt in prompts]


def _acceptance(pair: MadeUpPair) -> float:
    draft = AutoModelForCausalLM.from_pretrained(pair.draft)
    return measure_acceptance(draft, _greedy(pair), k=4).rate


def test_same_arguments_give_the_same_weights(pair: MadeUpPair, tmp_path: Path) -> None:
    torch.manual_seed(1)
    again = make_pair(tmp_path / "again", epsilon=EPSILON_ACCEPTANCE_HIGH)
    for ours, theirs in ((pair.target, again.target), (pair.draft, again.draft)):
        first, second = load_weights(ours), load_weights(theirs)
        assert first.keys() == second.keys()
        assert all(torch.equal(first[name], second[name]) for name in first)


def test_random_state_outside_is_not_touched(tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    make_pair(tmp_path / "pair", epsilon=0.1, num_layers=2)
    assert torch.equal(before, torch.random.get_rng_state())


def test_another_seed_gives_other_weights(pair: MadeUpPair, tmp_path: Path) -> None:
    other = make_pair(tmp_path / "other", epsilon=EPSILON_ACCEPTANCE_HIGH, seed=1)
    name = "lm_head.weight"
    assert not torch.equal(load_weights(pair.target)[name], load_weights(other.target)[name])


def test_draft_is_the_first_layers_of_the_target(pair: MadeUpPair) -> None:
    target, draft = load_weights(pair.target), load_weights(pair.draft)
    assert all(torch.equal(target[name], tensor) for name, tensor in draft.items())
    assert {name.split(".")[2] for name in draft if ".layers." in name} == {"0"}


def test_finished_folder_is_left_alone(pair: MadeUpPair) -> None:
    before = (pair.target / "model.safetensors").stat().st_mtime_ns
    make_pair(pair.target.parent, epsilon=EPSILON_ACCEPTANCE_HIGH)
    assert (pair.target / "model.safetensors").stat().st_mtime_ns == before


def test_folder_of_another_recipe_is_refused(pair: MadeUpPair) -> None:
    with pytest.raises(ValueError, match="another recipe"):
        make_pair(pair.target.parent, epsilon=0.5)


def test_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"no recipe\.json"):
        make_pair(tmp_path, epsilon=0.5)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("minedraft.models.made_up.save_weights", fail)
    with pytest.raises(OSError, match="disk full"):
        make_pair(tmp_path / "pair", epsilon=0.5)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epsilon", -0.1),
        ("epsilon", 1.5),
        ("epsilon", float("nan")),
        ("seed", -1),
        ("num_draft_layers", 0),
        ("num_draft_layers", 7),
        ("hidden_size", 48),
        ("intermediate_size", 0),
        ("vocab_size", MIN_VOCAB_SIZE - 1),
        ("max_position_embeddings", 0),
        ("dtype", "int8"),
    ],
)
def test_bad_values_are_named(tmp_path: Path, field: str, value: object) -> None:
    arguments: dict[str, object] = {"epsilon": 0.1, field: value}
    with pytest.raises(ValueError, match=f"{field}="):
        make_pair(tmp_path / "pair", **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_type_is_the_one_asked_for(tmp_path: Path, dtype: str) -> None:
    pair = make_pair(tmp_path / "pair", epsilon=0.1, num_layers=2, dtype=dtype)
    model = AutoModelForCausalLM.from_pretrained(pair.target)
    assert model.dtype == getattr(torch, dtype)


def test_greedy_text_varies(pair: MadeUpPair) -> None:
    for _, text in _greedy(pair):
        assert len(text) == 96
        assert len(set(text)) >= 30


def test_high_preset_agrees_often(pair: MadeUpPair) -> None:
    assert 0.75 <= _acceptance(pair) <= 0.99


def test_low_preset_agrees_seldom(tmp_path: Path) -> None:
    assert 0.1 <= _acceptance(make_pair(tmp_path / "low", epsilon=EPSILON_ACCEPTANCE_LOW)) <= 0.35


def test_no_epsilon_agrees_always(tmp_path: Path) -> None:
    assert _acceptance(make_pair(tmp_path / "same", epsilon=0.0)) == 1.0


@pytest.mark.parametrize("vocab_size", [MIN_VOCAB_SIZE, 512, 4096])
def test_any_text_survives_the_tokenizer(vocab_size: int) -> None:
    tokenizer = build_tokenizer(vocab_size, model_max_length=128)
    assert len(tokenizer) == vocab_size
    for text in ("the cat", "  Two  spaces\n", "naïve 数字 🙂", "don't", "<filler 900>"):
        ids = tokenizer(text).input_ids
        assert tokenizer.decode(ids) == text
        assert max(ids) < vocab_size


def test_both_models_have_the_tokenizer(pair: MadeUpPair) -> None:
    target, draft = (AutoTokenizer.from_pretrained(path) for path in (pair.target, pair.draft))
    assert target.get_vocab() == draft.get_vocab()
    assert target.eos_token_id == EOS_ID
    assert target("any text").input_ids == draft("any text").input_ids


def test_the_command_makes_both_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 0
    folders = [Path(line) for line in capsys.readouterr().out.split()]
    assert [each.relative_to(tmp_path).as_posix() for each in folders] == [
        "made-up-low/target",
        "made-up-low/draft",
        "made-up-high/target",
        "made-up-high/draft",
    ]
    assert all((each / "config.json").exists() for each in folders)
