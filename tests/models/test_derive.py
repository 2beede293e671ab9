"""Owns the tests of derived drafts, healing and distillation, all on a made-up target."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from minedraft.models.agreement import greedy_text
from minedraft.models.corpus import ChatMarks, Dialogue, write_dialogues
from minedraft.models.derive import (
    HealLayers,
    KeepLayers,
    TrainedLayers,
    derive_draft,
    model_tensors,
)
from minedraft.models.distill import Distillation, distil
from minedraft.models.folders import load_weights
from minedraft.models.healing import heal, kept_layers
from minedraft.models.made_up import MadeUpPair
from minedraft.models.packed import pack, unpack
from minedraft.models.plain_llama import PlainLlama

MARKS = ChatMarks(opening=(5, 6), bridge=(7, 8), end=1)


@pytest.fixture(scope="module")
def target(pair: MadeUpPair) -> PlainLlama:
    return PlainLlama.load(pair.target)


@pytest.fixture(scope="module")
def dialogues(target: PlainLlama) -> list[Dialogue]:
    prompts = [[5, 6, 20 + n, 7, 8] for n in range(12)]
    generator = torch.Generator().manual_seed(0)
    return write_dialogues(
        target, MARKS, prompts, max_length=40, temperature=1.0, generator=generator
    )


@pytest.fixture(scope="module")
def texts(dialogues: list[Dialogue]) -> tuple[tuple[int, ...], ...]:
    return tuple(dialogue.ids for dialogue in dialogues)


def _error(target: PlainLlama, draft: PlainLlama, texts: tuple[tuple[int, ...], ...]) -> float:
    total = 0.0
    for text in texts:
        ids = torch.tensor([text])
        ours = draft.hidden(ids, layers=range(len(draft.layers)))
        theirs = target.hidden(ids, layers=range(len(target.layers)))
        total += float((ours - theirs)[:, 1:].pow(2).mean())
    return total


def test_plain_forward_pass_is_that_of_transformers(pair: MadeUpPair, target: PlainLlama) -> None:
    ids = torch.randint(3, 512, (2, 50), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        theirs = AutoModelForCausalLM.from_pretrained(pair.target)(ids).logits
        ours = target.logits(target.hidden(ids, layers=range(6)))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)


def test_answers_are_greedy_text(
    pair: MadeUpPair, target: PlainLlama, dialogues: list[Dialogue]
) -> None:
    model = AutoModelForCausalLM.from_pretrained(pair.target)
    dialogue = dialogues[0]
    prompt, answer = list(dialogue.ids[: dialogue.answer_at]), dialogue.ids[dialogue.answer_at :]
    assert greedy_text(model, prompt, max_tokens=35, stop_id=1) == list(answer)
    states = target.hidden(torch.tensor([dialogue.ids[:-1]]), layers=range(6))[0]
    torch.testing.assert_close(dialogue.states.float(), states, rtol=1e-2, atol=1e-2)


def test_invented_user_turns_are_bridged(target: PlainLlama) -> None:
    generator = torch.Generator().manual_seed(0)
    invented = write_dialogues(
        target, MARKS, [None] * 64, max_length=64, temperature=4.0, generator=generator
    )
    answered = [dialogue for dialogue in invented if dialogue.answer_at < len(dialogue.ids)]
    assert answered
    for dialogue in answered:
        assert dialogue.ids[:2] == MARKS.opening
        assert dialogue.ids[dialogue.answer_at - 3 : dialogue.answer_at] == (1, *MARKS.bridge)


def test_derived_draft_keeps_the_tokenizer_and_generates(pair: MadeUpPair, tmp_path: Path) -> None:
    path = derive_draft(pair.target, tmp_path / "draft", recipe=KeepLayers(layers=(0, 3)))
    target, draft = (AutoTokenizer.from_pretrained(folder) for folder in (pair.target, path))
    assert target.get_vocab() == draft.get_vocab()
    model = AutoModelForCausalLM.from_pretrained(path)
    assert model.config.num_hidden_layers == 2
    assert len(greedy_text(model, [10, 20], max_tokens=5)) == 5
    theirs, ours = load_weights(pair.target), load_weights(path)
    name = "self_attn.q_proj.weight"
    assert torch.equal(ours[f"model.layers.1.{name}"], theirs[f"model.layers.3.{name}"])


def test_finished_draft_is_left_alone_and_another_refused(pair: MadeUpPair, tmp_path: Path) -> None:
    recipe = KeepLayers(layers=(0,))
    path = derive_draft(pair.target, tmp_path / "draft", recipe=recipe)
    before = (path / "model.safetensors").stat().st_mtime_ns
    derive_draft(pair.target, tmp_path / "draft", recipe=recipe)
    assert (path / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(ValueError, match="another recipe"):
        derive_draft(pair.target, path, recipe=KeepLayers(layers=(1,)))
    with pytest.raises(ValueError, match="another recipe"):
        derive_draft(pair.draft, path, recipe=recipe)


@pytest.mark.parametrize("layers", [(), (1, 0), (0, 0), (6,), (-1, 2)])
def test_bad_layers_are_refused(pair: MadeUpPair, tmp_path: Path, layers: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="layers="):
        derive_draft(pair.target, tmp_path / "draft", recipe=KeepLayers(layers=layers))
    assert not list(tmp_path.iterdir())


def test_missing_target_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="target_folder="):
        derive_draft(tmp_path / "none", tmp_path / "draft", recipe=KeepLayers(layers=(0,)))


def test_healing_comes_closer(
    target: PlainLlama, texts: tuple[tuple[int, ...], ...], pair: MadeUpPair, tmp_path: Path
) -> None:
    raw, healed = kept_layers(target, (0, 3)), heal(target, (0, 3), texts, ridge=1e-3)
    assert _error(target, healed, texts) < _error(target, raw, texts)
    recipe = HealLayers(layers=(0, 3), texts=texts, ridge=1e-3)
    path = derive_draft(pair.target, tmp_path / "draft", recipe=recipe)
    name = "model.layers.1.mlp.down_proj.weight"
    torch.testing.assert_close(load_weights(path)[name], model_tensors(healed)[name])


def test_packed_layers_come_back_nearly(
    target: PlainLlama, pair: MadeUpPair, tmp_path: Path
) -> None:
    tensors = model_tensors(kept_layers(target, (0, 1)))
    pack(tensors, tmp_path / "layers.safetensors")
    found = unpack(tmp_path / "layers.safetensors")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        error = (found[name] - tensor).abs().amax(-1)
        assert (error <= tensor.abs().amax(-1) / 127).all(), name
    recipe = TrainedLayers(path=tmp_path / "layers.safetensors")
    path = derive_draft(pair.target, tmp_path / "draft", recipe=recipe)
    assert AutoModelForCausalLM.from_pretrained(path).config.num_hidden_layers == 2


def test_packed_layers_of_another_shape_are_refused(pair: MadeUpPair, tmp_path: Path) -> None:
    wrong = {"model.layers.0.mlp.down_proj.weight": torch.zeros(3, 5)}
    pack(wrong, tmp_path / "layers.safetensors")
    with pytest.raises(ValueError, match="down_proj"):
        derive_draft(
            pair.target,
            tmp_path / "draft",
            recipe=TrainedLayers(path=tmp_path / "layers.safetensors"),
        )


def test_distillation_lowers_the_loss_and_keeps_the_start(
    target: PlainLlama, dialogues: list[Dialogue]
) -> None:
    start = kept_layers(target, (1, 4))
    before = {name: tensor.clone() for name, tensor in model_tensors(start).items()}
    losses: list[float] = []
    trained = distil(
        target,
        start,
        dialogues,
        Distillation(epochs=20, warmup_steps=5, learning_rate=3e-3, other_ids=16),
        report=lambda _step, _steps, loss: losses.append(loss),
    )
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    after = model_tensors(start)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not any(tensor.requires_grad for tensor in model_tensors(trained).values())


def test_bad_training_options_are_named() -> None:
    with pytest.raises(ValueError, match="epochs=0"):
        Distillation(epochs=0)
    with pytest.raises(ValueError, match="learning_rate=-1"):
        Distillation(learning_rate=-1)
