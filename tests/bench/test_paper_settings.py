"""The paper's settings: the fit, and what experiments took of them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from minedraft.bench.paper_settings import (
    DATASET_OFFSETS,
    DRAFT_LENGTHS,
    FITTED_GAIN,
    SETTINGS,
    fit_launch_ms,
)
from minedraft.emulation import Emulation, LatencyModel
from minedraft.errors import ConfigError
from minedraft.hardware import LAUNCH_MS_PER_LAYER

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"


@pytest.mark.parametrize("name", SETTINGS)
def test_the_linear_model_is_at_most_twice_what_overlap_takes(name: str) -> None:
    pair = SETTINGS[name].pair
    for placed in (pair.target, pair.draft):
        for tokens in (1, 16, 96, 384, 768):
            least, linear = placed.least_ms(tokens, 0), placed.latency.pass_ms(tokens, 1)
            assert 0.99 * least <= linear <= 2.01 * least


def test_the_free_constant_is_the_fit() -> None:
    first = SETTINGS["1"]
    assert fit_launch_ms(first.pair, FITTED_GAIN, first.requests) == LAUNCH_MS_PER_LAYER
    best = max(first.pair.gain_at_equal_batch(first.requests, k) for k in DRAFT_LENGTHS)
    assert best == pytest.approx(FITTED_GAIN, abs=0.001)
    with pytest.raises(ConfigError, match=r"gain = 2\.5"):
        fit_launch_ms(first.pair, 2.5, first.requests)


def _experiment(name: str) -> dict[str, Any]:
    return tomllib.loads((EXPERIMENTS / f"{name}.toml").read_text(encoding="utf-8"))


def _emulation(name: str, acceptance: tuple[float, ...]) -> Emulation:
    pair = SETTINGS[name].pair
    return Emulation(
        target=pair.target.latency,
        draft=pair.draft.latency,
        acceptance=acceptance,
        clock="virtual",
    )


@pytest.mark.parametrize("name", SETTINGS)
def test_experiments_of_settings_have_the_derived_numbers(name: str) -> None:
    setting, table = SETTINGS[name], _experiment(f"paper_setting_{name}")
    found = Emulation.from_mapping(table["base"]["emulate"])
    assert found == _emulation(name, setting.acceptance)
    others = [each for each in DATASET_OFFSETS if each != "spec-bench"]
    assert table["grid"][1]["emulate"]["acceptance"] == [
        list(setting.acceptance_of(each)) for each in others
    ]
    assert table["grid"][0]["max_num_seqs"] == [setting.requests, 2 * setting.requests]


@pytest.mark.parametrize(
    ("experiment", "name", "emulates_text"),
    [
        ("paper_batch_size", "1", True),
        ("paper_tetris", "1", False),
        ("paper_samples", "1", False),
        ("equal_in_flight", "1", True),
        ("online_load", "1", True),
        ("long_context", "1", True),
        ("timeline", "2", True),
    ],
)
def test_other_experiments_have_the_derived_numbers(
    experiment: str, name: str, emulates_text: bool
) -> None:
    acceptance = SETTINGS[name].acceptance if emulates_text else ()
    found = Emulation.from_mapping(_experiment(experiment)["base"]["emulate"])
    assert found == _emulation(name, acceptance)


def test_equal_in_flight_has_the_draft_model_of_setting_3_too() -> None:
    emulate = _experiment("equal_in_flight")["grid"][1]["emulate"]
    assert LatencyModel(**emulate["draft"][0]) == SETTINGS["3"].pair.draft.latency
    assert emulate["acceptance"] == [list(SETTINGS["3"].acceptance)]


def test_long_contexts_are_multiples_of_the_derived_time() -> None:
    pair = SETTINGS["1"].pair
    for grid, factor in zip(_experiment("long_context")["grid"], (1, 16, 64), strict=True):
        for role, placed in (("target", pair.target), ("draft", pair.draft)):
            wanted = placed.latency.per_kv_token_ms * factor
            assert grid["emulate"][role]["per_kv_token_ms"] == [pytest.approx(wanted, rel=0.005)]
