"""Names of GPUs, models and pairs."""

from __future__ import annotations

from pathlib import Path

import pytest

from minedraft.bench.paper_settings import SETTINGS
from minedraft.errors import ConfigError
from minedraft.hardware import GPUS, MODELS
from minedraft.planner import find_gpu, find_model, known_acceptance


@pytest.mark.parametrize("name", ["H100", "h100", "h100 sxm", "H100 SXM"])
def test_gpus_in_any_case(name: str) -> None:
    assert find_gpu("device", name) is GPUS["H100"]


@pytest.mark.parametrize("name", ["qwen3-32b", "Qwen/Qwen3-32B", "QWEN3-32B"])
def test_models_in_any_case_and_with_their_owner(name: str) -> None:
    assert find_model("target", name) is MODELS["Qwen3-32B"]


def test_what_is_unknown_lists_what_is_known(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="device = 'H200' is not allowed; allowed: L40, H100"):
        find_gpu("device", "H200")
    for name in ("Qwen9", "", "a" * 5000, str(tmp_path / "nowhere")):
        with pytest.raises(ConfigError, match=r"draft = .* Qwen3-0.6B, .* config.json"):
            find_model("draft", name)


@pytest.mark.parametrize("name", SETTINGS)
def test_acceptance_of_the_papers_pairs(name: str) -> None:
    setting = SETTINGS[name]
    models = setting.pair.target.model, setting.pair.draft.model
    for dataset in ("spec-bench", "tough"):
        assert known_acceptance(*models, dataset).conditional == setting.acceptance_of(dataset)


def test_pairs_without_an_assumption() -> None:
    draft, target = MODELS["Qwen3-0.6B"], MODELS["Qwen3-32B"]
    with pytest.raises(ConfigError, match=r"acceptance is missing.*Qwen3-32B with Qwen3-0.6B"):
        known_acceptance(draft, target, "spec-bench")
    with pytest.raises(ConfigError, match="dataset = 'web'"):
        known_acceptance(target, draft, "web")
