"""Greedy acceptance of a draft model against a target model, counted as speculative decoding does.

Does not measure time and needs no serving engine: a plain loop over transformers models.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """How many steps reached, and how many accepted, each draft position."""

    steps: int
    accepted_at: tuple[int, ...]

    @property
    def rate(self) -> float:
        """Accepted tokens over drafted tokens."""
        return sum(self.accepted_at) / max(1, self.steps * len(self.accepted_at))

    @property
    def rate_at(self) -> tuple[float, ...]:
        """Share of steps in which each position was accepted; never rises with the position."""
        return tuple(count / max(1, self.steps) for count in self.accepted_at)

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens a verification yields, its own token included."""
        return 1.0 + sum(self.accepted_at) / max(1, self.steps)


@torch.inference_mode()
def greedy_text(
    model: Any, prompt: Sequence[int], *, max_tokens: int, stop_id: int | None = None
) -> list[int]:
    """Continue `prompt` greedily by up to `max_tokens` ids; a `stop_id` is kept and ends it."""
    cache, fed, text = DynamicCache(config=model.config), list(prompt), list[int]()
    while len(text) < max_tokens and (not text or text[-1] != stop_id):
        logits = model(torch.tensor([fed]), past_key_values=cache, logits_to_keep=1).logits
        fed = [int(logits[0, -1].argmax())]
        text += fed
    return text


@torch.inference_mode()
def measure_acceptance(
    draft: Any, samples: Iterable[tuple[Sequence[int], Sequence[int]]], *, k: int
) -> Acceptance:
    """Count accepted draft tokens over (prompt, greedy target text) samples, `k` drafts a step.

    With greedy decoding the target's text alone decides what is accepted, so only the draft runs.
    Steps whose window passes the end of the text are left out. A step starts after a token that
    the target gave: the first token of the text comes from the prefill.

    Raises:
        ValueError: `k` is below 1.
    """
    if k < 1:
        raise ValueError(f"k={k} must be at least 1")
    steps, accepted_at = 0, [0] * k
    for prompt, text in samples:
        cache, ids, done = DynamicCache(config=draft.config), [*prompt, *text], len(prompt) + 1
        while done + k <= len(ids):
            guesses = _draft(draft, cache, ids[:done], k)
            accepted = 0
            while accepted < k and guesses[accepted] == ids[done + accepted]:
                accepted_at[accepted] += 1
                accepted += 1
            steps += 1
            # Guesses past the first wrong one must not stay in the cache.
            surplus = cache.get_seq_length() - (done + accepted)
            if surplus > 0:
                cache.crop(-surplus)
            done += accepted + 1
    return Acceptance(steps=steps, accepted_at=tuple(accepted_at))


def _draft(model: Any, cache: DynamicCache, prefix: Sequence[int], k: int) -> list[int]:
    fed, guesses = list(prefix[cache.get_seq_length() :]), list[int]()
    while len(guesses) < k:
        logits = model(torch.tensor([fed]), past_key_values=cache, logits_to_keep=1).logits
        fed = [int(logits[0, -1].argmax())]
        guesses += fed
    return guesses
