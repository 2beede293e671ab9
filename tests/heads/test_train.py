"""Heads learn what their target says, go on where they stopped, and are saved for vLLM."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from minedraft.heads import (
    Head,
    HeadKind,
    HeadTraining,
    Progress,
    TargetText,
    default_layers,
    train_head,
    write_texts,
)
from minedraft.heads.eagle import head_config, new_head
from minedraft.heads.medusa import medusa_config, new_medusa
from minedraft.heads.vocabulary import frequent_tokens
from minedraft.models.made_up import make_pair
from minedraft.models.plain_llama import PlainLlama

KINDS = list(HeadKind)
_EAGLES = [HeadKind.EAGLE, HeadKind.EAGLE3]
_OPTIONS = HeadTraining(epochs=4, learning_rate=3e-3, depths=2)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pair(tmp_path_factory.mktemp("pair") / "high", epsilon=0.01).target


@pytest.fixture(scope="module")
def texts(target: Path) -> dict[HeadKind, list[TargetText]]:
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).eval()
    rng = random.Random(1)
    prompts = [[rng.randrange(3, 500) for _ in range(6)] for _ in range(12)]
    found = {}
    for kind, layers in ((HeadKind.EAGLE, None), (HeadKind.EAGLE3, default_layers(6))):
        found[kind] = list(
            write_texts(model, prompts, num_tokens=40, layers=layers, temperature=0.0, seed=3)
        )
    return found | {HeadKind.MEDUSA: found[HeadKind.EAGLE]}


def _head(target: Path, kind: HeadKind, draft_ids: torch.Tensor | None = None) -> Head:
    plain = PlainLlama.load(target)
    if kind is HeadKind.MEDUSA:
        return new_medusa(3, plain.head)
    return new_head(
        kind,
        plain.shape,
        embedding=plain.embedding,
        output=plain.head,
        first_layer=plain.layers[0],
        num_states=3,
        generator=torch.Generator().manual_seed(1),
        draft_ids=draft_ids,
    )


def test_texts_are_the_targets(target: Path, texts: dict[HeadKind, list[TargetText]]) -> None:
    """States are of the positions of the text: what the output matrix makes of them is next."""
    plain = PlainLlama.load(target)
    for kind, width in ((HeadKind.EAGLE, 64), (HeadKind.EAGLE3, 192)):
        for text in texts[kind]:
            assert text.states.shape == (len(text.ids), width)
            said = (text.goals @ plain.head.T).argmax(-1)[text.answer_at - 1 : -1]
            assert said.tolist() == text.ids[text.answer_at :].tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_learns(
    kind: HeadKind, target: Path, texts: dict[HeadKind, list[TargetText]]
) -> None:
    seen: list[Progress] = []
    head = _head(target, kind)
    # Medusa's output matrix is the target's, so all must come from one small layer.
    rate = 3e-2 if kind is HeadKind.MEDUSA else _OPTIONS.learning_rate
    options = replace(_OPTIONS, learning_rate=rate)
    trained = train_head(head, texts[kind], texts[kind][:4], options, report=seen.append)
    assert [each.epoch for each in seen] == [1, 2, 3, 4]
    assert seen[-1].loss < 0.8 * seen[0].loss
    assert len(seen[-1].acceptance) == 2
    assert seen[-1].acceptance[0] > seen[-1].acceptance[1] >= 0
    again = train_head(head, texts[kind], (), options)
    for name, tensor in trained.weights.items():
        assert torch.equal(tensor, again.weights[name]), "the same seed gives the same head"
        assert not tensor.requires_grad


def test_a_run_goes_on_where_it_stopped(
    target: Path, texts: dict[HeadKind, list[TargetText]], tmp_path: Path
) -> None:
    class StoppedError(Exception):
        pass

    def stop(progress: Progress) -> None:
        if progress.epoch == 2:
            raise StoppedError

    kind, state = HeadKind.EAGLE, tmp_path / "state.pt"
    head = _head(target, kind)
    whole = train_head(head, texts[kind], (), _OPTIONS)
    with pytest.raises(StoppedError):
        train_head(head, texts[kind], (), _OPTIONS, report=stop, state=state)
    seen: list[Progress] = []
    rest = train_head(head, texts[kind], (), _OPTIONS, report=seen.append, state=state)
    assert [each.epoch for each in seen] == [3, 4]
    for name, tensor in whole.weights.items():
        assert torch.equal(tensor, rest.weights[name])
    with pytest.raises(ValueError, match="not with"):
        train_head(head, texts[kind], (), HeadTraining(epochs=9), state=state)


@pytest.mark.parametrize("kind", _EAGLES)
def test_a_checkpoint_has_what_vllm_asks_for(kind: HeadKind, target: Path, tmp_path: Path) -> None:
    config = json.loads((target / "config.json").read_text())
    _head(target, kind).save(tmp_path, head_config(kind, config, (0, 3, 5)))
    names = set(load_file(tmp_path / "model.safetensors"))
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved["num_hidden_layers"] == 1
    assert "fc.weight" in names
    if kind is HeadKind.EAGLE:
        assert saved["architectures"] == ["LlamaForCausalLM"]
        assert "layers.0.self_attn.q_proj.weight" in names
        assert "layers.0.input_layernorm.weight" not in names
    else:
        assert saved["architectures"] == ["LlamaForCausalLMEagle3"]
        assert saved["eagle_aux_hidden_state_layer_ids"] == [0, 3, 5]
        assert {"midlayer.hidden_norm.weight", "norm.weight", "lm_head.weight"} <= names


def test_medusas_heads_speak_of_one_token_each(target: Path) -> None:
    """Untrained, each says again what the target says next: so a part is the first, shifted."""
    head = _head(target, HeadKind.MEDUSA)
    states = torch.arange(5.0).unsqueeze(1).repeat(1, 64)
    parts = head.drafts(torch.arange(5), states, 3)
    assert [part[3:, 0].tolist() for part in parts] == [[3, 4], [2, 3], [1, 2]]


def test_heads_for_frequent_tokens_alone(
    target: Path, texts: dict[HeadKind, list[TargetText]], tmp_path: Path
) -> None:
    kind = HeadKind.EAGLE3
    config = json.loads((target / "config.json").read_text())
    draft_ids = frequent_tokens(texts[kind], 100, config["vocab_size"])
    head = _head(target, kind, draft_ids)
    seen: list[Progress] = []
    trained = train_head(head, texts[kind], texts[kind][:4], _OPTIONS, report=seen.append)
    assert seen[-1].loss < seen[0].loss
    trained.save(tmp_path, head_config(kind, config, (0, 3, 5), draft_vocab=100, dtype="bfloat16"))
    saved = load_file(tmp_path / "model.safetensors")
    assert saved["lm_head.weight"].shape == (100, config["hidden_size"])
    assert saved["lm_head.weight"].dtype is torch.bfloat16
    assert torch.equal(saved["d2t"] + torch.arange(100), draft_ids)


def test_texts_too_short_for_a_draft_are_left_out(
    target: Path, texts: dict[HeadKind, list[TargetText]]
) -> None:
    """As of a prompt of one token after which the target says nothing more."""
    whole = texts[HeadKind.MEDUSA][0]
    short = TargetText(
        ids=whole.ids[:3],
        answer_at=1,
        states=whole.states[:3],
        goals=whole.goals[:3],
        best=whole.best[:3],
    )
    head = _head(target, HeadKind.MEDUSA)
    seen: list[Progress] = []
    train_head(head, [short, whole], [short], _OPTIONS, report=seen.append)
    assert seen[-1].acceptance == ()
    with pytest.raises(ValueError, match="more than 3 tokens"):
        train_head(head, [short], (), _OPTIONS)


def test_frequent_tokens() -> None:
    none = torch.zeros(0)
    text = TargetText(
        ids=torch.tensor([7, 7, 7, 2, 5, 5, 2]), answer_at=1, states=none, goals=none, best=none
    )
    assert frequent_tokens([text], 1, 9).tolist() == [7]
    assert frequent_tokens([text], 2, 9).tolist() == [2, 7]
    assert frequent_tokens([text], 5, 9).tolist() == [0, 1, 2, 5, 7]
    with pytest.raises(ValueError, match="draft_vocab=10"):
        frequent_tokens([text], 10, 9)


def test_an_eagle_head_has_the_whole_vocabulary(target: Path) -> None:
    with pytest.raises(ValueError, match="draft_ids"):
        _head(target, HeadKind.EAGLE, torch.arange(5))


def test_medusas_checkpoint_has_what_vllm_asks_for(target: Path, tmp_path: Path) -> None:
    config = json.loads((target / "config.json").read_text())
    _head(target, HeadKind.MEDUSA).save(tmp_path, medusa_config(3, config))
    blocks = {f"blocks.{at}.layers.0.weight" for at in range(3)}
    assert set(load_file(tmp_path / "model.safetensors")) == {*blocks, "lm_head.weight"}
    saved = json.loads((tmp_path / "config.json").read_text())
    assert (saved["num_heads"], saved["original_lm_head"]) == (3, True)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"epochs": 0}, "epochs=0"),
        ({"depths": 0}, "depths=0"),
        ({"texts_per_step": -1}, "texts_per_step=-1"),
        ({"learning_rate": 0.0}, "learning_rate=0.0"),
        ({"decay": 1.5}, "decay=1.5"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_odd_options_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        HeadTraining(**options)


def test_layers_of_small_and_large_targets() -> None:
    assert default_layers(32) == (2, 16, 29)
    assert default_layers(6) == (0, 3, 5)
    assert default_layers(3) == (0, 1, 2)
    with pytest.raises(ValueError, match="num_layers=2"):
        default_layers(2)
