"""Models from their config.json."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from minedraft.errors import ConfigError
from minedraft.hardware import MODELS, read_model

# That of Qwen3-8B.
CONFIG: dict[str, Any] = {
    "model_type": "qwen3",
    "num_hidden_layers": 36,
    "hidden_size": 4096,
    "intermediate_size": 12_288,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151_936,
    "torch_dtype": "bfloat16",
}


def _folder(tmp_path: Path, **changes: Any) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir(exist_ok=True)
    config = {name: each for name, each in {**CONFIG, **changes}.items() if each is not None}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_folder_and_its_file_are_the_known_model(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    expected = replace(MODELS["Qwen3-8B"], name="mine")
    assert read_model(folder) == read_model(folder / "config.json") == expected


def test_what_old_configurations_leave_out(tmp_path: Path) -> None:
    folder = _folder(tmp_path, head_dim=None, num_key_value_heads=None, torch_dtype=None)
    found = read_model(folder)
    assert (found.head_size, found.num_kv_heads, found.weight_bytes) == (128, 32, 2.0)
    assert read_model(_folder(tmp_path, torch_dtype="float32")).weight_bytes == 2.0


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hidden_size": None}, "has no hidden_size"),
        ({"num_hidden_layers": -3}, "num_hidden_layers = -3"),
        ({"vocab_size": "many"}, "vocab_size = 'many'"),
        ({"torch_dtype": "int3"}, "dtype = 'int3'"),
        ({"quantization_config": {"bits": 4}}, "quantized"),
        ({"num_local_experts": 8}, "num_local_experts"),
        ({"model_type": "gpt_neox"}, "model_type = 'gpt_neox' is not allowed; allowed: .*llama"),
        ({"model_type": "bert"}, "model_type = 'bert' is not allowed; allowed: .*qwen3"),
        ({"model_type": "gpt2"}, "model_type = 'gpt2'"),
        ({"model_type": "qwen3_moe"}, "model_type = 'qwen3_moe'"),
        ({"model_type": None}, "model_type = None"),
        ({"model_type": ["llama"]}, "model_type = "),
    ],
)
def test_bad_configurations(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read_model(_folder(tmp_path, **changes))


@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen2", "qwen3"])
def test_dense_decoders_with_gated_mlps(tmp_path: Path, model_type: str) -> None:
    # Three matrices of hidden times intermediate size in every layer, and attention's.
    found = read_model(_folder(tmp_path, model_type=model_type))
    mlp, attention = 3 * 4096 * 12_288, 4096 * 128 * (32 + 8 + 8 + 32)
    assert found.num_layer_weights == 36 * (mlp + attention)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        read_model(tmp_path)
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(ConfigError, match="a table of options"):
        read_model(tmp_path)
