"""Least-squares repair of a Llama whose middle layers were dropped.

Refits `down_proj` of each kept layer so that its output lands where the target's state is when
the next kept layer starts. Does no gradient step and chooses no layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (the name torch users know)

from minedraft.models.plain_llama import (
    LayerWeights,
    PlainLlama,
    attention_block,
    mlp_activations,
    rotary,
    run_layer,
)

_ROWS_AT_ONCE = 8


def kept_layers(target: PlainLlama, layers: Sequence[int]) -> PlainLlama:
    """Give the model with only `layers` of `target`, unrepaired.

    Raises:
        ValueError: `layers` is empty, not rising, or names a layer the target lacks.
    """
    depth = len(target.layers)
    rising = list(layers) == sorted(set(layers))
    if not layers or not rising or layers[0] < 0 or layers[-1] >= depth:
        raise ValueError(f"layers={tuple(layers)} must rise within 0..{depth - 1}")
    return replace(target, layers=[dict(target.layers[layer]) for layer in layers])


@torch.inference_mode()
def heal(
    target: PlainLlama, layers: Sequence[int], texts: Sequence[Sequence[int]], *, ridge: float
) -> PlainLlama:
    """Give the model with only `layers`, each refitted on `texts` in turn.

    `ridge` is the pull towards the weights as they were, relative to the mean activation power.

    Raises:
        ValueError: as `kept_layers`, or `ridge` is not positive, or there are no texts.
    """
    if ridge <= 0:
        raise ValueError(f"ridge={ridge} must be above 0")
    if not texts:
        raise ValueError("texts=() must hold at least one text")
    draft = kept_layers(target, layers)
    states, mask = _embed(target, texts)
    goals = _goals(target, layers, states)
    healed: list[LayerWeights] = []
    for weights, goal in zip(draft.layers, goals, strict=True):
        middle, active = _halfway(target, weights, states)
        down = weights["mlp.down_proj"]
        change = _fit(
            active[mask], (goal - middle - F.linear(active, down))[mask], goal[mask], ridge
        )
        healed.append({**weights, "mlp.down_proj": down + change})
        states = middle + F.linear(active, healed[-1]["mlp.down_proj"])
    return replace(draft, layers=healed)


def _embed(target: PlainLlama, texts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    longest = max(map(len, texts))
    ids = torch.tensor([[*text, *[0] * (longest - len(text))] for text in texts])
    lengths = torch.tensor([[len(text)] for text in texts])
    mask = torch.arange(longest) < lengths
    # The first position is an attention sink of a size that would drown all others.
    mask[:, 0] = False
    return target.embedding[ids], mask


def _goals(target: PlainLlama, layers: Sequence[int], states: Tensor) -> list[Tensor]:
    """States of the target where each kept layer should end: at the next one's entry."""
    entries = {*layers[1:], len(target.layers)}
    rotation, goals = rotary(target.shape, 0, states.shape[1]), []
    parts = list(states.split(_ROWS_AT_ONCE))
    for layer, weights in enumerate(target.layers):
        parts = [run_layer(target.shape, weights, part, rotation) for part in parts]
        if layer + 1 in entries:
            goals.append(torch.cat(parts))
    return goals


def _halfway(target: PlainLlama, weights: LayerWeights, states: Tensor) -> tuple[Tensor, Tensor]:
    rotation = rotary(target.shape, 0, states.shape[1])
    middles, actives = [], []
    for part in states.split(_ROWS_AT_ONCE):
        middles.append(attention_block(target.shape, weights, part, rotation))
        actives.append(mlp_activations(target.shape, weights, middles[-1]))
    return torch.cat(middles), torch.cat(actives)


def _fit(active: Tensor, missing: Tensor, goal: Tensor, ridge: float) -> Tensor:
    # Later norms divide by the state's size, so errors count relative to it.
    weight = goal.pow(2).mean(-1, keepdim=True).rsqrt()
    inputs, outputs = active * weight, missing * weight
    gram = inputs.T @ inputs
    gram.diagonal().add_(ridge * gram.diagonal().mean())
    return torch.linalg.solve(gram, inputs.T @ outputs).T.contiguous()
