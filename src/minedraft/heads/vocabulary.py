"""The tokens that a head may draft, where that is not all of the target's: the frequent ones.

A head's output matrix is most of its work and of its checkpoint; few tokens make up most texts.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from minedraft.heads.text import TargetText


def frequent_tokens(texts: Sequence[TargetText], count: int, vocab_size: int) -> Tensor:
    """The `count` most frequent tokens of `texts`, ascending.

    Of equally frequent ones the first come first: those that a tokenizer learnt early.

    Raises:
        ValueError: `count` is not from 1 to `vocab_size`.
    """
    check_draft_vocab(count, vocab_size)
    seen = torch.bincount(torch.cat([each.ids for each in texts]), minlength=vocab_size)
    order = torch.sort(seen, descending=True, stable=True).indices
    return order[:count].sort().values


def check_draft_vocab(count: int, vocab_size: int) -> None:
    """Raise ValueError unless `count` is from 1 to `vocab_size`."""
    if not 1 <= count <= vocab_size:
        raise ValueError(f"draft_vocab={count} must be from 1 to {vocab_size}, the target's")
