"""A target that writes the emulated text, whatever its weights say.

Owns the change of its logits; sampling, verification and all that follows are vLLM's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from minedraft.emulated_text import CONTEXT, true_token


def emulate_text(runner: Any) -> None:
    """Make every pass of `runner` certain of the true next token of `minedraft.emulated_text`.

    `runner` is vLLM's model runner; its `_sample` is where logits meet drafts.
    """
    sample = runner._sample

    def sample_emulated(logits: torch.Tensor | None, metadata: Any) -> Any:
        if logits is not None:
            tokens = list(_true_tokens(runner.input_batch, metadata, logits.shape[-1]))
            rows = torch.arange(len(tokens), device=logits.device)
            logits.fill_(-1e9)
            logits[rows, torch.tensor(tokens, device=logits.device)] = 0.0
        return sample(logits, metadata)

    runner._sample = sample_emulated


def _true_tokens(batch: Any, metadata: Any, vocab_size: int) -> Iterator[int]:
    """One for each row of logits: for each request those after each draft, and the last."""
    drafts = [] if metadata is None else metadata.draft_token_ids.tolist()
    counts = [0] * batch.num_reqs if metadata is None else metadata.num_draft_tokens
    start = 0
    for row, count in zip(range(batch.num_reqs), counts, strict=True):
        length = int(batch.num_tokens_no_spec[row])
        context = batch.token_ids_cpu[row, max(0, length - CONTEXT) : length].tolist()
        tokens = [*context, *drafts[start : start + count]]
        for position in range(count + 1):
            end = len(context) + position
            yield true_token(tokens[:end], length + position, vocab_size)
        start += count
