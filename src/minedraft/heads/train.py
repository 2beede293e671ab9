"""Training a head to say what the target says, several tokens ahead of it.

Owns the loss and the loop. An EAGLE head gets the target's states at depth 1, and at each further
depth its own of the depth before, one position later: so it is trained on what it is given when
it drafts (the training-time test of EAGLE-3, arXiv 2503.01840, with the attention of a depth to
that depth alone). Medusa's heads get the target's states, and each is a depth.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import cos, pi
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (the name torch users know)

from minedraft.heads.kinds import Head, as_tokens
from minedraft.heads.text import TargetText

_Head = TypeVar("_Head", bound=Head)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadTraining:
    """How to train; `depths` is how many tokens ahead, the later ones weighted down."""

    epochs: int = 10
    texts_per_step: int = 4
    learning_rate: float = 3e-4
    depths: int = 4
    decay: float = 0.8
    seed: int = 0

    def __post_init__(self) -> None:
        for field in ("epochs", "texts_per_step", "depths"):
            if (value := getattr(self, field)) < 1:
                raise ValueError(f"{field}={value} must be at least 1")
        if self.learning_rate <= 0:
            raise ValueError(f"learning_rate={self.learning_rate} must be above 0")
        if not 0 < self.decay <= 1:
            raise ValueError(f"decay={self.decay} must be in (0, 1]")
        if self.seed < 0:
            raise ValueError(f"seed={self.seed} must be at least 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """After an epoch: mean loss, and acceptance on texts that are not trained on.

    `acceptance[i]` is the share of positions where a greedy draft's first i + 1 tokens are the
    target's most likely ones.
    """

    epoch: int
    epochs: int
    loss: float
    acceptance: tuple[float, ...]


def train_head(
    head: _Head,
    texts: Sequence[TargetText],
    held_out: Sequence[TargetText],
    options: HeadTraining,
    *,
    report: Callable[[Progress], None] = lambda _: None,
    state: Path | None = None,
) -> _Head:
    """Train a copy of `head`.

    With `state`, what is needed to go on is kept in that file after each epoch, and a run with
    the same options that finds it goes on from there.

    Raises:
        ValueError: there are no texts, or `state` is of a run with other options.
    """
    texts = _long_enough(texts, options.depths)
    if not texts:
        raise ValueError(f"texts must hold one of more than {options.depths + 1} tokens")
    head = head.trainable()
    weights = list(head.weights.values())
    optimizer = torch.optim.AdamW(weights, betas=(0.9, 0.95), weight_decay=0.0)
    done = _go_on(state, head, optimizer, options) if state is not None else 0
    for epoch in range(done, options.epochs):
        loss = _run_epoch(head, texts, options, optimizer, epoch)
        if state is not None:
            _keep(state, head, optimizer, options, epoch + 1)
        accepted = measure(head, held_out, options.depths)
        report(Progress(epoch=epoch + 1, epochs=options.epochs, loss=loss, acceptance=accepted))
    return head.frozen()


def measure(head: Head, texts: Sequence[TargetText], depths: int) -> tuple[float, ...]:
    """Acceptance by position; see Progress. Nothing of no texts."""
    hits = torch.zeros(depths)
    count = 0
    with torch.no_grad():
        for text in _long_enough(texts, depths):
            right = _agreement(head, text, depths)
            hits += right.sum(1)
            count += right.shape[1]
    return tuple((hits / count).tolist()) if count else ()


def _agreement(head: Head, text: TargetText, depths: int) -> Tensor:
    """Whether drafts are right up to each depth [depths, positions], in the answer.

    At depth d the draft is continued from the target's tokens, which it is as long as it is right.
    """
    ids, states, _ = _inputs(text)
    wanted = text.best[1:]
    right = []
    for outputs in head.drafts(ids, states, depths):
        right.append(as_tokens(head, head.logits(outputs).argmax(-1)) == wanted)
    # A draft that begins at position p is at depth d the guess of position p + d - 1.
    length = len(wanted) - depths + 1
    first = max(0, min(text.answer_at - 1, length - 1))
    shifted = [each[depth : depth + length] for depth, each in enumerate(right)]
    return torch.stack(shifted).cumprod(0)[:, first:]


def _long_enough(texts: Sequence[TargetText], depths: int) -> list[TargetText]:
    """Texts in which a draft of all depths has a place."""
    return [each for each in texts if len(each.ids) > depths + 1]


def _inputs(text: TargetText) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens [1, n), states of the positions before, and what the target makes of the tokens."""
    return text.ids[1:], text.states[:-1], text.goals[1:]


def _run_epoch(
    head: Head,
    texts: Sequence[TargetText],
    options: HeadTraining,
    optimizer: torch.optim.Optimizer,
    epoch: int,
) -> float:
    order = list(range(len(texts)))
    random.Random(f"{options.seed} {epoch}").shuffle(order)
    size = options.texts_per_step
    groups = [order[at : at + size] for at in range(0, len(order), size)]
    total = 0.0
    for number, group in enumerate(groups):
        share = (epoch + number / len(groups)) / options.epochs
        for each in optimizer.param_groups:
            each["lr"] = options.learning_rate * (0.02 + 0.98 * 0.5 * (1 + cos(pi * share)))
        optimizer.zero_grad(set_to_none=True)
        loss = torch.stack([_loss(head, texts[at], options) for at in group]).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(head.weights.values()), 1.0)
        optimizer.step()
        total += float(loss.detach()) * len(group)
    return total / len(texts)


def _loss(head: Head, text: TargetText, options: HeadTraining) -> Tensor:
    ids, states, goals = _inputs(text)
    with torch.no_grad():
        wanted = head.logits(goals).softmax(-1)
    counts = _counting(head, text)
    parts, weight = [], 1.0
    for depth, outputs in enumerate(head.drafts(ids, states, options.depths)):
        counts = counts.clone()
        counts[:depth] = 0  # no draft reaches these
        said = F.log_softmax(head.logits(outputs), -1)
        parts.append(weight * -((wanted * said).sum(-1) * counts).sum() / counts.sum().clamp(min=1))
        weight *= options.decay
    return torch.stack(parts).sum()


def _counting(head: Head, text: TargetText) -> Tensor:
    """1 for positions of the answer where the head can say what the target says, 0 elsewhere."""
    counts = torch.ones(len(text.ids) - 1)
    if head.draft_ids is not None:
        counts = torch.isin(text.best[1:], head.draft_ids).float()
    counts[: text.answer_at - 1] = 0
    return counts


def _keep(
    path: Path,
    head: Head,
    optimizer: torch.optim.Optimizer,
    options: HeadTraining,
    epochs_done: int,
) -> None:
    scratch = path.with_name(path.name + ".new")
    torch.save(
        {
            "options": asdict(options),
            "epochs_done": epochs_done,
            "weights": dict(head.weights),
            "optimizer": optimizer.state_dict(),
        },
        scratch,
    )
    scratch.replace(path)


def _go_on(path: Path, head: Head, optimizer: torch.optim.Optimizer, options: HeadTraining) -> int:
    if not path.exists():
        return 0
    kept = torch.load(path, weights_only=True)
    if kept["options"] != asdict(options):
        raise ValueError(
            f"state={str(path)!r} is of a run with {kept['options']}, not with {asdict(options)}; "
            "remove it, or train with the same options"
        )
    with torch.no_grad():
        for name, tensor in head.weights.items():
            tensor.copy_(kept["weights"][name])
    optimizer.load_state_dict(kept["optimizer"])
    return int(kept["epochs_done"])
