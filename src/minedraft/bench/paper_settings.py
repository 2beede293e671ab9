"""The GPUs, models and pairs of the paper's settings, and the acceptance assumed for each.

Owns numbers that others published or that we assume; docs/latency_models.md says where each
is from and which is which. The arithmetic is `hardware`'s.
Implements: the settings of arXiv:2603.18016.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from minedraft.bench.hardware import Gpu, Model, Pair, Placement
from minedraft.errors import ConfigError

LAUNCH_MS_PER_LAYER = 0.198
"""The free constant: fitted on setting 1, see `fit_launch_ms`; host time, so the same for both."""
FITTED_GAIN = 1.7032
"""Throughput of two batches over sequential that the paper states for setting 1, at best."""
DRAFT_LENGTHS = range(1, 6)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One of the paper's settings: four GPUs for the target, one more for the draft model."""

    name: str
    pair: Pair
    requests: int
    """In a batch: the paper's m."""
    acceptance: tuple[float, ...]
    """Assumed for Spec-Bench, by position; the last value holds for all that follow."""

    def acceptance_of(self, dataset: str) -> tuple[float, ...]:
        """Assumed for a data set of `DATASET_OFFSETS`, by position."""
        offset = DATASET_OFFSETS[dataset]
        return tuple(round(each + offset, 2) for each in self.acceptance)


DATASET_OFFSETS: Mapping[str, float] = {
    "spec-bench": 0.0,
    "sharegpt": -0.02,
    "arena": -0.04,
    "tough": 0.02,
}
"""Assumed difference in acceptance to Spec-Bench."""


def _setting(
    name: str, gpu: Gpu, target: Model, draft: Model, requests: int, *acceptance: float
) -> Setting:
    pair = Pair(
        target=Placement(model=target, gpu=gpu, num_gpus=4), draft=Placement(model=draft, gpu=gpu)
    )
    return Setting(name=name, pair=pair, requests=requests, acceptance=acceptance)


SETTINGS: Mapping[str, Setting] = {
    each.name: each
    for each in (
        _setting("1", L40, QWEN3_32B, QWEN3_0_6B, 16, 0.66),
        _setting("2", L40, QWEN3_32B, QWEN3_1_7B, 16, 0.72),
        _setting("3", L40, QWEN3_32B, QWEN3_4B, 16, 0.77),
        _setting("4", L40, QWEN3_32B, QWEN3_8B, 16, 0.8),
        _setting("5", H100, LLAMA_70B_AWQ, LLAMA_8B, 64, 0.8),
        _setting("6", L40, VICUNA_33B, EAGLE_33B, 16, 0.68, 0.65, 0.62, 0.6, 0.58),
        _setting("7", L40, VICUNA_13B, EAGLE_13B, 16, 0.7, 0.67, 0.64, 0.62, 0.6),
        _setting("extra", H100, QWEN3_235B, QWEN3_14B, 64, 0.8),
    )
}


def fit_launch_ms(pair: Pair, gain: float, requests: int) -> float:
    """The smallest ms per layer, in steps of 0.001, at which the best k reaches `gain`.

    With more host time per layer drafting takes longer, and a smaller k gains as much: the
    smallest solution is the one at the largest k.

    Raises:
        ConfigError: 10 ms per layer do not reach it.
    """
    for step in range(10_001):
        tried = _with_launch_ms(pair, step / 1000)
        if max(tried.gain_at_equal_batch(requests, k) for k in DRAFT_LENGTHS) >= gain:
            return step / 1000
    raise ConfigError.bad_value("gain", gain, "what up to 10 ms per layer can give")


def _with_launch_ms(pair: Pair, launch_ms: float) -> Pair:
    target, draft = (
        replace(each, gpu=replace(each.gpu, launch_ms_per_layer=launch_ms))
        for each in (pair.target, pair.draft)
    )
    return replace(pair, target=target, draft=draft)
