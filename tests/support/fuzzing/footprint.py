"""What a scheduler of minedraft holds.

Owns the counts that must be the same before and after a run; the drafter's are its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def scheduler_footprint(scheduler: Any) -> Mapping[str, int]:
    """Blocks and requests that the scheduler, and vLLM's below it, hold."""
    pool = scheduler.kv_cache_manager.block_pool
    return {
        "free blocks of the target": pool.get_num_free_blocks(),
        "requests in vLLM's scheduler": len(scheduler.requests),
        "requests in minedraft's scheduler": len(scheduler._known) + len(scheduler._decoding),
        "requests in flight": len(scheduler._in_flight) + len(scheduler._steps),
    }


def drafter_figures(source: Any) -> Mapping[str, int]:
    """What the scheduler's client counted since the engine started."""
    counters = source.counters
    return {
        "draft tokens": counters.draft_tokens,
        "stale drafts": counters.stale_drafts,
        "drafter lost": counters.losses,
        "drafter back": counters.returns,
        "drafter late": counters.delays,
    }


def is_answering(source: Any) -> bool:
    """Whether the drafter is there and, if it is one that is asked, not late."""
    return bool(getattr(source, "is_answering", source.available))
