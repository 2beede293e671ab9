"""Known GPUs and models: sizes, and names."""

from __future__ import annotations

import pytest

from minedraft.hardware import GPUS, MODELS, Model, catalogue


def test_models_are_as_large_as_their_names_say() -> None:
    # Billions of weights with both embeddings; those of small Qwen3 models are one.
    stated = {
        "QWEN3_0_6B": 0.6,
        "QWEN3_1_7B": 1.7,
        "QWEN3_4B": 4.0,
        "QWEN3_8B": 8.2,
        "QWEN3_14B": 14.8,
        "QWEN3_32B": 32.8,
        "QWEN3_235B": 235,
        "LLAMA_70B_AWQ": 70.6,
        "LLAMA_8B": 8.03,
        "VICUNA_33B": 32.5,
        "VICUNA_13B": 13.0,
    }
    for name, billions in stated.items():
        model: Model = getattr(catalogue, name)
        embeddings = 1 if name in ("QWEN3_0_6B", "QWEN3_1_7B", "QWEN3_4B") else 2
        found = model.num_layer_weights + embeddings * model.num_head_weights
        assert found / 1e9 == pytest.approx(billions, rel=0.02), name
    active = catalogue.QWEN3_235B.num_active_weights / 1e9
    assert active == pytest.approx(22, rel=0.02)


def test_names_are_found() -> None:
    assert all(MODELS[name].name == name for name in MODELS)
    assert all(gpu.name.startswith(name) for name, gpu in GPUS.items())
