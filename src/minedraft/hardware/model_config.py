"""A model from the `config.json` that lies beside its weights.

Owns which fields of it are read, by the names that transformers gives them; it imports no
transformers and reads no weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from minedraft.errors import ConfigError
from minedraft.hardware.model import Model
from minedraft.validation import as_mapping, check_int

_BYTES_OF_DTYPE = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}
_GATED = ("gemma", "granite", "llama", "mistral", "olmo2", "phi3", "qwen2", "qwen3")
"""Values of `model_type` of dense decoders whose MLPs are gated. A list, since a configuration
does not say whether its MLPs have two or three matrices."""
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


def read_model(path: Path) -> Model:
    """A decoder with gated MLPs from a folder with `config.json`, or from such a file.

    The model is called as its folder is.

    Raises:
        ConfigError: the file cannot be read, lacks a field, or is of a model whose passes this
            package cannot count: of a `model_type` that is not known to have gated MLPs,
            quantized, or a mixture of experts.
    """
    file = path / "config.json" if path.is_dir() else path
    where = str(file)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"minedraft: cannot read {where!r}: {error}") from error
    config = as_mapping(where, content)
    _refuse_uncountable(where, config)
    num_heads = _size(where, config, "num_attention_heads")
    hidden_size = _size(where, config, "hidden_size")
    return Model(
        name=file.resolve().parent.name or "model",
        num_layers=_size(where, config, "num_hidden_layers"),
        hidden_size=hidden_size,
        intermediate_size=_size(where, config, "intermediate_size"),
        num_heads=num_heads,
        num_kv_heads=_size(where, config, "num_key_value_heads", num_heads),
        head_size=_size(where, config, "head_dim", max(1, hidden_size // num_heads)),
        vocab_size=_size(where, config, "vocab_size"),
        weight_bytes=_weight_bytes(where, config),
    )


def _size(where: str, config: Mapping[str, object], field: str, default: int | None = None) -> int:
    value = config.get(field)
    if value is None:
        if default is not None:
            return default
        raise ConfigError(f"minedraft: {where} has no {field}; allowed: an integer >= 1")
    check_int(f"{where}: {field}", value, 1)
    assert isinstance(value, int)
    return value


def _weight_bytes(where: str, config: Mapping[str, object]) -> float:
    dtype = config.get("dtype") or config.get("torch_dtype") or "bfloat16"
    if not isinstance(dtype, str) or dtype not in _BYTES_OF_DTYPE:
        raise ConfigError.bad_value(f"{where}: dtype", dtype, ", ".join(_BYTES_OF_DTYPE))
    # vLLM serves models kept in float32 in 16 bits unless told otherwise.
    return min(_BYTES_OF_DTYPE[dtype], 2.0)


def _refuse_uncountable(where: str, config: Mapping[str, object]) -> None:
    if config.get("model_type") not in _GATED:
        raise ConfigError.bad_value(
            f"{where}: model_type", config.get("model_type"), ", ".join(_GATED)
        )
    if config.get("quantization_config"):
        raise ConfigError(
            f"minedraft: {where} is of a quantized model, whose bytes per weight it does not say; "
            "allowed: a model in 16 or 32 bits"
        )
    experts = [field for field in _EXPERTS if config.get(field) not in (None, 0, 1)]
    if experts:
        raise ConfigError(
            f"minedraft: {where} has {experts[0]}; allowed: a dense model, or a known one"
        )
