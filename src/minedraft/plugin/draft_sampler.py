"""Draws draft tokens from the draft model's distribution, cut to its most likely tokens.

Owns the draw; which requests are drawn for is the device's to say. The cut makes the
distribution short enough to send, and is no approximation: the draft is drawn from the
very distribution that is sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.v1.sample.sampler import Sampler

from minedraft.drafter.device import Guess
from minedraft.transport.messages import Sampling

_TINY = 1e-30


@dataclass(frozen=True, slots=True)
class Draw:
    """One draw: how, and for which position of the request's sequence."""

    sampling: Sampling
    position: int


@dataclass(slots=True, kw_only=True)
class DrawPlan:
    """What the next pass draws, by request, and what it drew."""

    num_candidates: int
    vocab_size: int
    """Of the target: a token beyond it cannot be verified, so none is drawn."""
    wanted: dict[str, Draw] = field(default_factory=dict)
    drawn: dict[str, Guess] = field(default_factory=dict)
    with_confidences: bool = False
    confidences: dict[str, float] = field(default_factory=dict)
    """See Guess; filled in by each pass, for those in the batch."""


class DraftSampler(Sampler):
    """vLLM's sampler; rows of requests in `plan.wanted` get a drawn token instead.

    It takes the place of a runner's own sampler by class, and gets `plan` and `runner` set.
    """

    plan: DrawPlan
    runner: Any

    def forward(self, logits: Any, sampling_metadata: Any, *args: Any, **kwargs: Any) -> Any:
        """As the base class; then draws."""
        output = super().forward(logits, sampling_metadata, *args, **kwargs)
        plan, batch = self.plan, self.runner.input_batch.req_ids
        if plan.with_confidences:
            best = confidences(logits[: len(batch), : plan.vocab_size])
            plan.confidences.update(zip(batch, best, strict=True))
        index = {key: at for at, key in enumerate(batch) if key in plan.wanted}
        if index:
            keys = list(index)
            rows = torch.tensor(list(index.values()), device=logits.device)
            draws = [plan.wanted[key] for key in keys]
            tokens, ids, probs = draw(logits[rows, : plan.vocab_size], draws, plan.num_candidates)
            output.sampled_token_ids[rows, 0] = tokens.to(output.sampled_token_ids.dtype)
            plan.drawn.update(zip(keys, _guesses(tokens, ids, probs), strict=True))
            if plan.with_confidences:
                best = probs.max(dim=-1).values.log().tolist()
                plan.confidences.update(zip(keys, best, strict=True))
        return output


def confidences(logits: torch.Tensor) -> list[float]:
    """Log probability of the most likely token of each row of `logits` [rows, vocabulary]."""
    scores = logits.to(torch.float32)
    return (scores.max(dim=-1).values - scores.logsumexp(dim=-1)).tolist()  # type: ignore[no-any-return]


def draw(
    logits: torch.Tensor, draws: Sequence[Draw], num_candidates: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw one token per row of `logits` [rows, vocabulary].

    Returns:
        The tokens [rows], and the candidates they were drawn from: ids (int32) and
        probabilities (float32), both [rows, candidates], most likely first.
    """
    device = logits.device
    temperature = _column([each.sampling.temperature for each in draws], device)
    scaled = logits.to(torch.float32) / temperature
    top = torch.topk(scaled, min(num_candidates, scaled.shape[-1]), dim=-1)
    probs = top.values.softmax(dim=-1)
    width = probs.shape[-1]
    top_k = _column([each.sampling.top_k or width for each in draws], device)
    top_p = _column([each.sampling.top_p for each in draws], device)
    before = probs.cumsum(dim=-1) - probs
    rank = torch.arange(width, device=device)
    # The most likely token always stays: nothing lies before it, but rounding might.
    keep = ((rank < top_k) & (before < top_p)) | (rank == 0)
    probs = probs * keep
    probs = probs / probs.sum(dim=-1, keepdim=True)
    at = (probs / _noise(probs, draws)).argmax(dim=-1, keepdim=True)
    return top.indices.gather(-1, at).squeeze(-1), top.indices.to(torch.int32), probs


def _noise(probs: torch.Tensor, draws: Sequence[Draw]) -> torch.Tensor:
    """Exponential noise, by which the largest quotient is a draw from `probs`."""
    noise = torch.empty_like(probs).exponential_()
    for row, each in zip(noise, draws, strict=True):
        if each.sampling.seed is not None:
            generator = torch.Generator(device=probs.device)
            generator.manual_seed(_seed(each.sampling.seed, each.position))
            row.exponential_(generator=generator)
    return noise.clamp_min_(_TINY)


def _seed(seed: int, position: int) -> int:
    """A seed of its own for each position, independent of what the target does with `seed`."""
    digest = hashlib.blake2b(f"minedraft draft {seed} {position}".encode(), digest_size=8)
    return int.from_bytes(digest.digest(), "little") >> 1


def _column(values: Sequence[float], device: torch.device) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32, device=device).unsqueeze(-1)


def _guesses(tokens: torch.Tensor, ids: torch.Tensor, probs: torch.Tensor) -> list[Guess]:
    host = (tokens.tolist(), ids.cpu().numpy(), probs.cpu().numpy())
    return [
        Guess(token, row_ids.astype("<i4").tobytes(), row_probs.astype("<f4").tobytes())
        for token, row_ids, row_probs in zip(*host, strict=True)
    ]
