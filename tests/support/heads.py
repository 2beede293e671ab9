"""Made-up EAGLE heads: the first layer of a made-up target behind the matrix that joins."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from minedraft.heads import HeadKind, default_layers
from minedraft.heads.eagle import head_config, new_head
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


def make_eagle3(target: Path, folder: Path) -> Path:
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
    )
    folder.mkdir(parents=True)
    head.save(folder, head_config(HeadKind.EAGLE3, config, layers))
    return folder
