"""Made-up heads: EAGLE's of the target's first layer, Medusa's trained on what it says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from minedraft.heads import HeadKind, HeadTraining, TargetText, default_layers, train_head
from minedraft.heads.eagle import head_config, new_head
from minedraft.heads.medusa import medusa_config, new_medusa
from minedraft.models.plain_llama import PlainLlama


def make_eagle(target: Path, folder: Path, hidden_share: float = 0.1) -> Path:
    """An EAGLE head that guesses about as well as the target's own first layer.

    What it takes of the hidden state is a random matrix of gain `hidden_share`, so that wrong
    hidden states change its guesses.
    """
    weights = load_file(target / "model.safetensors")
    config = json.loads((target / "config.json").read_text())
    size = config["hidden_size"]
    generator = torch.Generator().manual_seed(5)
    noise = torch.randn(size, size, generator=generator) * (hidden_share / size**0.5)
    head = {
        name.removeprefix("model."): tensor.contiguous()
        for name, tensor in weights.items()
        if name.startswith("model.layers.0.") and not name.endswith("input_layernorm.weight")
    }
    head["fc.weight"] = torch.cat((torch.eye(size), noise), dim=1).contiguous()
    folder.mkdir(parents=True)
    save_file(head, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1}))
    return folder


def make_eagle3(target: Path, folder: Path, draft_ids: torch.Tensor | None = None) -> Path:
    """An EAGLE-3 head as training would begin with it: it is right now and then."""
    plain = PlainLlama.load(target)
    config = json.loads((target / "config.json").read_text())
    layers = default_layers(config["num_hidden_layers"])
    head = new_head(
        HeadKind.EAGLE3,
        plain.shape,
        embedding=plain.embedding,
        output=plain.head,
        first_layer=plain.layers[0],
        num_states=len(layers),
        generator=torch.Generator().manual_seed(5),
        draft_ids=draft_ids,
    )
    folder.mkdir(parents=True)
    draft_vocab = None if draft_ids is None else len(draft_ids)
    head.save(folder, head_config(HeadKind.EAGLE3, config, layers, draft_vocab=draft_vocab))
    return folder


def make_medusa(
    target: Path,
    folder: Path,
    texts: Sequence[TargetText],
    num_heads: int,
) -> Path:
    """Medusa heads trained on `texts` of the target."""
    head = train_head(
        new_medusa(num_heads, PlainLlama.load(target).head),
        texts,
        (),
        HeadTraining(epochs=30, learning_rate=3e-2, depths=num_heads),
    )
    folder.mkdir(parents=True)
    config = json.loads((target / "config.json").read_text())
    head.save(folder, medusa_config(num_heads, config))
    return folder
