"""The kinds of heads, and what all of them are to the loop that trains them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, Self

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
        """Of what `drafts` gives, or of the target's own last states [.., vocabulary]."""
        ...

    def save(self, folder: Path, config: Mapping[str, Any]) -> None:
        """Write a checkpoint that vLLM reads, with `config` as its config.json."""
        ...


def with_gradients(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies that take gradients."""
    return {name: each.detach().clone().requires_grad_() for name, each in weights.items()}


def without_gradients(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same values, that take none."""
    return {name: each.detach() for name, each in weights.items()}
