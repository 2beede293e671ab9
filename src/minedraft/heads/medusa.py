"""Medusa heads in plain torch: what training needs, and their checkpoints.

Owns the arithmetic, which is that of vLLM's class `Medusa` with one output matrix for all heads,
the target's own (`original_lm_head`). Medusa: arXiv 2401.10774.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (the name torch users know)

from minedraft.heads.kinds import as_dtype, with_gradients, without_gradients
from minedraft.models.folders import save_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class MedusaHeads:
    """One block for each token ahead, each a layer with a way past it; all tensors float32.

    `weights` are named as in a checkpoint, without `.weight`. `output` [vocabulary, hidden] is the
    target's, and is not trained. Their vocabulary is whole: vLLM 0.32 refuses to load one that has
    a token map.
    """

    weights: Mapping[str, Tensor]
    output: Tensor
    draft_ids: None = None

    def drafts(self, ids: Tensor, states: Tensor, depths: int) -> Sequence[Tensor]:
        """See Head.drafts; of all heads that there are, `depths` are asked."""
        said = (states + F.silu(F.linear(states, self.weights[_name(at)])) for at in range(depths))
        # Head d speaks of the token d places further on.
        return [torch.cat((each[:at], each[: len(each) - at])) for at, each in enumerate(said)]

    def logits(self, outputs: Tensor) -> Tensor:
        """See Head.logits."""
        return F.linear(outputs, self.output)

    def trainable(self) -> MedusaHeads:
        """See Head.trainable."""
        return replace(self, weights=with_gradients(self.weights))

    def frozen(self) -> MedusaHeads:
        """See Head.frozen."""
        return replace(self, weights=without_gradients(self.weights))

    def save(self, folder: Path, config: Mapping[str, Any]) -> None:
        """See Head.save; `config` is the heads' own, see `medusa_config`."""
        tensors = {f"{name}.weight": each for name, each in self.weights.items()}
        tensors["lm_head.weight"] = self.output
        save_weights(folder, as_dtype(tensors, config["dtype"]))
        (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")


def new_medusa(num_heads: int, output: Tensor) -> MedusaHeads:
    """Heads to begin training with: each says what the target says next (Medusa, section 2.2.1).

    `output` is the target's matrix, of all its tokens [vocabulary, hidden].
    """
    hidden = output.shape[1]
    weights = {_name(at): torch.zeros(hidden, hidden) for at in range(num_heads)}
    return MedusaHeads(weights=weights, output=output)


def medusa_config(
    num_heads: int, target: Mapping[str, Any], *, dtype: str = "float32"
) -> dict[str, Any]:
    """The config.json of heads for a target with the config `target`."""
    return {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "hidden_size": target["hidden_size"],
        "vocab_size": target["vocab_size"],
        "num_heads": num_heads,
        "num_hidden_layers": 1,
        "original_lm_head": True,
        "dtype": dtype,
    }


def _name(at: int) -> str:
    return f"blocks.{at}.layers.0"
