"""Distillation of a small draft: its layers are trained to end where the target's layers end.

Does not write training text (`minedraft.models.corpus` does) and leaves embedding and head alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import cos, pi

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (the name torch users know)

from minedraft.models.corpus import Dialogue
from minedraft.models.plain_llama import PlainLlama, rms_norm


@dataclass(frozen=True, slots=True, kw_only=True)
class Distillation:
    """How to train.

    `prompt_weight` is the weight of positions outside answers (answers count 1), `state_weight`
    that of the distance between states beside the divergence of the next-token distributions.
    Ids that no dialogue has are ruled out by `other_ids` of them, drawn anew in every step.
    """

    epochs: int = 4
    dialogues_per_step: int = 4
    learning_rate: float = 1e-3
    warmup_steps: int = 20
    weight_decay: float = 0.05
    prompt_weight: float = 0.3
    state_weight: float = 0.5
    other_ids: int = 1024
    seed: int = 0

    def __post_init__(self) -> None:
        for field in ("epochs", "dialogues_per_step", "warmup_steps", "other_ids"):
            if (value := getattr(self, field)) < 1:
                raise ValueError(f"{field}={value} must be at least 1")
        for field in ("learning_rate", "weight_decay", "prompt_weight", "state_weight"):
            if (value := getattr(self, field)) < 0:
                raise ValueError(f"{field}={value} must be at least 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    ids: Tensor
    goals: Tensor
    weights: Tensor


def distil(
    target: PlainLlama,
    draft: PlainLlama,
    dialogues: Sequence[Dialogue],
    options: Distillation,
    *,
    report: Callable[[int, int, float], None],
) -> PlainLlama:
    """Train a copy of `draft`'s layers and last norm on dialogues that `target` wrote.

    `report` gets step, number of steps and loss after every step.

    Raises:
        ValueError: there are no dialogues.
    """
    if not dialogues:
        raise ValueError("dialogues=() must hold at least one dialogue")
    draft = _trainable(draft)
    weights = [draft.norm, *(tensor for layer in draft.layers for tensor in layer.values())]
    matrices = [tensor for tensor in weights if tensor.dim() > 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": options.weight_decay},
            {"params": [t for t in weights if t.dim() == 1], "weight_decay": 0.0},
        ],
        betas=(0.9, 0.95),
    )
    generator = torch.Generator().manual_seed(options.seed)
    batches = list(_schedule(dialogues, options))
    used = torch.tensor(sorted({token for dialogue in dialogues for token in dialogue.ids}))
    for step, members in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = options.learning_rate * _warm_cosine(step, len(batches), options)
        others = torch.randint(len(target.head), (options.other_ids,), generator=generator)
        heads = target.head[torch.cat((used, others)).unique()]
        loss = _loss(target, draft, _collate(members, options), heads, options)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        report(step + 1, len(batches), loss.item())
    return _frozen(draft)


def _trainable(draft: PlainLlama) -> PlainLlama:
    def own(tensor: Tensor) -> Tensor:
        return tensor.detach().clone().requires_grad_()

    layers = [{name: own(tensor) for name, tensor in layer.items()} for layer in draft.layers]
    return replace(draft, layers=layers, norm=own(draft.norm))


def _frozen(draft: PlainLlama) -> PlainLlama:
    layers = [{name: tensor.detach() for name, tensor in layer.items()} for layer in draft.layers]
    return replace(draft, layers=layers, norm=draft.norm.detach())


def _schedule(dialogues: Sequence[Dialogue], options: Distillation) -> Iterator[Sequence[Dialogue]]:
    """Give the batches of all epochs; those of a batch are of similar length."""
    order = random.Random(options.seed)
    size = options.dialogues_per_step
    for _ in range(options.epochs):
        jittered = sorted(dialogues, key=lambda d: len(d.ids) + order.uniform(-20, 20))
        batches = [jittered[start : start + size] for start in range(0, len(jittered), size)]
        order.shuffle(batches)
        yield from batches


def _collate(members: Sequence[Dialogue], options: Distillation) -> _Batch:
    length = max(len(member.states) for member in members)
    width = members[0].states.shape[1]
    ids = torch.zeros(len(members), length, dtype=torch.long)
    goals = torch.zeros(len(members), length, width)
    weights = torch.zeros(len(members), length)
    for row, member in enumerate(members):
        end = len(member.states)
        ids[row, :end] = torch.tensor(member.ids[:end])
        goals[row, :end] = member.states.float()
        weights[row, :end] = options.prompt_weight
        weights[row, member.answer_at - 1 : end] = 1.0
    # Nothing is to be learned from the first id, which is always the same.
    weights[:, 0] = 0.0
    return _Batch(ids=ids, goals=goals, weights=weights)


def _loss(
    target: PlainLlama, draft: PlainLlama, batch: _Batch, heads: Tensor, options: Distillation
) -> Tensor:
    states = draft.hidden(batch.ids, layers=range(len(draft.layers)))
    used = batch.weights > 0
    weights = batch.weights[used]
    ours = rms_norm(states[used], draft.norm, draft.shape)
    theirs = rms_norm(batch.goals[used], target.norm, target.shape)
    divergence = F.kl_div(
        F.log_softmax(F.linear(ours, heads), -1),
        F.log_softmax(F.linear(theirs, heads), -1),
        reduction="none",
        log_target=True,
    ).sum(-1)
    distance = (ours - theirs).pow(2).mean(-1) / theirs.pow(2).mean(-1)
    return ((divergence + options.state_weight * distance) * weights).sum() / weights.sum()


def _warm_cosine(step: int, steps: int, options: Distillation) -> float:
    warm = min(1.0, (step + 1) / options.warmup_steps)
    return warm * (0.02 + 0.98 * 0.5 * (1 + cos(pi * step / steps)))
