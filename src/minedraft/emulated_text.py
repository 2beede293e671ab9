"""A language without a model, so that emulated runs accept as many drafts as they are told.

The one true next token is a function of the last few tokens and the position; a draft is
that token, or another one, by a coin that is a function of the same. So target and drafter
agree on the text without a message, and every run of it takes the same course.
Owns the two functions; it emulates no time.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

CONTEXT = 4
"""Tokens before the next one that decide it; more than one, so that two requests which meet
in one token do not go on alike."""
_LOWEST = 3  # below are the special tokens of the models that minedraft ships
_COIN = 1 << 32


def true_token(context: Sequence[int], position: int, vocab_size: int) -> int:
    """The token at `position` of a sequence whose tokens before it end with `context`."""
    return _LOWEST + _hash(context, position, b"token") % (vocab_size - _LOWEST)


def draft_token(context: Sequence[int], position: int, vocab_size: int, acceptance: float) -> int:
    """The true token with probability `acceptance`, else another."""
    token = true_token(context, position, vocab_size)
    if _hash(context, position, b"coin") < acceptance * _COIN:
        return token
    return _LOWEST + (token - _LOWEST + 1) % (vocab_size - _LOWEST)


def _hash(context: Sequence[int], position: int, salt: bytes) -> int:
    """A number below 2**32 that is as good as random."""
    last = context[-CONTEXT:]
    data = struct.pack(f"<{len(last) + 1}q", position, *last)
    return int.from_bytes(hashlib.blake2b(data, digest_size=4, salt=salt).digest(), "little")
