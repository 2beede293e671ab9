"""Made-up target and draft pairs: tiny random Llamas that agree as often as `epsilon` says.

Does not measure agreement (`minedraft.models.agreement` does).

Greedy acceptance (accepted over drafted tokens) with the default sizes, k=4, float32, on six
prompts of 96 tokens, seeds 0, 1, 2:

    EPSILON_ACCEPTANCE_LOW    0.21  0.23  0.19
    EPSILON_ACCEPTANCE_HIGH   0.91  0.95  0.91

More layers lower it: 8 layers of width 256 with 4,096 ids gave 0.15 and 0.88.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, LlamaConfig

from minedraft.models.folders import atomic_folder, holds_recipe, save_weights
from minedraft.models.tokenizer import BOS_ID, EOS_ID, MIN_VOCAB_SIZE, PAD_ID, build_tokenizer

EPSILON_ACCEPTANCE_LOW = 0.18
EPSILON_ACCEPTANCE_HIGH = 0.01

# The CPU attention kernels of serving engines take no smaller head.
HEAD_DIM = 32

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
# Bumped when the same arguments give other weights, so that old folders are not mistaken for new.
_FORMAT = 1

# Gains over unit-variance input. Attention outweighs the token's own embedding, or greedy text
# would be a walk on a fixed token-to-token map and soon run in a circle.
_QUERY_KEY_GAIN = 1.6
_ATTENTION_GAIN = 3.0
_MLP_GAIN = 1.5
_LOGIT_STD = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeUpPair:
    """The two model folders of a pair."""

    target: Path
    draft: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recipe:
    epsilon: float
    seed: int
    num_layers: int
    num_draft_layers: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    dtype: str

    def __post_init__(self) -> None:
        if not 0.0 <= self.epsilon <= 1.0:
            raise ValueError(f"epsilon={self.epsilon} must be in [0, 1]")
        if self.seed < 0:
            raise ValueError(f"seed={self.seed} must be at least 0")
        if not 1 <= self.num_draft_layers <= self.num_layers:
            raise ValueError(
                f"num_draft_layers={self.num_draft_layers} must be in [1, num_layers] "
                f"with num_layers={self.num_layers}"
            )
        if self.hidden_size < HEAD_DIM or self.hidden_size % HEAD_DIM:
            raise ValueError(f"hidden_size={self.hidden_size} must be a multiple of {HEAD_DIM}")
        if self.intermediate_size < 1:
            raise ValueError(f"intermediate_size={self.intermediate_size} must be at least 1")
        if self.vocab_size < MIN_VOCAB_SIZE:
            raise ValueError(f"vocab_size={self.vocab_size} must be at least {MIN_VOCAB_SIZE}")
        if self.max_position_embeddings < 1:
            raise ValueError(
                f"max_position_embeddings={self.max_position_embeddings} must be at least 1"
            )
        if self.dtype not in _DTYPES:
            raise ValueError(f"dtype={self.dtype!r} must be one of {sorted(_DTYPES)}")

    @property
    def num_heads(self) -> int:
        return self.hidden_size // HEAD_DIM

    @property
    def num_key_value_heads(self) -> int:
        return self.num_heads // 2 if self.num_heads % 2 == 0 else self.num_heads


def make_pair(
    folder: Path | str,
    *,
    epsilon: float,
    seed: int = 0,
    num_layers: int = 6,
    num_draft_layers: int = 1,
    hidden_size: int = 64,
    intermediate_size: int = 256,
    vocab_size: int = 512,
    max_position_embeddings: int = 2048,
    dtype: str = "float32",
) -> MadeUpPair:
    """Write a target and a draft below `folder`, or find them there from an earlier call.

    The draft is the first `num_draft_layers` layers of the target. What the later layers add to
    the residual stream is scaled by `epsilon`: at 0 the two agree always, at 1 hardly ever.
    The same arguments give the same weights, and no random state outside is touched.

    Raises:
        ValueError: an argument is out of range, or `folder` holds something else.
    """
    recipe = _Recipe(
        epsilon=epsilon,
        seed=seed,
        num_layers=num_layers,
        num_draft_layers=num_draft_layers,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        vocab_size=vocab_size,
        max_position_embeddings=max_position_embeddings,
        dtype=dtype,
    )
    folder = Path(folder).absolute()
    identity = {"kind": "made-up pair", "format": _FORMAT, **asdict(recipe)}
    if not holds_recipe(folder, identity):
        with atomic_folder(folder, identity) as scratch:
            _write_pair(scratch, recipe)
    return MadeUpPair(target=folder / "target", draft=folder / "draft")


def _write_pair(folder: Path, recipe: _Recipe) -> None:
    layers = _random_layers(recipe)
    for name, depth in (("target", recipe.num_layers), ("draft", recipe.num_draft_layers)):
        tensors = {
            key: tensor.to(_DTYPES[recipe.dtype])
            for key, tensor in layers.items()
            if _layer_index(key) < depth
        }
        _write_model(folder / name, recipe, depth, tensors)


def _write_model(
    folder: Path, recipe: _Recipe, depth: int, tensors: Mapping[str, torch.Tensor]
) -> None:
    folder.mkdir()
    config = _config(recipe, depth)
    config.save_pretrained(folder)
    GenerationConfig(bos_token_id=BOS_ID, eos_token_id=EOS_ID, pad_token_id=PAD_ID).save_pretrained(
        folder
    )
    build_tokenizer(
        recipe.vocab_size, model_max_length=recipe.max_position_embeddings
    ).save_pretrained(folder)
    save_weights(folder, tensors)


def _config(recipe: _Recipe, depth: int) -> LlamaConfig:
    options: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": recipe.vocab_size,
        "hidden_size": recipe.hidden_size,
        "intermediate_size": recipe.intermediate_size,
        "num_hidden_layers": depth,
        "num_attention_heads": recipe.num_heads,
        "num_key_value_heads": recipe.num_key_value_heads,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": recipe.max_position_embeddings,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "pad_token_id": PAD_ID,
        "tie_word_embeddings": False,
        "dtype": recipe.dtype,
    }
    return LlamaConfig(**options)


def _random_layers(recipe: _Recipe) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(recipe.seed)
    hidden = recipe.hidden_size

    def matrix(rows: int, columns: int, gain: float) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * (gain / columns**0.5)

    tensors = {
        "model.embed_tokens.weight": torch.randn(recipe.vocab_size, hidden, generator=generator),
        "lm_head.weight": matrix(recipe.vocab_size, hidden, _LOGIT_STD),
        "model.norm.weight": torch.ones(hidden),
    }
    keys = recipe.num_key_value_heads * HEAD_DIM
    for layer in range(recipe.num_layers):
        scale = 1.0 if layer < recipe.num_draft_layers else recipe.epsilon
        prefix = f"model.layers.{layer}."
        tensors |= {
            prefix + "input_layernorm.weight": torch.ones(hidden),
            prefix + "self_attn.q_proj.weight": matrix(hidden, hidden, _QUERY_KEY_GAIN),
            prefix + "self_attn.k_proj.weight": matrix(keys, hidden, _QUERY_KEY_GAIN),
            prefix + "self_attn.v_proj.weight": matrix(keys, hidden, 1.0),
            prefix + "self_attn.o_proj.weight": matrix(hidden, hidden, _ATTENTION_GAIN) * scale,
            prefix + "post_attention_layernorm.weight": torch.ones(hidden),
            prefix + "mlp.gate_proj.weight": matrix(recipe.intermediate_size, hidden, 1.5),
            prefix + "mlp.up_proj.weight": matrix(recipe.intermediate_size, hidden, 1.0),
            prefix + "mlp.down_proj.weight": matrix(hidden, recipe.intermediate_size, _MLP_GAIN)
            * scale,
        }
    return tensors


def _layer_index(name: str) -> int:
    """Give the layer a weight belongs to; -1 for those outside the layers."""
    parts = name.split(".")
    return int(parts[2]) if parts[1] == "layers" else -1


def main(arguments: Sequence[str] | None = None) -> int:
    """Make two pairs below a folder, made-up-low and made-up-high, each with target and draft."""
    parser = argparse.ArgumentParser(prog="minedraft.models.made_up", description=main.__doc__)
    parser.add_argument("folder", type=Path, help="where they go, such as models")
    folder: Path = parser.parse_args(arguments).folder
    for name, epsilon in (("low", EPSILON_ACCEPTANCE_LOW), ("high", EPSILON_ACCEPTANCE_HIGH)):
        pair = make_pair(folder / f"made-up-{name}", epsilon=epsilon)
        print(pair.target, pair.draft, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
