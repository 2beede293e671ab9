"""A kernel of vLLM's CPU build that minedraft cannot do without, done right.

Owns that one kernel and its registration, by the registry that vLLM has for this.
"""

from __future__ import annotations

import torch
from vllm.platforms import current_platform
from vllm.triton_utils import HAS_TRITON
from vllm.triton_utils.dispatcher import register_kernels

EXPAND_KERNEL = "vllm.v1.sample.rejection_sampler.expand_kernel"


def expand(
    output: torch.Tensor,
    input_val: torch.Tensor,
    cu_num_tokens: torch.Tensor,
    replace_from: float,
    replace_to: float,
    MAX_NUM_TOKENS: int | None = None,  # noqa: N803 (the kernel's own name)
) -> None:
    """Write each request's value once per draft token to `output` [num_tokens].

    `input_val` is [num_requests], `cu_num_tokens` [num_requests] counts tokens up to and
    with each request; values equal to `replace_from` become `replace_to`.
    """
    counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
    values = input_val.masked_fill(input_val == replace_from, replace_to)
    output.copy_(torch.repeat_interleave(values, counts.to(torch.int64)))


def register_expand() -> None:
    """Put `expand` in the place of the CPU build's version.

    vLLM 0.32's version writes to a converted copy of `output` unless that holds int64, so
    temperatures, top_k and top_p of drafted tokens are whatever the memory held: sampled
    output of speculative decoding is wrong there. This can go when vLLM copies it back.
    """
    if current_platform.is_cpu() and not HAS_TRITON:
        register_kernels({EXPAND_KERNEL: expand})
