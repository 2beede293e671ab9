"""vLLM's config for the draft model, from minedraft's options.

Owns the mapping of options; whether the model fits the target is `admission`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs

from minedraft.config import DrafterConfig, MineDraftConfig
from minedraft.plugin.head_rows import spec_options

if TYPE_CHECKING:
    from minedraft.plugin.drafter_main import DrafterSettings

_CPU_KV_CACHE_GIB = 1.0


def draft_vllm_config(settings: DrafterSettings, config: MineDraftConfig) -> VllmConfig:
    """The draft model's VllmConfig: single device, V1 runner, no async scheduling.

    Raises:
        ValueError: vLLM refuses the model or an option.
    """
    drafter = config.drafter
    assert drafter is not None
    args = EngineArgs(**_engine_options(settings, drafter))
    if drafter.max_model_len is None:
        own = args.create_model_config().max_model_len
        args.max_model_len = min(own, settings.target_max_model_len)
    return args.create_engine_config()


def head_vllm_config(settings: DrafterSettings, config: MineDraftConfig) -> VllmConfig:
    """The target's VllmConfig with the head as vLLM's own drafter; options as above.

    Raises:
        ValueError: vLLM refuses the head or an option.
    """
    drafter = config.drafter
    assert drafter is not None
    options = _engine_options(settings, drafter) | settings.target
    if drafter.dtype != "auto":
        options["dtype"] = drafter.dtype
    options["quantization"] = None
    if drafter.max_model_len is None:
        options["max_model_len"] = settings.target_max_model_len
    options["speculative_config"] = spec_options(drafter, config.num_draft_tokens)
    return EngineArgs(**options).create_engine_config()


def _engine_options(settings: DrafterSettings, drafter: DrafterConfig) -> dict[str, Any]:
    options: dict[str, Any] = {
        "model": drafter.model,
        "dtype": drafter.dtype,
        "quantization": drafter.quantization,
        "revision": drafter.revision,
        "max_model_len": drafter.max_model_len,
        "max_num_seqs": settings.max_num_seqs,
        "max_num_batched_tokens": max(drafter.max_num_batched_tokens, settings.max_num_seqs),
        "enforce_eager": drafter.enforce_eager or drafter.device.kind == "cpu",
        "enable_prefix_caching": True,
        "async_scheduling": False,
        "seed": settings.drafter_seed,
        "trust_remote_code": settings.trust_remote_code,
        "skip_tokenizer_init": True,
        "disable_log_stats": True,
        "distributed_executor_backend": "uni",
    }
    if drafter.block_size is not None:
        options["block_size"] = drafter.block_size
    gib = drafter.kv_cache_gib
    if gib is None and drafter.device.kind == "cpu":
        gib = _CPU_KV_CACHE_GIB
    if gib is not None:
        options["kv_cache_memory_bytes"] = round(gib * 2**30)
    if drafter.device.kind == "cuda":
        options["gpu_memory_utilization"] = drafter.memory_share
    return options
