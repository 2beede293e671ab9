"""Latency models: their arithmetic, their file, and what they refuse."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minedraft.clock import CLOCKS, RealClock, VirtualClock
from minedraft.emulation import Emulation, LatencyModel, make_clock
from minedraft.errors import ConfigError

TOML = """
[target]
fixed_ms = 30
per_token_ms = 0.1

[draft]
fixed_ms = 5.0
per_token_ms = 0.05
per_request_ms = 0.01
"""
READ = Emulation(
    target=LatencyModel(fixed_ms=30.0, per_token_ms=0.1),
    draft=LatencyModel(fixed_ms=5.0, per_token_ms=0.05, per_request_ms=0.01),
)
MS = st.floats(0.0, 60_000.0)
MODELS = st.builds(LatencyModel, fixed_ms=MS, per_token_ms=MS, per_request_ms=MS)


def test_pass_time_adds_fixed_token_and_request_parts() -> None:
    model = LatencyModel(fixed_ms=30.0, per_token_ms=0.1, per_request_ms=2.0)
    assert model.pass_ms(0, 0) == 30.0
    assert model.pass_ms(50, 3) == pytest.approx(30.0 + 5.0 + 6.0)
    reads_its_cache = LatencyModel(fixed_ms=1.0, per_kv_token_ms=0.5)
    assert reads_its_cache.pass_ms(5, 2, 100) == pytest.approx(51.0)


def test_toml_file(tmp_path: Path) -> None:
    path = tmp_path / "e.toml"
    path.write_text(TOML, encoding="utf-8")
    assert Emulation.from_toml(path) == READ
    assert Emulation.from_toml(str(path)) == READ


RATES = st.lists(st.floats(0.0, 1.0), max_size=4).map(tuple)


EMULATIONS = st.builds(
    Emulation,
    target=MODELS,
    draft=MODELS,
    acceptance=RATES,
    clock=st.sampled_from(CLOCKS),
    hidden_state_bytes=st.integers(0, 4096).map(lambda each: 8 * each),
)


@given(EMULATIONS)
def test_round_trip_through_a_json_mapping(emulation: Emulation) -> None:
    text = json.dumps(emulation.to_mapping())
    assert Emulation.from_mapping(json.loads(text)) == emulation


@pytest.mark.parametrize("name", ["fixed_ms", "per_token_ms", "per_request_ms"])
@pytest.mark.parametrize(
    "bad", [-0.1, 60_000.1, math.nan, math.inf, -math.inf, "5", True, None, [1]], ids=repr
)
def test_bad_latencies_are_named(name: str, bad: object) -> None:
    options = {"fixed_ms": 1.0, name: bad}
    with pytest.raises(ConfigError, match=f"emulate.{name}") as caught:
        LatencyModel(**options)  # type: ignore[arg-type]
    assert repr(bad) in str(caught.value)
    assert "allowed: a number in [0.0, 60000.0]" in str(caught.value)
    table = {"target": options, "draft": {"fixed_ms": 1}}
    with pytest.raises(ConfigError, match=f"emulate.target.{name}"):
        Emulation.from_mapping(table)


@pytest.mark.parametrize("value", [0, 0.0, 60_000, 60_000.0])
def test_bounds_are_allowed(value: float) -> None:
    assert LatencyModel(fixed_ms=value).pass_ms(1, 1) == value


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (None, "emulate"),
        ("x", "emulate"),
        ([], "emulate"),
        ({}, r"emulate has no table \[target\]"),
        ({"target": {"fixed_ms": 1}}, r"no table \[draft\]"),
        ({"target": 3, "draft": {"fixed_ms": 1}}, "emulate.target = 3"),
        ({"target": {}, "draft": {"fixed_ms": 1}}, "emulate.target has no fixed_ms"),
        ({"target": {"fixed_ms": 1}, "draft": {"fixed_ms": 1}, "drafft": {}}, "did you mean 'dra"),
        (
            {"target": {"fixed_ms": 1, "per_tokens_ms": 1}, "draft": {"fixed_ms": 1}},
            "'per_tokens_ms' in emulate.target .did you mean 'per_token_ms'",
        ),
    ],
)
def test_bad_tables_are_refused(table: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Emulation.from_mapping(table)


@pytest.mark.parametrize(
    "content",
    [b"[target\n", b"\xff\xfe", b"[target]\nfixed_ms = 1\n", b"", TOML.encode() + b"[x]\n"],
)
def test_bad_files_are_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"bad\.toml"):
        Emulation.from_toml(path)


def test_missing_file_and_folder_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.toml", tmp_path):
        with pytest.raises(ConfigError, match=path.name):
            Emulation.from_toml(path)


def test_a_number_beyond_every_float_is_refused() -> None:
    with pytest.raises(ConfigError):
        LatencyModel(fixed_ms=10**400)


@pytest.mark.parametrize("bad", [[1.1], [-0.1], ["1"], 0.5, "0.5", [math.nan], [True]], ids=repr)
def test_bad_acceptance_is_named(bad: object) -> None:
    table = {"target": {"fixed_ms": 1.0}, "draft": {"fixed_ms": 1.0}, "acceptance": bad}
    with pytest.raises(ConfigError, match=r"emulate\.acceptance"):
        Emulation.from_mapping(table)


def test_the_last_acceptance_holds_for_all_that_follow() -> None:
    latency = LatencyModel(fixed_ms=1.0)
    emulation = Emulation(target=latency, draft=latency, acceptance=(0.9, 0.5))
    assert [emulation.acceptance_at(position) for position in range(4)] == [0.9, 0.5, 0.5, 0.5]


@pytest.mark.parametrize("bad", ["fake", "", None, 1, ["virtual"]], ids=repr)
def test_another_clock_is_refused(bad: object) -> None:
    with pytest.raises(ConfigError, match=r"emulate\.clock .*real, virtual"):
        Emulation.from_mapping({**READ.to_mapping(), "clock": bad})


@pytest.mark.parametrize("bad", [-8, 4, 2**20 + 8, 8.0, "8", True, None], ids=repr)
def test_odd_rows_are_refused(bad: object) -> None:
    with pytest.raises(ConfigError, match=r"emulate\.hidden_state_bytes"):
        Emulation.from_mapping({**READ.to_mapping(), "hidden_state_bytes": bad})


def test_clocks() -> None:
    assert isinstance(make_clock(None), RealClock)
    assert isinstance(make_clock(READ), RealClock)
    clock = make_clock(replace(READ, clock="virtual"))
    assert isinstance(clock, VirtualClock)
    begin_ns = clock.now_ns()
    assert clock.now_ns() == begin_ns > 0, "it stands still"
    clock.sleep_until_ns(begin_ns + 7)
    clock.sleep_until_ns(begin_ns + 3)
    assert clock.now_ns() == begin_ns + 7, "it does not go back"
