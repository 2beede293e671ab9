"""KV blocks of one device.

Owns the count of free blocks; whom they are taken from is others' decision.
"""

from __future__ import annotations

from typing import Protocol


class Holder(Protocol):
    """What holds blocks."""

    num_blocks: int


class KvPool:
    """`num_blocks` blocks of `block_size` tokens; None: as many as anyone wants."""

    def __init__(self, num_blocks: int | None, block_size: int) -> None:
        self.num_free = num_blocks
        self.block_size = block_size
        self.peak_used = 0
        self._used = 0

    def blocks(self, num_tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-num_tokens // self.block_size)

    def has(self, holder: Holder, num_tokens: int, num_more: int) -> bool:
        """Whether `num_more` free blocks would be enough for what `holder` lacks."""
        more = self.blocks(num_tokens) - holder.num_blocks
        return self.num_free is None or more <= self.num_free + num_more

    def reserve(self, holder: Holder, num_tokens: int) -> bool:
        """Give `holder` the blocks it lacks for `num_tokens`; False, and nothing, if too few."""
        more = self.blocks(num_tokens) - holder.num_blocks
        if more <= 0:
            return True
        if self.num_free is not None:
            if more > self.num_free:
                return False
            self.num_free -= more
        holder.num_blocks += more
        self._used += more
        self.peak_used = max(self.peak_used, self._used)
        return True

    def release(self, holder: Holder) -> None:
        """Take all blocks back."""
        if self.num_free is not None:
            self.num_free += holder.num_blocks
        self._used -= holder.num_blocks
        holder.num_blocks = 0
