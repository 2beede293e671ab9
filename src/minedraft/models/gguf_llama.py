"""Conversion of a llama GGUF file with a byte-level BPE vocabulary to a transformers folder.

Does not fetch files, and refuses every other architecture. Needs the `gguf` package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import GenerationConfig, LlamaConfig, PreTrainedTokenizerFast

from minedraft.models.folders import save_weights

_OUTER_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_CONTROL_TOKEN = 3


def convert_gguf(source: Path, folder: Path) -> None:
    """Write config, generation config, bfloat16 weights and tokenizer of `source` into `folder`.

    Raises:
        ImportError: the `gguf` package is missing.
        ValueError: the file is no llama with a byte-level BPE vocabulary.
    """
    from gguf import GGUFReader

    reader = GGUFReader(source)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    _check(fields)
    weights = dict(_weights(reader, fields))
    config = _config(fields, tied="lm_head.weight" not in weights)
    config.save_pretrained(folder)
    GenerationConfig(
        bos_token_id=config.bos_token_id, eos_token_id=config.eos_token_id
    ).save_pretrained(folder)
    _tokenizer(fields).save_pretrained(folder)
    save_weights(folder, weights)


def _check(fields: Mapping[str, Any]) -> None:
    for name, wanted in (("general.architecture", "llama"), ("tokenizer.ggml.model", "gpt2")):
        if fields.get(name) != wanted:
            raise ValueError(f"{name}={fields.get(name)!r} must be {wanted!r}")
    if (flavour := fields.get("tokenizer.ggml.pre")) != "smollm":
        raise ValueError(f"tokenizer.ggml.pre={flavour!r} must be 'smollm'")


def _config(fields: Mapping[str, Any], *, tied: bool) -> LlamaConfig:
    options: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": fields["llama.attention.head_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "max_position_embeddings": fields["llama.context_length"],
        # Stored as float32; the shortest decimal is the number that was meant.
        "rms_norm_eps": float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_parameters": {"rope_type": "default", "rope_theta": fields["llama.rope.freq_base"]},
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "tie_word_embeddings": tied,
        "dtype": "bfloat16",
    }
    return LlamaConfig(**options)


def _weights(reader: Any, fields: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    from gguf import dequantize

    heads = {
        "attn_q": fields["llama.attention.head_count"],
        "attn_k": fields["llama.attention.head_count_kv"],
    }
    for stored in reader.tensors:
        outer, *rest = stored.name.split(".")
        values = torch.from_numpy(dequantize(stored.data, stored.tensor_type).copy())
        if outer != "blk":
            yield f"{_OUTER_NAMES[outer]}.{rest[0]}", values.to(torch.bfloat16)
            continue
        layer, part, suffix = rest
        if part in heads:
            values = _halves_from_pairs(values, heads[part])
        name = f"model.layers.{layer}.{_LAYER_NAMES[part]}.{suffix}"
        yield name, values.to(torch.bfloat16)


def _halves_from_pairs(weight: Tensor, num_heads: int) -> Tensor:
    """Reorder rows: GGUF rotates neighbours of a head together, transformers its two halves."""
    rows, columns = weight.shape
    pairs = weight.view(num_heads, rows // num_heads // 2, 2, columns)
    return pairs.transpose(1, 2).reshape(rows, columns)


def _tokenizer(fields: Mapping[str, Any]) -> PreTrainedTokenizerFast:
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    merges = [tuple(line.split(" ")) for line in fields["tokenizer.ggml.merges"]]
    core = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    kinds = fields["tokenizer.ggml.token_type"]
    control = [t for t, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL_TOKEN]
    core.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in control])
    named = {
        f"{role}_token": tokens[fields[f"tokenizer.ggml.{key}_token_id"]]
        for role, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
        if f"tokenizer.ggml.{key}_token_id" in fields
    }
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        clean_up_tokenization_spaces=False,
        model_max_length=fields["llama.context_length"],
        **named,
    )
    tokenizer.chat_template = fields.get("tokenizer.chat_template")
    return tokenizer
