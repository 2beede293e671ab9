"""Models that cannot work as target or drafter are refused before any weights are read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import minedraft
from minedraft import ConfigError
from minedraft.models.tokenizer import build_tokenizer
from variants import padded_vocabulary

pytestmark = pytest.mark.vllm


def _folder(folder: Path, config: Any) -> Path:
    """A model without weights."""
    config.save_pretrained(folder)
    build_tokenizer(512, model_max_length=256).save_pretrained(folder)
    return folder


def _mamba(folder: Path) -> Path:
    from transformers import MambaConfig

    config = MambaConfig(
        architectures=["MambaForCausalLM"], vocab_size=512, hidden_size=64, num_hidden_layers=2
    )
    return _folder(folder, config)


def _hybrid(folder: Path) -> Path:
    from transformers import JambaConfig

    config = JambaConfig(
        architectures=["JambaForCausalLM"],
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=8,
        num_attention_heads=2,
        num_key_value_heads=1,
        num_experts=1,
        num_experts_per_tok=1,
        use_mamba_kernels=False,
    )
    return _folder(folder, config)


def _whisper(folder: Path) -> Path:
    from transformers import WhisperConfig

    config = WhisperConfig(
        architectures=["WhisperForConditionalGeneration"],
        vocab_size=512,
        d_model=64,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
    )
    return _folder(folder, config)


MODELS = {"mamba": _mamba, "hybrid": _hybrid, "encoder-decoder": _whisper}


def _create(target: Path, draft: Path, **more: Any) -> Any:
    from vllm.engine.arg_utils import EngineArgs

    args = EngineArgs(
        model=str(target),
        dtype="float32",
        max_model_len=256,
        **more,
        **minedraft.engine_args(draft_model=str(draft), draft_dtype="float32"),
    )
    return args.create_engine_config()


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("mamba", "models of attention layers only"),
        ("hybrid", "models of attention layers only"),
        ("encoder-decoder", "decoder-only models"),
    ],
)
def test_targets(kind: str, says: str, pairs: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=says):
        _create(MODELS[kind](tmp_path / kind), pairs["high"].draft, skip_tokenizer_init=True)


def test_pooling_targets(pairs: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="runner = 'pooling'"):
        _create(pairs["high"].target, pairs["high"].draft, runner="pooling")


def _drafter_max_model_len(vllm_config: Any) -> int:
    """What the drafter process would make of the engine's config."""
    import msgspec

    from minedraft.plugin.draft_config import draft_vllm_config
    from minedraft.plugin.drafter_main import DrafterSettings
    from minedraft.plugin.engine_config import active_options
    from minedraft.plugin.lifecycle import drafter_settings

    config = active_options(vllm_config)
    told = {"address": "", "token": "", **drafter_settings(config, vllm_config)}
    made = draft_vllm_config(msgspec.convert(told, DrafterSettings), config)
    return int(made.model_config.max_model_len)


def test_a_draft_model_with_another_tokenizer(pairs: dict[str, Any], tmp_path: Path) -> None:
    draft = padded_vocabulary(pairs["high"].draft, tmp_path / "other", 32)
    build_tokenizer(300, model_max_length=256).save_pretrained(draft)
    with pytest.raises(ConfigError, match="its tokenizer differs"):
        _create(pairs["high"].target, draft)


def test_a_draft_model_with_a_smaller_vocabulary(pairs: dict[str, Any], tmp_path: Path) -> None:
    target = padded_vocabulary(pairs["high"].target, tmp_path / "padded", 32)
    with pytest.raises(ConfigError, match=r"512 vocabulary entries; allowed: at least .* 544"):
        _create(target, pairs["high"].draft)


def test_a_draft_model_with_a_larger_vocabulary_is_allowed(
    pairs: dict[str, Any], tmp_path: Path
) -> None:
    draft = padded_vocabulary(pairs["high"].draft, tmp_path / "padded", 32)
    assert _drafter_max_model_len(_create(pairs["high"].target, draft)) == 256


@pytest.mark.parametrize("kind", ["mamba", "hybrid"])
def test_a_draft_model_with_recurrent_layers(
    kind: str, pairs: dict[str, Any], tmp_path: Path
) -> None:
    draft = MODELS[kind](tmp_path / kind)
    with pytest.raises(ConfigError, match=r"draft_model = .* models of attention layers only"):
        _create(pairs["high"].target, draft)


def test_a_draft_model_without_a_tokenizer(pairs: dict[str, Any], tmp_path: Path) -> None:
    shutil.copy(pairs["high"].draft / "config.json", tmp_path)
    with pytest.raises(ConfigError, match=r"draft_model = .* is not allowed: .*tokenizer"):
        _create(pairs["high"].target, tmp_path)


def test_a_draft_model_without_a_config(pairs: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"draft_model = .* is not allowed: .*config"):
        _create(pairs["high"].target, tmp_path)
