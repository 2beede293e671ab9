"""EAGLE heads as models of their own: vLLM's classes, with what they take from the target.

Owns what surrounds such a head in the drafter: its hidden-state input, the target's embedding
and output matrix where the checkpoint has none, and the loader that vLLM's runner asks. The
head itself is vLLM's.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn
from vllm.compilation.backends import set_model_tag
from vllm.config import ModelConfig, SpeculativeConfig, VllmConfig
from vllm.config.load import LoadConfig
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    VocabParallelEmbedding,
)
from vllm.model_executor.model_loader import BaseModelLoader, get_model, register_model_loader
from vllm.model_executor.model_loader.weight_utils import download_weights_from_hf

from minedraft.errors import ConfigError

LOAD_FORMAT = "minedraft-head"
_EMBEDDING = ("embed_tokens.weight", "embedding.weight", "wte.weight")
_OUTPUT = ("lm_head.weight",)


class HeadModel(nn.Module):
    """A head behind the interface of a causal model, as vLLM's runner calls it.

    Row i of `inputs` belongs to token i of the next pass: the target's hidden state of the
    position before, or the head's own. `outputs` are the head's own states of that pass, for
    the tokens that follow. Both keep their addresses, which a CUDA graph needs.
    """

    def __init__(self, head: nn.Module, config: VllmConfig, spec: SpeculativeConfig) -> None:
        super().__init__()
        self.head: Any = head
        draft = spec.draft_model_config
        room = config.scheduler_config.max_num_batched_tokens
        shape = (room, draft.get_hidden_size())
        device = next(head.parameters()).device
        self.inputs = torch.zeros(shape, dtype=config.model_config.dtype, device=device)
        self.outputs = torch.zeros_like(self.inputs)

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: torch.Tensor | None = None,
        **_: Any,
    ) -> torch.Tensor:
        """The states to sample from [tokens, hidden]."""
        count = input_ids.shape[0]
        last, own = self.head(input_ids, positions, self.inputs[:count])
        self.outputs[:count].copy_(own)
        return last

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        """The embeddings of tokens [tokens]."""
        return self.head.embed_input_ids(input_ids)

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor | None:
        """Logits over the target's vocabulary [rows, vocabulary]."""
        return self.head.compute_logits(hidden_states)

    def taken_in(self, rows: torch.Tensor) -> torch.Tensor:
        """Hidden states of the target [rows, width] as the head takes them [rows, hidden]."""
        rows = rows.to(device=self.inputs.device, dtype=self.inputs.dtype)
        combine = getattr(self.head, "combine_hidden_states", None)
        return rows if combine is None else combine(rows)


@register_model_loader(LOAD_FORMAT)
class HeadLoader(BaseModelLoader):
    """Loads the head of a config that `as_head` made, and never the target."""

    def download_model(self, model_config: ModelConfig) -> None:
        """vLLM's loader of the head does."""

    def load_weights(self, model: nn.Module, model_config: ModelConfig) -> None:
        """Nothing: the weights come with the model."""

    def load_model(
        self, vllm_config: VllmConfig, model_config: ModelConfig, prefix: str = ""
    ) -> nn.Module:
        """The head, with the target's matrices where it has none of its own."""
        spec: SpeculativeConfig = vllm_config.minedraft_head
        # The same compilation config: attention layers register there for the runner.
        config = copy.copy(vllm_config)
        config.speculative_config = spec
        config.load_config = LoadConfig()
        with set_model_tag("eagle_head"):
            head: Any = get_model(
                vllm_config=config,
                model_config=spec.draft_model_config,
                load_config=config.load_config,
            )
        _share(head, model_config, vllm_config.load_config.download_dir)
        return HeadModel(head, vllm_config, spec)


def _share(head: Any, target: ModelConfig, cache: str | None) -> None:
    """Give the head the target's embedding and output matrix, as vLLM does in one process."""
    needs_embedding = not getattr(head, "has_own_embed_tokens", False)
    needs_output = not getattr(head, "has_own_lm_head", False)
    if needs_embedding:
        weights = _target_weights(target, _EMBEDDING, cache)
        _fill(head.model.embed_tokens, weights)
    if not needs_output:
        return
    # A tied target has no output matrix of its own.
    tied = getattr(target.hf_text_config, "tie_word_embeddings", False)
    weights = _target_weights(target, _EMBEDDING if tied else _OUTPUT, cache)
    sample: torch.Tensor = head.model.embed_tokens.weight
    with sample.device:
        output = ParallelLMHead(weights.shape[0], weights.shape[1], params_dtype=sample.dtype)
    _fill(output, weights)
    # What vLLM makes of the matrix for its own kernels.
    output.quant_method.process_weights_after_loading(output)
    head.lm_head = output


def _fill(layer: VocabParallelEmbedding, weights: torch.Tensor) -> None:
    if tuple(weights.shape) != (layer.org_vocab_size, layer.embedding_dim):
        raise ConfigError.bad_value(
            "draft_model",
            tuple(weights.shape),
            f"a head for a target whose embedding is {layer.org_vocab_size} x "
            f"{layer.embedding_dim}",
        )
    layer.weight_loader(layer.weight, weights.to(layer.weight.dtype))


def _target_weights(
    target: ModelConfig, endings: tuple[str, ...], cache: str | None
) -> torch.Tensor:
    """One matrix of the target's checkpoint, without the rest of it.

    Raises:
        ConfigError: there is none of that name.
    """
    for path in sorted(_folder(target, cache).glob("*.safetensors")):
        with safe_open(str(path), framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 (no mapping)
                if name.endswith(endings):
                    return file.get_tensor(name)
    raise ConfigError.bad_value(
        "model", target.model, f"safetensors with {' or '.join(endings)}, which the head needs"
    )


def _folder(target: ModelConfig, cache: str | None) -> Path:
    if (folder := Path(target.model)).is_dir():
        return folder
    return Path(download_weights_from_hf(target.model, cache, ["*.safetensors"], target.revision))


def as_head(vllm_config: VllmConfig) -> VllmConfig:
    """Turn a config with a head as vLLM's own drafter into one that runs the head alone."""
    spec = vllm_config.speculative_config
    assert spec is not None
    vllm_config.minedraft_head = spec
    vllm_config.speculative_config = None
    vllm_config.load_config.load_format = LOAD_FORMAT
    return vllm_config


def aux_layers(spec: SpeculativeConfig) -> tuple[int, ...] | None:
    """Layers of the target whose outputs the head takes; None: vLLM's default for the target."""
    config = spec.draft_model_config.hf_config
    layers = getattr(config, "eagle_aux_hidden_state_layer_ids", None)
    inner = getattr(config, "eagle_config", None)
    if not layers and isinstance(inner, Mapping):
        layers = inner.get("eagle_aux_hidden_state_layer_ids")
    return tuple(layers) if layers else None
