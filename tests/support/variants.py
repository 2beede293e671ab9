"""Variants of the made-up models: adapters and larger vocabularies, written to folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

_WEIGHTS = "model.safetensors"


def padded_vocabulary(model: Path, folder: Path, extra: int) -> Path:
    """A copy of `model` with `extra` ids that its tokenizer lacks, and that it does predict."""
    shutil.copytree(model, folder)
    rewrite_config(folder, vocab_size=_config(model)["vocab_size"] + extra)
    tensors = load_file(folder / _WEIGHTS)
    generator = torch.Generator().manual_seed(7)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        rows = torch.randn(extra, tensors[name].shape[1], generator=generator)
        tensors[name] = torch.cat([tensors[name], rows * tensors[name].std()])
    save_file(tensors, folder / _WEIGHTS, metadata={"format": "pt"})
    return folder


def rewrite_config(folder: Path, **values: Any) -> None:
    """Set fields of a model's config.json."""
    (folder / "config.json").write_text(json.dumps({**_config(folder), **values}))


def _config(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "config.json").read_text()))


def random_adapter(model: Path, folder: Path, *, seed: int, rank: int = 8) -> Path:
    """A LoRA adapter for every layer's q_proj and v_proj that changes most of the text."""
    folder.mkdir()
    config = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": 2 * rank,
        "target_modules": ["q_proj", "v_proj"],
        "bias": "none",
        "task_type": "CAUSAL_LM",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, weight in load_file(model / _WEIGHTS).items():
        if name.endswith(("q_proj.weight", "v_proj.weight")):
            prefix = f"base_model.model.{name.removesuffix('.weight')}"
            rows, columns = weight.shape
            down = torch.randn(rank, columns, generator=generator) / columns**0.5
            up = torch.randn(rows, rank, generator=generator) * 0.2
            tensors |= {f"{prefix}.lora_A.weight": down, f"{prefix}.lora_B.weight": up}
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder
