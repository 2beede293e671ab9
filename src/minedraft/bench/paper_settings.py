"""The pairs of the paper's settings, and the acceptance assumed for each.

Owns what we assume, and the fit of the one free constant; docs/latency_models.md says why.
GPUs, models and the arithmetic are `minedraft.hardware`'s.
Implements: the settings of arXiv:2603.18016.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from minedraft.errors import ConfigError
from minedraft.hardware import Gpu, Model, Pair, Placement
from minedraft.hardware.catalogue import (
    EAGLE_13B,
    EAGLE_33B,
    H100,
    L40,
    LLAMA_8B,
    LLAMA_70B_AWQ,
    QWEN3_0_6B,
    QWEN3_1_7B,
    QWEN3_4B,
    QWEN3_8B,
    QWEN3_14B,
    QWEN3_32B,
    QWEN3_235B,
    VICUNA_13B,
    VICUNA_33B,
)

FITTED_GAIN = 1.7032
"""Throughput of two batches over sequential that the paper states for setting 1, at best."""
DRAFT_LENGTHS = range(1, 6)


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
