"""From the candidates that come with drafts to the matrix that vLLM's rejection sampler takes.

Owns the matrix; it is keyed by request id, because the order of requests in the target's
batch has nothing to do with the order in which they were drafted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from minedraft.transport.messages import Candidates

CANDIDATES = "minedraft_candidates"
"""Attribute of vLLM's SchedulerOutput: Candidates by request id, as many as drafts scheduled."""


def dense_draft_probs(
    candidates: Mapping[str, Candidates],
    request_ids: Sequence[str],
    num_draft_tokens: Sequence[int],
    draft_token_ids: torch.Tensor,
    vocab_size: int,
) -> torch.Tensor:
    """Draft probabilities [draft tokens of all requests, `vocab_size`], float32.

    `draft_token_ids` [draft tokens] stand in the order of `request_ids`, of which each has
    as many as `num_draft_tokens` says. A request without candidates was drafted with
    certainty: its rows are one-hot. Negative ids, with which vLLM fills up, get zeros: they
    are rejected, and the target's own distribution decides.
    """
    device = draft_token_ids.device
    probs = torch.zeros(len(draft_token_ids), vocab_size, device=device)
    start = 0
    for request_id, count in zip(request_ids, num_draft_tokens, strict=False):
        found = candidates.get(request_id) if count else None
        rows = probs[start : start + count]
        if found is not None:
            ids = _matrix(found.token_ids, "<i4", found.width)[:count]
            values = _matrix(found.probs, "<f4", found.width)[:count]
            rows.scatter_(1, ids.to(device=device, dtype=torch.int64), values.to(device))
        elif count:
            tokens = draft_token_ids[start : start + count, None].to(torch.int64)
            rows.scatter_(1, tokens.clamp_min(0), 1.0)
        start += count
    return probs.mul_((draft_token_ids >= 0).unsqueeze(-1))


def _matrix(data: bytes, kind: str, width: int) -> torch.Tensor:
    values = np.frombuffer(data, dtype=kind).reshape(-1, width)
    return torch.from_numpy(values.copy())
