"""A plain float32 Llama forward pass whose layers can be chosen, skipped and trained one by one.

Owns the arithmetic needed to derive and distil drafts; knows no tokenizer and no sampling.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (the name torch users know)

from minedraft.models.folders import load_weights

LayerWeights = dict[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The numbers of a Llama that the arithmetic needs."""

    num_heads: int
    num_key_value_heads: int
    head_dim: int
    rope_theta: float
    norm_epsilon: float


@dataclass(slots=True, kw_only=True)
class KeyValues:
    """Keys and values of one layer for a batch, preallocated; `length` positions are filled."""

    keys: Tensor
    values: Tensor
    length: int = 0

    @staticmethod
    def empty(shape: Shape, batch: int, capacity: int) -> KeyValues:
        """Room for `capacity` positions of `batch` rows."""
        size = (batch, shape.num_key_value_heads, capacity, shape.head_dim)
        return KeyValues(keys=torch.zeros(size), values=torch.zeros(size))

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append and give all filled positions."""
        end = self.length + keys.shape[2]
        self.keys[:, :, self.length : end] = keys
        self.values[:, :, self.length : end] = values
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def keep_rows(self, rows: Tensor) -> None:
        """Drop all batch rows but `rows`."""
        self.keys, self.values = self.keys[rows], self.values[rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainLlama:
    """Embedding, layers, last norm and head, all float32."""

    shape: Shape
    embedding: Tensor
    layers: Sequence[LayerWeights]
    norm: Tensor
    head: Tensor

    @staticmethod
    def load(folder: Path) -> PlainLlama:
        """Read a Llama folder.

        Raises:
            ValueError: the folder's model is not a Llama without biases.
        """
        config = json.loads((folder / "config.json").read_text())
        if config.get("model_type") != "llama":
            raise ValueError(f"model_type={config.get('model_type')!r} must be 'llama'")
        tensors = {name: tensor.float() for name, tensor in load_weights(folder).items()}
        if biases := [name for name in tensors if name.endswith(".bias")]:
            raise ValueError(f"a Llama with biases is not supported; found {biases[0]}")
        embedding = tensors["model.embed_tokens.weight"]
        return PlainLlama(
            shape=_read_shape(config),
            embedding=embedding,
            layers=[layer_weights(tensors, i) for i in range(config["num_hidden_layers"])],
            norm=tensors["model.norm.weight"],
            head=tensors.get("lm_head.weight", embedding),
        )

    def hidden(
        self, ids: Tensor, *, layers: Sequence[int], caches: Sequence[KeyValues] | None = None
    ) -> Tensor:
        """Run the given layers over ids [batch, length]; give the states before the last norm."""
        states, start = self.embedding[ids], caches[0].length if caches else 0
        rotation = rotary(self.shape, start, ids.shape[1])
        for slot, layer in enumerate(layers):
            cache = caches[slot] if caches else None
            states = run_layer(self.shape, self.layers[layer], states, rotation, cache)
        return states

    def logits(self, states: Tensor) -> Tensor:
        """Give the logits of states from `hidden`."""
        return F.linear(rms_norm(states, self.norm, self.shape), self.head)


def layer_weights(tensors: Mapping[str, Tensor], layer: int) -> LayerWeights:
    """Pick one layer's weights, named without the layer prefix and `.weight`.

    Raises:
        ValueError: there is no such layer.
    """
    prefix = f"model.layers.{layer}."
    found = {
        name.removeprefix(prefix).removesuffix(".weight"): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
    if not found:
        raise ValueError(f"layer={layer} has no weights in the model")
    return found


def rotary(shape: Shape, start: int, length: int) -> tuple[Tensor, Tensor]:
    """Give cosine and sine [length, head_dim] of the positions from `start`."""
    exponents = torch.arange(0, shape.head_dim, 2) / shape.head_dim
    positions = torch.arange(start, start + length).float()
    angles = torch.outer(positions, shape.rope_theta**-exponents).repeat(1, 2)
    return angles.cos(), angles.sin()


def rms_norm(states: Tensor, weight: Tensor, shape: Shape) -> Tensor:
    """Normalise over the last dimension."""
    return F.rms_norm(states, weight.shape, weight, shape.norm_epsilon)


def run_layer(
    shape: Shape,
    weights: Mapping[str, Tensor],
    states: Tensor,
    rotation: tuple[Tensor, Tensor],
    cache: KeyValues | None = None,
) -> Tensor:
    """Run one layer; with a cache, `states` may be one new position or the first positions."""
    states = attention_block(shape, weights, states, rotation, cache)
    return states + F.linear(mlp_activations(shape, weights, states), weights["mlp.down_proj"])


def attention_block(
    shape: Shape,
    weights: Mapping[str, Tensor],
    states: Tensor,
    rotation: tuple[Tensor, Tensor],
    cache: KeyValues | None = None,
) -> Tensor:
    """Run a layer's first half: states after attention was added."""
    normed = rms_norm(states, weights["input_layernorm"], shape)
    return states + attend_to(shape, weights, normed, rotation, cache)


def mlp_activations(shape: Shape, weights: Mapping[str, Tensor], states: Tensor) -> Tensor:
    """Give what enters `down_proj`, for states from `attention_block`."""
    normed = rms_norm(states, weights["post_attention_layernorm"], shape)
    gate = F.silu(F.linear(normed, weights["mlp.gate_proj"]))
    return gate * F.linear(normed, weights["mlp.up_proj"])


def attend_to(
    shape: Shape,
    weights: Mapping[str, Tensor],
    normed: Tensor,
    rotation: tuple[Tensor, Tensor],
    cache: KeyValues | None = None,
) -> Tensor:
    """What a layer's attention adds to its states, of its input [batch, length, width]."""
    batch, length, _ = normed.shape

    def heads(name: str, count: int) -> Tensor:
        projected = F.linear(normed, weights[f"self_attn.{name}_proj"])
        return projected.view(batch, length, count, shape.head_dim).transpose(1, 2)

    queries = _rotate(heads("q", shape.num_heads), rotation)
    keys = _rotate(heads("k", shape.num_key_value_heads), rotation)
    values = heads("v", shape.num_key_value_heads)
    if cache is not None:
        keys, values = cache.extend(keys, values)
    mixed = _attend(shape, queries, keys, values)
    return F.linear(mixed.transpose(1, 2).reshape(batch, length, -1), weights["self_attn.o_proj"])


def _attend(shape: Shape, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    batch, _, length, head_dim = queries.shape
    if length == 1:
        # Heads that share keys become rows of one query, so that no key is copied.
        grouped = queries.reshape(batch, shape.num_key_value_heads, -1, head_dim)
        mixed = F.scaled_dot_product_attention(grouped, keys, values)
        return mixed.reshape(batch, shape.num_heads, 1, head_dim)
    return F.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)


def _rotate(heads: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    cosine, sine = rotation
    low, high = heads.chunk(2, dim=-1)
    return heads * cosine + torch.cat((-high, low), dim=-1) * sine


def _read_shape(config: Mapping[str, object]) -> Shape:
    def number(key: str, default: object = None) -> float:
        value = config.get(key)
        value = default if value is None else value
        if not isinstance(value, int | float):
            raise ValueError(f"{key}={value!r} in config.json must be a number")
        return value

    rope = config.get("rope_parameters")
    rope = rope if isinstance(rope, Mapping) else {}
    if rope.get("rope_type", "default") != "default" or config.get("rope_scaling"):
        raise ValueError("scaled rotary positions are not supported")
    num_heads = int(number("num_attention_heads"))
    return Shape(
        num_heads=num_heads,
        num_key_value_heads=int(number("num_key_value_heads", num_heads)),
        head_dim=int(number("head_dim", number("hidden_size") // num_heads)),
        rope_theta=float(number("rope_theta", rope.get("rope_theta", 10000.0))),
        norm_epsilon=float(number("rms_norm_eps", 1e-6)),
    )
