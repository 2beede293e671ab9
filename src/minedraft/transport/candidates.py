"""Whether the distribution that comes with a draft can be what its tokens were drawn from.

A wrong one would bend the output, so a draft that fails is no draft. Owns the check only.
"""

from __future__ import annotations

import math
import sys
from array import array
from typing import Any

from minedraft.transport.messages import Candidates, Draft, Sampling

_ROW_SUM_TOLERANCE = 1e-3


def is_sound(draft: Draft, sampling: Sampling | None, vocab_size: int | None = None) -> bool:
    """Whether `draft` has candidates if and only if it was to be drawn, and they can be true.

    Every row has finite, non-negative probabilities that add up to 1, over tokens that are
    no doubles and below `vocab_size`, and gives its draft token one above zero.
    """
    if sampling is None or not draft.token_ids:
        return draft.candidates is None
    if draft.candidates is None:
        return False
    return _fits(draft.token_ids, draft.candidates, vocab_size)


def has_all_confidences(draft: Draft) -> bool:
    """Whether `draft` has no confidences, or one for each of its tokens that can be true."""
    found = draft.confidences
    if found is None:
        return True
    return len(found) == len(draft.token_ids) and all(each <= 1e-3 for each in found)


def _fits(token_ids: list[int], candidates: Candidates, vocab_size: int | None) -> bool:
    width = candidates.width
    size = 4 * width * len(token_ids)
    if len(candidates.token_ids) != size or len(candidates.probs) != size:
        return False
    ids: array[int] = _array("i", candidates.token_ids)
    probs: array[float] = _array("f", candidates.probs)
    if vocab_size is not None and max(ids) >= vocab_size:
        return False
    return all(
        _row_fits(token, ids[at : at + width], probs[at : at + width])
        for token, at in zip(token_ids, range(0, width * len(token_ids), width), strict=True)
    )


def _row_fits(token: int, ids: array[int], probs: array[float]) -> bool:
    total = sum(probs)
    if not math.isfinite(total) or abs(total - 1) > _ROW_SUM_TOLERANCE or min(probs) < 0:
        return False
    if min(ids) < 0 or len(set(ids)) < len(ids) or token not in ids:
        return False
    return probs[ids.index(token)] > 0


def _array(kind: str, data: bytes) -> array[Any]:
    values: array[Any] = array(kind, data)
    if sys.byteorder == "big":
        values.byteswap()
    return values
