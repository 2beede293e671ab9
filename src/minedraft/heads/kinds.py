"""The kinds of heads, and what all of them are to the loop that trains them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from torch import Tensor


class HeadKind(Enum):
    """Called as in `draft_method`."""

    EAGLE = "eagle"
    EAGLE3 = "eagle3"
    MEDUSA = "medusa"


class Head(Protocol):
    """What can be trained to say a target's tokens, several ahead; all tensors float32."""

    @property
    def weights(self) -> Mapping[str, Tensor]:
        """What is trained, by its name in a checkpoint without `.weight`."""
        ...

    @property
    def draft_ids(self) -> Tensor | None:
        """Tokens that it may draft, by their place in `logits`; None: all of the target's."""
        ...

    def trainable(self) -> Self:
        """A copy whose weights take gradients."""
        ...

    def frozen(self) -> Self:
        """A copy whose weights take none."""
        ...

    def drafts(self, ids: Tensor, states: Tensor, depths: int) -> Sequence[Tensor]:
        """What the output matrix takes, for drafts that begin at each position.

        `ids` [n] are tokens, `states` [n, width] the target's at the positions before each.
        Row p of part d [n, hidden] is of the d-th token of a draft, counted from 0, whose first
        one is that of row p - d: it guesses what the target says after token p. The first d
        rows, which no draft reaches, are of no meaning.
        """
        ...

    def logits(self, outputs: Tensor) -> Tensor:
        """Of what `drafts` gives, or of the target's own last states [.., draft vocabulary]."""
        ...

    def save(self, folder: Path, config: Mapping[str, Any]) -> None:
        """Write a checkpoint that vLLM reads, with `config` as its config.json, in its dtype."""
        ...


def as_tokens(head: Head, places: Tensor) -> Tensor:
    """Places in a head's vocabulary as tokens of the target."""
    return places if head.draft_ids is None else head.draft_ids[places]


def with_gradients(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies that take gradients."""
    return {name: each.detach().clone().requires_grad_() for name, each in weights.items()}


def without_gradients(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same values, that take none."""
    return {name: each.detach() for name, each in weights.items()}


def as_dtype(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """The same in the dtype of that name in torch, ready to be written."""
    dtype: torch.dtype = getattr(torch, name)
    return {key: each.detach().to(dtype).contiguous() for key, each in tensors.items()}
