"""EAGLE and EAGLE-3 heads in plain torch: what training needs, and their checkpoints.

Owns the arithmetic, which is that of vLLM's classes `EagleLlamaForCausalLM` and
`Eagle3LlamaForCausalLM`, and the names of tensors. EAGLE: arXiv 2401.15077; EAGLE-3: 2503.01840.
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

from minedraft.heads.kinds import HeadKind, as_dtype, with_gradients, without_gradients
from minedraft.models.folders import save_weights
from minedraft.models.plain_llama import (
    Shape,
    attend_to,
    mlp_activations,
    rms_norm,
    rotary,
)


def default_layers(num_layers: int) -> tuple[int, ...]:
    """Layers of the target whose inputs an EAGLE-3 head takes if nobody says which.

    vLLM's choice, but for targets so small that two of them would be one.

    Raises:
        ValueError: the target has fewer than three layers.
    """
    if num_layers < 3:
        raise ValueError(f"num_layers={num_layers} must be at least 3")
    chosen = (2, num_layers // 2, num_layers - 3)
    return chosen if chosen[0] < chosen[1] < chosen[2] else (0, num_layers // 2, num_layers - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class EagleHead:
    """One decoder layer behind a matrix that joins; all tensors float32.

    `weights` are named as in a checkpoint, without `.weight`. `embedding` [vocabulary, hidden]
    and `output` [draft vocabulary, hidden] are the target's, and are not trained; with `draft_ids`,
    which EAGLE-3 may have, the output matrix has the rows of these tokens alone.
    """

    kind: HeadKind
    shape: Shape
    weights: Mapping[str, Tensor]
    embedding: Tensor
    output: Tensor
    draft_ids: Tensor | None = None

    def step(self, ids: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """Take tokens [batch, length] in, each with the state [.., width] of the position before.

        `states` are the target's as `taken_in` gives them, or the head's own.

        Returns:
            What the output matrix takes, and the head's own states; [batch, length, hidden] both.
        """
        embeds, layer = self.embedding[ids], self._layer
        rotation = rotary(self.shape, 0, ids.shape[1])
        if self.kind is HeadKind.EAGLE:
            states = F.linear(torch.cat((embeds, states), -1), self.weights["fc"])
            # Its layer has no norm in front of the attention.
            states = states + attend_to(self.shape, layer, states, rotation)
            own = states + self._mlp(layer, states)
            return own, own
        normed = torch.cat(
            (
                rms_norm(embeds, layer["input_layernorm"], self.shape),
                rms_norm(states, layer["hidden_norm"], self.shape),
            ),
            -1,
        )
        states = states + attend_to(self.shape, layer, normed, rotation)
        own = states + self._mlp(layer, states)
        return rms_norm(own, self.weights["norm"], self.shape), own

    def taken_in(self, states: Tensor) -> Tensor:
        """The target's states [.., width] as the head takes them [.., hidden]."""
        return states if self.kind is HeadKind.EAGLE else F.linear(states, self.weights["fc"])

    def logits(self, outputs: Tensor) -> Tensor:
        """Of what `step` gives first."""
        return F.linear(outputs, self.output)

    @property
    def _layer(self) -> dict[str, Tensor]:
        prefix = _layer_prefix(self.kind)
        return {
            name.removeprefix(prefix): tensor
            for name, tensor in self.weights.items()
            if name.startswith(prefix)
        }

    def _mlp(self, layer: Mapping[str, Tensor], states: Tensor) -> Tensor:
        return F.linear(mlp_activations(self.shape, layer, states), layer["mlp.down_proj"])

    def drafts(self, ids: Tensor, states: Tensor, depths: int) -> Sequence[Tensor]:
        """See Head.drafts; each depth gets the head's own states of the depth before."""
        ids, states = ids.unsqueeze(0), self.taken_in(states).unsqueeze(0)
        found = []
        for _ in range(depths):
            outputs, own = self.step(ids, states)
            found.append(outputs[0])
            states = torch.cat((states[:, :1], own[:, :-1]), 1)
        return found

    def trainable(self) -> EagleHead:
        """See Head.trainable."""
        return replace(self, weights=with_gradients(self.weights))

    def frozen(self) -> EagleHead:
        """See Head.frozen."""
        return replace(self, weights=without_gradients(self.weights))

    def save(self, folder: Path, config: Mapping[str, Any]) -> None:
        """See Head.save; `config` is the head's own, see `head_config`."""
        tensors = {
            f"{name}.weight": tensor.detach().contiguous() for name, tensor in self.weights.items()
        }
        if self.kind is HeadKind.EAGLE3:
            # vLLM's class has an output matrix of its own.
            tensors["lm_head.weight"] = self.output.detach().contiguous()
        tensors = as_dtype(tensors, config["dtype"])
        if self.draft_ids is not None:
            tensors["d2t"] = self.draft_ids - torch.arange(len(self.draft_ids))
        save_weights(folder, tensors)
        (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")


def new_head(
    kind: HeadKind,
    shape: Shape,
    *,
    embedding: Tensor,
    output: Tensor,
    first_layer: Mapping[str, Tensor],
    num_states: int,
    generator: torch.Generator,
    draft_ids: Tensor | None = None,
) -> EagleHead:
    """A head to begin training with: the target's first layer where that fits.

    `first_layer` is named as `plain_llama.layer_weights` names it; `num_states` is the number of
    target states that an EAGLE-3 head joins. `output` is the target's, of all its tokens.

    Raises:
        ValueError: an EAGLE head, whose output matrix is the target's, with `draft_ids`.
    """
    if draft_ids is not None and kind is HeadKind.EAGLE:
        raise ValueError(
            "draft_ids must be None for an eagle head: its output matrix is the target's"
        )
    hidden = embedding.shape[1]
    prefix = _layer_prefix(kind)

    def noise(rows: int, columns: int, gain: float) -> Tensor:
        return torch.randn(rows, columns, generator=generator) * (gain / columns**0.5)

    layer = {name: tensor.clone() for name, tensor in first_layer.items()}
    if kind is HeadKind.EAGLE:
        del layer["input_layernorm"]
        weights = {"fc": torch.cat((torch.eye(hidden), noise(hidden, hidden, 0.1)), 1)}
    else:
        layer["hidden_norm"] = torch.ones(hidden)
        for name in ("q", "k", "v"):
            known = layer[f"self_attn.{name}_proj"]
            layer[f"self_attn.{name}_proj"] = torch.cat(
                (known, noise(known.shape[0], hidden, 0.1)), 1
            )
        weights = {
            "fc": torch.cat([torch.eye(hidden) / num_states] * num_states, 1),
            "norm": torch.ones(hidden),
        }
    weights |= {f"{prefix}{name}": tensor for name, tensor in layer.items()}
    return EagleHead(
        kind=kind,
        shape=shape,
        weights=weights,
        embedding=embedding,
        output=output if draft_ids is None else output[draft_ids],
        draft_ids=draft_ids,
    )


def head_config(
    kind: HeadKind,
    target: Mapping[str, Any],
    layers: Sequence[int],
    *,
    draft_vocab: int | None = None,
    dtype: str = "float32",
) -> dict[str, Any]:
    """The config.json of a head for a Llama-like target with the config `target`."""
    kept = {name: value for name, value in target.items() if name not in _NOT_OF_A_HEAD}
    config = kept | {"num_hidden_layers": 1, "model_type": "llama", "dtype": dtype}
    if kind is HeadKind.EAGLE:
        return config | {"architectures": ["LlamaForCausalLM"]}
    return config | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": draft_vocab or target["vocab_size"],
        "eagle_aux_hidden_state_layer_ids": list(layers),
        "tie_word_embeddings": False,
    }


_NOT_OF_A_HEAD = ("layer_types", "max_window_layers", "sliding_window", "use_sliding_window")


def _layer_prefix(kind: HeadKind) -> str:
    return "layers.0." if kind is HeadKind.EAGLE else "midlayer."
