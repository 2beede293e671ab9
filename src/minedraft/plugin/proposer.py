"""The proposer inside the target's workers: it proposes nothing.

vLLM verifies drafts only if a speculative method is configured; ours come from the
scheduler, so the method `custom_class` is pointed here.
"""

from __future__ import annotations

from typing import Any


class NullProposer:
    """Satisfies vLLM's `custom_class` contract with an empty proposal per request."""

    def __init__(self, vllm_config: Any) -> None:
        del vllm_config

    def load_model(self, target_model: Any) -> None:
        """Nothing to load; the CPU runner calls it."""

    def propose(self, sampled_token_ids: list[list[int]], *_: Any, **__: Any) -> list[list[int]]:
        """One empty list per request of the batch."""
        return [[] for _ in sampled_token_ids]
