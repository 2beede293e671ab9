"""What one request asks of the drafter: whether, how many, and how its drafts are drawn.

Owns the reading of vLLM's request; the options of the engine are the upper limit.
"""

from __future__ import annotations

import logging

from vllm.v1.request import Request

from minedraft.config import DrafterConfig, MineDraftConfig
from minedraft.drafter.source import RequestTerms
from minedraft.transport.messages import Sampling

logger = logging.getLogger(__name__)

LIMIT_KEY = "minedraft_num_speculative_tokens"
"""Key of `SamplingParams.extra_args` (`vllm_xargs` of a server): drafts per step, 0 for none."""


def read_terms(request: Request, config: MineDraftConfig) -> RequestTerms | None:
    """The terms of a request; None if it is to be decoded without drafts."""
    if config.drafter is None:
        return None
    # A streaming-input session that stops inside accepted drafts is not rolled back by
    # vLLM: its next chunk would fail an assertion there.
    if request.prompt_embeds is not None or request.mm_features or request.resumable:
        return None
    limit = _limit(request, config.num_draft_tokens)
    if limit == 0:
        return None
    return RequestTerms(
        limit=limit,
        sampling=_sampling(request, config.drafter),
        cache_salt=request.cache_salt,
        adapter=None if request.lora_request is None else request.lora_request.lora_name,
    )


def _limit(request: Request, k: int) -> int | None:
    params = request.sampling_params
    value = None if params is None else (params.extra_args or {}).get(LIMIT_KEY)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        logger.warning(
            "minedraft: request %s: %s = %r is ignored; allowed: an integer from 0 (no drafts) "
            "to the engine's num_speculative_tokens",
            request.request_id,
            LIMIT_KEY,
            value,
        )
        return None
    return min(value, k)


def _sampling(request: Request, drafter: DrafterConfig) -> Sampling | None:
    params = request.sampling_params
    if drafter.sample_method == "greedy" or params is None or params.temperature <= 0:
        return None
    # A grammar cuts drafts at the first token that it forbids. Of drawn drafts that would be a
    # choice by value, and bend the distribution of what is output in its place.
    if request.structured_output_request is not None:
        return None
    return Sampling(
        params.temperature,
        max(params.top_k, 0),
        params.top_p,
        params.seed,
    )
