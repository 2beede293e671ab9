"""Latency models from data sheets: their arithmetic, and what they refuse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from minedraft.emulation import LatencyModel
from minedraft.errors import ConfigError
from minedraft.hardware import Gpu, Model, Pair, Placement, StepTimes

# Round figures: 1,000 GB/s, of which 800 are reached; 100 TFLOPS, of which 60; 100 GB/s, of
# which 75.
GPU = Gpu(
    name="round",
    memory_gb_per_s=1000.0,
    bf16_tflops=100.0,
    fp8_tflops=200.0,
    link_gb_per_s=100.0,
    launch_ms_per_layer=0.5,
)
MODEL = Model(
    name="small",
    num_layers=10,
    hidden_size=1000,
    intermediate_size=3000,
    num_heads=8,
    num_kv_heads=2,
    head_size=100,
    vocab_size=50_000,
)
# A layer: query and output 2 x 800,000, key and value 2 x 200,000, MLP 3 x 3,000,000.
LAYER = 2 * 800_000 + 2 * 200_000 + 3 * 3_000_000
HEAD = 50_000_000


def test_weights_and_bytes_of_a_dense_model() -> None:
    assert MODEL.num_layer_weights == 10 * LAYER == 110_000_000
    assert MODEL.num_head_weights == HEAD
    assert MODEL.num_active_weights == 160_000_000
    assert MODEL.read_gb == 0.32
    assert MODEL.kv_bytes_per_token == 2 * 10 * 2 * 100 * 2


def test_quantized_layers_and_their_head() -> None:
    assert replace(MODEL, weight_bytes=0.5).read_gb == pytest.approx(0.055 + 0.1)
    assert replace(MODEL, num_extra_weights=7).num_layer_weights == 110_000_007


def test_all_experts_are_read_and_some_compute() -> None:
    experts = replace(MODEL, num_experts=4, num_active_experts=2)
    attention, router, expert = 2_000_000, 4_000, 9_000_000
    assert experts.num_layer_weights == 10 * (attention + router + 4 * expert)
    assert experts.num_active_weights == 10 * (attention + router + 2 * expert) + HEAD


def test_one_gpu() -> None:
    placed = Placement(model=MODEL, gpu=GPU)
    assert placed.read_ms == pytest.approx(0.4)
    assert placed.launch_ms == 5.0
    assert placed.compute_ms_per_token == pytest.approx(2 * 160e6 / 60e12 * 1e3)
    assert placed.link_ms_per_token == 0.0
    assert placed.kv_ms_per_token == pytest.approx(8000 / 800e9 * 1e3)
    # Bound by the host: the reading is hidden.
    assert placed.latency == LatencyModel(fixed_ms=5.0, per_token_ms=0.00533, per_kv_token_ms=1e-05)
    patient = replace(placed, gpu=replace(GPU, launch_ms_per_layer=0.01))
    assert patient.latency.fixed_ms == 0.4
    fp8 = replace(placed, model=replace(MODEL, fp8=True))
    assert fp8.compute_ms_per_token == pytest.approx(placed.compute_ms_per_token / 2)


def test_tensor_parallel_gpus_share_all_but_the_launches() -> None:
    one, four = (Placement(model=MODEL, gpu=GPU, num_gpus=number) for number in (1, 4))
    assert four.read_ms == pytest.approx(one.read_ms / 4)
    assert four.kv_ms_per_token == pytest.approx(one.kv_ms_per_token / 4)
    assert four.compute_ms_per_token == pytest.approx(one.compute_ms_per_token / 4)
    assert four.launch_ms == one.launch_ms
    # 2 all-reduces x 10 layers, each sending 2 x 3/4 of 2,000 bytes over 75 GB/s.
    assert four.link_ms_per_token == pytest.approx(20 * 1.5 * 2000 / 75e9 * 1e3)


def test_what_overlaps_takes_at_least_the_longest() -> None:
    placed = Placement(model=MODEL, gpu=replace(GPU, launch_ms_per_layer=0.0), num_gpus=4)
    # Reading 0.1 ms; a token computes for 1/750 ms and sends for 0.0008 ms.
    assert placed.least_ms(10, 0) == pytest.approx(0.1 + 0.008)
    assert placed.least_ms(300, 0) == pytest.approx(0.4 + 0.24)
    assert placed.least_ms(10, 40_000) == pytest.approx(0.2 + 0.008)


def test_gains_by_both_conventions() -> None:
    # Passes of 2 + 0.1 a token, and of 10 + 1 a token, each of 1 token of context.
    class Placed(Placement):
        @property
        def latency(self) -> LatencyModel:
            return LATENCIES[self.model.name]

    LATENCIES = {  # noqa: N806
        "d": LatencyModel(fixed_ms=2.0, per_token_ms=0.1),
        "t": LatencyModel(fixed_ms=10.0, per_token_ms=1.0),
    }
    draft, target = (Placed(model=replace(MODEL, name=name), gpu=GPU) for name in "dt")
    pair = Pair(target=target, draft=draft)
    assert pair.times(10, 4) == StepTimes(draft_ms=12.0, verify_ms=60.0)
    assert pair.gain_at_equal_batch(10, 4) == 72 / 60
    # One batch of 20: 16 + 110; two of 10: 60 each.
    assert pair.gain_at_equal_in_flight(20, 4) == pytest.approx(126 / 120)
    with pytest.raises(ConfigError, match="num_requests = 3"):
        pair.gain_at_equal_in_flight(3, 4)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"num_layers": 0}, "model.num_layers = 0"),
        ({"num_active_experts": 2}, "model.num_active_experts = 2"),
        ({"weight_bytes": 0.0}, "model.weight_bytes = 0.0"),
        ({"name": ""}, "model.name = ''"),
        ({"fp8": 1}, "model.fp8 = 1"),
        ({"num_extra_weights": -1}, "model.num_extra_weights = -1"),
    ],
)
def test_bad_models(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        replace(MODEL, **change)


def test_bad_gpus_and_placements() -> None:
    with pytest.raises(ConfigError, match=r"gpu\.bf16_tflops = 0"):
        replace(GPU, bf16_tflops=0)
    with pytest.raises(ConfigError, match=r"gpu\.launch_ms_per_layer = -1"):
        replace(GPU, launch_ms_per_layer=-1)
    with pytest.raises(ConfigError, match="a divisor of 8 heads"):
        Placement(model=MODEL, gpu=GPU, num_gpus=3)
