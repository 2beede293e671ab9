"""GPUs and models whose figures are known: what others published of them.

Owns numbers; docs/latency_models.md says where each is from. The arithmetic is `placement`'s.
"""

from __future__ import annotations

from collections.abc import Mapping

from minedraft.hardware.gpu import Gpu
from minedraft.hardware.model import Model

LAUNCH_MS_PER_LAYER = 0.198
"""The free constant: fitted on the paper's setting 1, see `bench.paper_settings.fit_launch_ms`;
host time, so the same for all GPUs."""

L40 = Gpu(
    name="L40",
    memory_gb_per_s=864.0,
    bf16_tflops=181.05,
    fp8_tflops=362.1,
    link_gb_per_s=32.0,
    launch_ms_per_layer=LAUNCH_MS_PER_LAYER,
)
H100 = Gpu(
    name="H100 SXM",
    memory_gb_per_s=3350.0,
    bf16_tflops=989.4,
    fp8_tflops=1978.9,
    link_gb_per_s=450.0,
    launch_ms_per_layer=LAUNCH_MS_PER_LAYER,
)

AWQ_BYTES = (4 + (16 + 4) / 128) / 8
"""Four bits, and a scale of 16 and a zero of 4 bits for every 128 weights."""


def _qwen3(name: str, layers: int, hidden: int, intermediate: int, heads: int) -> Model:
    return Model(
        name=name,
        num_layers=layers,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_heads=heads,
        num_kv_heads=8,
        head_size=128,
        vocab_size=151_936,
    )


def _llama3(name: str, layers: int, hidden: int, intermediate: int, weight_bytes: float) -> Model:
    return Model(
        name=name,
        num_layers=layers,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_heads=hidden // 128,
        num_kv_heads=8,
        head_size=128,
        vocab_size=128_256,
        weight_bytes=weight_bytes,
    )


def _vicuna(name: str, layers: int, hidden: int, intermediate: int, extra: int = 0) -> Model:
    return Model(
        name=name,
        num_layers=layers,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_heads=hidden // 128,
        num_kv_heads=hidden // 128,
        head_size=128,
        vocab_size=32_000,
        num_extra_weights=extra,
    )


def _eagle(name: str, hidden: int, intermediate: int) -> Model:
    # One layer of the target's shape, behind a projection of two hidden states to one.
    return _vicuna(name, 1, hidden, intermediate, extra=2 * hidden * hidden)


QWEN3_0_6B = _qwen3("Qwen3-0.6B", 28, 1024, 3072, 16)
QWEN3_1_7B = _qwen3("Qwen3-1.7B", 28, 2048, 6144, 16)
QWEN3_4B = _qwen3("Qwen3-4B", 36, 2560, 9728, 32)
QWEN3_8B = _qwen3("Qwen3-8B", 36, 4096, 12_288, 32)
QWEN3_14B = _qwen3("Qwen3-14B", 40, 5120, 17_408, 40)
QWEN3_32B = _qwen3("Qwen3-32B", 64, 5120, 25_600, 64)
QWEN3_235B = Model(
    name="Qwen3-235B-A22B-FP8",
    num_layers=94,
    hidden_size=4096,
    intermediate_size=1536,
    num_heads=64,
    num_kv_heads=4,
    head_size=128,
    vocab_size=151_936,
    weight_bytes=1.0,
    num_experts=128,
    num_active_experts=8,
    fp8=True,
)
LLAMA_70B_AWQ = _llama3("Llama-3.3-70B-AWQ-INT4", 80, 8192, 28_672, AWQ_BYTES)
LLAMA_8B = _llama3("Llama-3.1-8B", 32, 4096, 14_336, 2.0)
VICUNA_33B = _vicuna("Vicuna-33B", 60, 6656, 17_920)
VICUNA_13B = _vicuna("Vicuna-13B", 40, 5120, 13_824)
EAGLE_33B = _eagle("EAGLE-Vicuna-33B", 6656, 17_920)
EAGLE_13B = _eagle("EAGLE-Vicuna-13B", 5120, 13_824)

GPUS: Mapping[str, Gpu] = {"L40": L40, "H100": H100}
"""By short name."""
MODELS: Mapping[str, Model] = {
    each.name: each
    for each in (
        QWEN3_0_6B,
        QWEN3_1_7B,
        QWEN3_4B,
        QWEN3_8B,
        QWEN3_14B,
        QWEN3_32B,
        QWEN3_235B,
        LLAMA_8B,
        LLAMA_70B_AWQ,
        VICUNA_13B,
        VICUNA_33B,
        EAGLE_13B,
        EAGLE_33B,
    )
}
"""By name."""
