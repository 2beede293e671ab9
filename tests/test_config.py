"""Options: what each refuses and how it says so, and the round trip through a plain mapping."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import minedraft
from minedraft.config import (
    DTYPES,
    MODES,
    SAMPLE_METHODS,
    DrafterConfig,
    MineDraftConfig,
    option_names,
)
from minedraft.devices import Device
from minedraft.emulation import Emulation, LatencyModel
from minedraft.errors import ConfigError, MineDraftError

BASE: dict[str, Any] = {"draft_model": "org/draft"}
NOT_TEXT = ["", "   ", "a\0b", "\ud800", 3, True, ["a"], b"a"]
NOT_INT = [1.0, "4", True, [4], math.nan]
NOT_NUMBER = ["1", True, [1.0], math.nan, math.inf, -math.inf]

#: Option, what the error says is allowed, values it must refuse.
BAD: list[tuple[str, str, list[object]]] = [
    ("mode", "none, sequential, two-batch", ["", "None", "two_batch", None, 1, ["none"], {}]),
    ("num_speculative_tokens", "an integer from 1 to 64", [0, -1, 65, None, *NOT_INT]),
    ("tetris_extra_tokens", "an integer from 0 to 60", [-1, 61, None, *NOT_INT]),
    ("tetris_capacity", "an integer >= 1", [0, -1, *NOT_INT]),
    ("tetris_min_requests", "an integer >= 1", [0, -1, None, *NOT_INT]),
    ("target_cores", "a non-empty string", NOT_TEXT),
    ("trace", "a non-empty string", NOT_TEXT),
    ("emulate", "a table of options", [3, True, [], 1.5]),
    ("allow_untested_vllm", "true or false", [0, 1, "true", None, []]),
    ("draft_model", "a non-empty string", NOT_TEXT),
    ("draft_method", "'ngram', 'suffix', or", ["", "mtp", "a.b", None, 3, []]),
    ("draft_options", "a table of options", [None, 3, "{}", []]),
    ("draft_device", "'cuda:N', 'cpu'", [None, 0, "gpu", "", ["cpu"]]),
    ("draft_dtype", "auto, float32", ["fp32", "", None, 16, ["auto"]]),
    ("draft_quantization", "a non-empty string", NOT_TEXT),
    ("draft_revision", "a non-empty string", NOT_TEXT),
    ("draft_max_model_len", "an integer >= 8", [7, 0, -1, *NOT_INT]),
    ("draft_memory_share", "a number in (0.0, 1.0]", [0, 0.0, -0.5, 1.0001, 2, None, *NOT_NUMBER]),
    ("draft_kv_cache_gib", "a number in (0.0, 4096.0]", [0, -1, 4097, *NOT_NUMBER]),
    ("draft_block_size", "an integer from 1 to 2048", [0, -1, 2049, *NOT_INT]),
    (
        "draft_max_num_batched_tokens",
        "an integer from 16 to 2147483647",
        [15, 0, -1, 10**10, None, *NOT_INT],
    ),
    ("draft_sample_method", "greedy, probabilistic", ["random", "", None, 1]),
    ("draft_num_candidates", "an integer from 1 to 256", [0, -1, 257, None, *NOT_INT]),
    ("draft_enforce_eager", "true or false", [0, 1, "false", None]),
    ("draft_start_timeout_s", "(0.0, 86400.0]", [0, -1, 86_401, None, *NOT_NUMBER]),
    ("draft_reply_timeout_s", "(0.0, 86400.0]", [0, -1, 86_401, None, *NOT_NUMBER]),
    ("draft_hang_timeout_s", "[3.0, 86400.0]", [0, 2.9, -1, 86_401, None, *NOT_NUMBER]),
]

#: Option and values at the edge of what is allowed.
GOOD: list[tuple[str, list[object]]] = [
    ("mode", list(MODES)),
    ("num_speculative_tokens", [1, 64]),
    ("target_cores", [None, "0-3"]),
    ("trace", [None, "t.jsonl"]),
    ("allow_untested_vllm", [True, False]),
    ("draft_dtype", list(DTYPES)),
    ("draft_quantization", [None, "awq"]),
    ("draft_max_model_len", [None, 8, 10**7]),
    ("draft_memory_share", [1, 1.0, 0.001]),
    ("draft_kv_cache_gib", [None, 1, 0.25, 4096]),
    ("draft_block_size", [None, 1, 2048]),
    ("draft_max_num_batched_tokens", [16, 10**6]),
    ("draft_start_timeout_s", [1, 0.5, 86_400]),
    ("draft_reply_timeout_s", [1, 0.5, 86_400]),
    ("draft_hang_timeout_s", [3, 60.5, 86_400]),
    ("draft_sample_method", ["greedy", "probabilistic"]),
    ("draft_num_candidates", [1, 32, 256]),
]


@pytest.mark.parametrize(
    ("option", "allowed", "value"),
    [(option, allowed, value) for option, allowed, values in BAD for value in values],
)
def test_bad_value_is_named_with_what_is_allowed(option: str, allowed: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        MineDraftConfig.from_mapping(BASE | {option: value})
    message = str(caught.value)
    assert message.startswith("minedraft: ")
    assert f"{option} = {value!r}" in message
    assert "allowed: " in message
    assert allowed in message


def test_every_option_has_bad_values_above() -> None:
    assert {option for option, _, _ in BAD} == set(option_names())


@pytest.mark.parametrize(
    ("option", "value"), [(option, value) for option, values in GOOD for value in values]
)
def test_values_at_the_edge_are_taken(option: str, value: object) -> None:
    config = MineDraftConfig.from_mapping(BASE | {option: value})
    own = option.removeprefix("draft_")
    holder = config.drafter if option.startswith("draft_") else config
    assert getattr(holder, own) == value
    assert MineDraftConfig.from_mapping(config.to_mapping()) == config


def test_errors_are_value_errors_and_of_minedraft() -> None:
    assert issubclass(ConfigError, ValueError)
    assert issubclass(ConfigError, MineDraftError)


@pytest.mark.parametrize("options", [None, 3, "draft_model", ["draft_model"]])
def test_options_must_be_a_mapping(options: object) -> None:
    with pytest.raises(ConfigError, match="additional_config"):
        MineDraftConfig.from_mapping(options)


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("draft_modle", "draft_model"),
        ("num_speculative_token", "num_speculative_tokens"),
        ("Mode", "mode"),
        ("draft_devise", "draft_device"),
    ],
)
def test_unknown_option_gets_a_hint(typo: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown option '{typo}'.*did you mean '{meant}'"):
        MineDraftConfig.from_mapping(BASE | {typo: 1})


@pytest.mark.parametrize("key", ["zzzzzz", 7, None, "drafter"])
def test_unknown_option_lists_what_is_allowed(key: object) -> None:
    with pytest.raises(ConfigError) as caught:
        MineDraftConfig.from_mapping({**BASE, key: 1})
    assert f"unknown option {key!r}" in str(caught.value)
    assert all(name in str(caught.value) for name in option_names())


@pytest.mark.parametrize("mode", ["sequential", "two-batch"])
@pytest.mark.parametrize("missing", [{}, {"draft_model": None}])
def test_modes_with_drafts_need_a_draft_model(mode: str, missing: dict[str, None]) -> None:
    with pytest.raises(ConfigError, match=f"draft_model is missing; mode '{mode}'"):
        MineDraftConfig.from_mapping({"mode": mode, **missing})


def test_mode_none_needs_no_draft_model() -> None:
    config = MineDraftConfig.from_mapping({"mode": "none", "draft_model": None})
    assert config.drafter is None
    assert config.to_mapping() == {"mode": "none"}


def test_draft_options_without_a_draft_model_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"draft_model is missing, but draft_device is given"):
        MineDraftConfig.from_mapping({"mode": "none", "draft_device": "cpu"})


def test_the_option_that_is_given_is_named() -> None:
    with pytest.raises(ConfigError, match=r"draft_model is missing, but draft_revision is given"):
        MineDraftConfig.from_mapping({"draft_model": None, "draft_revision": "main"})


def test_a_number_beyond_every_float_is_refused() -> None:
    with pytest.raises(ConfigError):
        MineDraftConfig.from_mapping(BASE | {"draft_reply_timeout_s": 10**400})


@pytest.mark.parametrize(
    ("cls", "options"),
    [
        (DrafterConfig, {"model": "m", "device": "cuda:1"}),
        (MineDraftConfig, {"drafter": "m"}),
        (MineDraftConfig, {"mode": "none", "emulate": "e.toml"}),
    ],
)
def test_nested_fields_of_the_wrong_type_are_refused(
    cls: type[Any], options: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError):
        cls(**options)


def test_defaults() -> None:
    config = MineDraftConfig.from_mapping(BASE)
    assert config == MineDraftConfig(drafter=DrafterConfig(model="org/draft"))
    assert (config.mode, config.num_speculative_tokens) == ("two-batch", 4)
    assert config.drafter is not None
    assert config.drafter.device == Device(kind="cpu")


def test_device_is_read_from_its_notation() -> None:
    config = MineDraftConfig.from_mapping(BASE | {"draft_device": "cuda:4"})
    assert config.drafter is not None
    assert config.drafter.device == Device(kind="cuda", index=4)
    assert config.to_mapping()["draft_device"] == "cuda:4"
    device = Device(kind="cpu", cores=(1, 2))
    again = MineDraftConfig.from_mapping(BASE | {"draft_device": device})
    assert again.drafter is not None
    assert again.drafter.device == device
    assert again.to_mapping()["draft_device"] == "cpu:1,2"


def test_emulate_from_mapping_object_and_file(tmp_path: Path) -> None:
    expected = Emulation(target=LatencyModel(fixed_ms=30.0), draft=LatencyModel(fixed_ms=5.0))
    path = tmp_path / "e.toml"
    path.write_text("[target]\nfixed_ms = 30\n[draft]\nfixed_ms = 5\n", encoding="utf-8")
    for given_as in (expected, expected.to_mapping(), str(path)):
        config = MineDraftConfig.from_mapping(BASE | {"emulate": given_as})
        assert config.emulate == expected
        path.touch()
    path.unlink()
    assert config.to_mapping()["emulate"] == expected.to_mapping(), "no file is needed any more"
    assert MineDraftConfig.from_mapping(BASE | {"emulate": None}).emulate is None


def test_emulate_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml"):
        MineDraftConfig.from_mapping(BASE | {"emulate": str(tmp_path / "absent.toml")})


def test_configs_are_frozen() -> None:
    config = MineDraftConfig.from_mapping(BASE)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.mode = "none"  # type: ignore[misc]
    assert config.drafter is not None
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.drafter.model = "x"  # type: ignore[misc]


TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8
).filter(lambda text: bool(text.strip()))
CORES = st.sets(st.integers(0, 4095), min_size=1, max_size=4)
DEVICES = st.one_of(
    st.just(Device(kind="cpu")),
    st.builds(lambda index: Device(kind="cuda", index=index), st.integers(0, 63)),
    st.builds(lambda cores: Device(kind="cpu", cores=tuple(sorted(cores))), CORES),
)
SECONDS = st.floats(0.001, 86_400.0) | st.integers(1, 86_400)
LATENCIES = st.builds(LatencyModel, fixed_ms=st.floats(0.0, 60_000.0))
DRAFTERS = st.builds(
    DrafterConfig,
    model=TEXT,
    device=DEVICES,
    dtype=st.sampled_from(DTYPES),
    quantization=st.none() | TEXT,
    revision=st.none() | TEXT,
    max_model_len=st.none() | st.integers(8, 10**6),
    memory_share=st.floats(0.001, 1.0),
    kv_cache_gib=st.none() | st.floats(0.001, 4096.0),
    block_size=st.none() | st.integers(1, 2048),
    max_num_batched_tokens=st.integers(16, 10**6),
    sample_method=st.sampled_from(SAMPLE_METHODS),
    num_candidates=st.integers(1, 256),
    enforce_eager=st.booleans(),
    start_timeout_s=SECONDS,
    reply_timeout_s=SECONDS,
    hang_timeout_s=st.floats(3.0, 86_400.0),
)
OWN = {
    "num_speculative_tokens": st.integers(1, 64),
    "target_cores": st.sampled_from([None, "0", "1,3", "0-7"]),
    "trace": st.none() | TEXT,
    "emulate": st.none() | st.builds(Emulation, target=LATENCIES, draft=LATENCIES),
    "allow_untested_vllm": st.booleans(),
}
CONFIGS = st.one_of(
    st.builds(MineDraftConfig, mode=st.sampled_from(MODES), drafter=DRAFTERS, **OWN),
    st.builds(MineDraftConfig, mode=st.just("none"), drafter=st.none(), **OWN),
)


@given(CONFIGS)
def test_round_trip_through_json(config: MineDraftConfig) -> None:
    text = json.dumps(config.to_mapping())
    assert MineDraftConfig.from_mapping(json.loads(text)) == config


@given(CONFIGS)
def test_the_mapping_leaves_defaults_out(config: MineDraftConfig) -> None:
    plain = config.to_mapping()
    assert set(plain) <= set(option_names())
    for each in dataclasses.fields(MineDraftConfig):
        if each.name != "drafter":
            assert (each.name in plain) == (getattr(config, each.name) != each.default)


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6)


@given(
    st.dictionaries(
        st.sampled_from(sorted({*option_names(), "draft", "modes"})).filter(
            lambda name: name != "emulate"
        ),
        VALUES | st.lists(VALUES, max_size=2),
        max_size=6,
    )
)
def test_any_mapping_is_read_or_refused_with_a_config_error(options: dict[str, object]) -> None:
    try:
        config = MineDraftConfig.from_mapping(options)
    except ConfigError as error:
        assert str(error).startswith("minedraft: ")
    else:
        assert MineDraftConfig.from_mapping(config.to_mapping()) == config


def test_engine_args_carry_the_options_and_the_scheduler() -> None:
    args = minedraft.engine_args(draft_model="m", num_speculative_tokens=5)
    assert MineDraftConfig.from_mapping(args["additional_config"]["minedraft"]) == (
        MineDraftConfig(num_speculative_tokens=5, drafter=DrafterConfig(model="m"))
    )
    assert args["scheduler_cls"] == "minedraft.plugin.scheduler.MineDraftScheduler"
    with pytest.raises(ConfigError, match="num_speculative_tokens = 0"):
        minedraft.engine_args(draft_model="m", num_speculative_tokens=0)


@pytest.mark.parametrize("name", ["tetris_capacity", "tetris_min_requests"])
def test_tetris_options_need_tokens_to_choose_from(name: str) -> None:
    options = {"draft_model": "D", name: 7}
    with pytest.raises(ConfigError, match=f"{name} = 7.*tetris_extra_tokens"):
        MineDraftConfig.from_mapping(options)
    config = MineDraftConfig.from_mapping({**options, "tetris_extra_tokens": 2})
    assert config.num_draft_tokens == 6


def test_an_emulated_text_cannot_be_drawn() -> None:
    emulate = {"target": {"fixed_ms": 1}, "draft": {"fixed_ms": 1}, "acceptance": [0.5]}
    options = {"draft_model": "D", "emulate": emulate, "draft_sample_method": "probabilistic"}
    with pytest.raises(ConfigError, match="draft_sample_method = 'probabilistic'"):
        MineDraftConfig.from_mapping(options)


def test_medusa_is_not_for_wait_free_by_a_virtual_clock() -> None:
    options = {
        "draft_method": "medusa",
        "draft_model": "heads",
        "mode": "wait-free",
        "emulate": {"target": {"fixed_ms": 1.0}, "draft": {"fixed_ms": 1.0}, "clock": "virtual"},
    }
    with pytest.raises(ConfigError, match=r"emulate\.clock = 'virtual'"):
        MineDraftConfig.from_mapping(options)
    MineDraftConfig.from_mapping({**options, "mode": "two-batch"})
