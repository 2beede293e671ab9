"""Which models are refused as target or as draft model, before anything starts.

Owns what a model's configuration decides; arguments are `engine_config`'s.
"""

from __future__ import annotations

from vllm.config import ModelConfig, VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.tokenizers import get_tokenizer

from minedraft.config import DrafterConfig
from minedraft.errors import ConfigError
from minedraft.methods import MODEL, check_installed

_PROBE = (
    "The quick brown fox, 1234.5 + 67 = ?\n\tdef f(x): return {'a': [x, None]}  # naïve\n"
    "Ein Käfer, 東京都 и Москва; <|im_start|>user"
)


def refuse_target(vllm_config: VllmConfig) -> None:
    """Raise ConfigError if the target is a model that minedraft cannot draft for."""
    model = vllm_config.model_config
    if model.runner_type != "generate":
        raise ConfigError.bad_value("runner", model.runner_type, "'generate'")
    if model.is_encoder_decoder:
        raise ConfigError.bad_value("model", model.model, "decoder-only models")
    if getattr(model, "is_diffusion", False):
        raise ConfigError.bad_value("model", model.model, "autoregressive models")
    if vllm_config.parallel_config.data_parallel_size > 1 and model.is_moe:
        raise ConfigError.bad_value(
            "data_parallel_size",
            vllm_config.parallel_config.data_parallel_size,
            "1 for a mixture of experts: vLLM runs its replicas in lock-step",
        )
    if vllm_config.speculative_config is not None:
        _refuse_recurrent("model", model)


def refuse_drafter(drafter: DrafterConfig, target: ModelConfig) -> None:
    """Raise ConfigError for a draft model, or a method without one, that could not start."""
    _refuse_block_size(drafter)
    if drafter.method == MODEL:
        refuse_draft_model(drafter, target)
    elif not drafter.takes_hidden_states:
        check_installed(drafter.method)


def refuse_draft_model(drafter: DrafterConfig, target: ModelConfig) -> None:
    """Raise ConfigError if vLLM does not take the draft model, or it does not fit the target."""
    args = EngineArgs(
        model=drafter.model,
        dtype=drafter.dtype,
        quantization=drafter.quantization,
        revision=drafter.revision,
        max_model_len=drafter.max_model_len,
        trust_remote_code=target.trust_remote_code,
        skip_tokenizer_init=True,
    )
    # What a model folder, a hub or a quantization may raise has no common base.
    try:
        model = args.create_model_config()
        is_other = not target.skip_tokenizer_init and _has_other_tokenizer(drafter, target)
    except Exception as error:
        raise ConfigError(
            f"minedraft: draft_model = {drafter.model!r} is not allowed: {first_lines(error)}"
        ) from error
    if is_other:
        raise ConfigError(
            f"minedraft: draft_model = {drafter.model!r} is not allowed: its tokenizer differs "
            f"from the target's ({str(target.tokenizer)!r}); allowed: a draft model that shares "
            "the target's tokenizer"
        )
    own, needed = model.get_vocab_size(), target.get_vocab_size()
    if own < needed:
        raise ConfigError(
            f"minedraft: draft_model = {drafter.model!r} is not allowed: it has {own} vocabulary "
            f"entries; allowed: at least the target's {needed}"
        )
    _refuse_recurrent("draft_model", model)


def _refuse_block_size(drafter: DrafterConfig) -> None:
    """Raise ConfigError for KV blocks of a size that no kernel takes, where there is one kind."""
    if drafter.block_size is None or drafter.device.kind != "cpu":
        return
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    steps = [
        getattr(each, "base", each)
        for each in CPUAttentionBackend.get_supported_kernel_block_sizes()
    ]
    if all(drafter.block_size % step for step in steps):
        allowed = " or ".join(map(str, steps))
        raise ConfigError.bad_value(
            "draft_block_size", drafter.block_size, f"a multiple of {allowed} on a CPU"
        )


def first_lines(error: Exception) -> str:
    """The beginning of its message on one line: what follows are traces and links."""
    return " ".join(str(error).split("\n\n")[0].split()) or type(error).__name__


def _has_other_tokenizer(drafter: DrafterConfig, target: ModelConfig) -> bool:
    trust = target.trust_remote_code
    tokenizer = str(target.tokenizer)
    names = ((tokenizer, target.tokenizer_revision), (drafter.model, drafter.revision))
    ids = [
        list(get_tokenizer(name, trust_remote_code=trust, revision=revision).encode(_PROBE))
        for name, revision in names
    ]
    return ids[0] != ids[1]


def _refuse_recurrent(field: str, model: ModelConfig) -> None:
    """Raise ConfigError for a model with recurrent layers.

    Their state cannot be taken back after rejected drafts, and vLLM's worker forgets which
    state is current when a request sits out a step, as one of two batches does.
    """
    if model.is_hybrid or model.is_attention_free:
        raise ConfigError.bad_value(
            field, model.model, "models of attention layers only (no Mamba or linear attention)"
        )
