"""The file: read back as it was written; anything else is refused with its reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minedraft.errors import ConfigError
from minedraft.profiles import Profile, read_profile, write_profile
from profiles import make_profile

PROFILE = make_profile()
TABLE: dict[str, Any] = json.loads(msgspec.json.encode(PROFILE))

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([-1.0, 0, 1e308, -0.0]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


def _paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value[:2]))
    else:
        inner = []
    return [at, *(path for key, each in inner for path in _paths(each, (*at, key)))]


PATHS = [path for path in _paths(TABLE) if path]


def _changed(path: tuple[Any, ...], value: Any) -> str:
    table = json.loads(json.dumps(TABLE))
    inside = table
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    return json.dumps(table)


def _write(folder: Path, text: str | bytes) -> Path:
    path = folder / "p.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    write_profile(PROFILE, path)
    assert read_profile(path) == PROFILE
    assert [each.name for each in tmp_path.iterdir()] == ["p.json"]
    write_profile(make_profile(target_model="other"), path)
    assert read_profile(path).target_model == "other"


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot write"):
        write_profile(PROFILE, tmp_path / "nowhere" / "p.json")
    with pytest.raises(ConfigError, match="cannot read"):
        read_profile(tmp_path / "nowhere.json")


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("version",), 2, "version = 2 is not allowed; allowed: 1"),
        (("version",), True, "version = True"),
        (("version",), None, "version = None"),
        (("target", "points"), [], "points = []"),
        (("target", "points", 0, "median_ms"), -1.0, "median_ms = -1.0"),
        (("target", "points", 0, "median_ms"), 0.0, "median_ms = 0.0"),
        (("target", "points", 0, "num_tokens"), 0.5, "num_tokens = 0.5"),
        (("target", "points", 0, "num_tokens"), 1e6, "num_tokens = 1000000.0"),
        (("target", "points", 0, "num_samples"), 0, "num_samples = 0"),
        (("target", "points", 0, "median_ms"), "3", "$.target.points[0].median_ms"),
        (("target", "points", 0, "more"), 1, "more"),
        (("draft", "fit", "slopes_ms"), [-1.0], "slopes_ms"),
        (("draft", "fit", "fixed_ms"), None, "$.draft.fit.fixed_ms"),
        (("draft", "linear", "per_tokens_ms"), 1.0, "per_tokens_ms"),
        (("draft", "linear"), {}, "fixed_ms"),
        (("draft", "linear", "fixed_ms"), -2.0, "linear.fixed_ms = -2.0"),
        (("overhead_ms",), -0.1, "overhead_ms = -0.1"),
        (("round_trip_ms",), 1e9, "round_trip_ms = 1000000000.0"),
        (("num_target_devices",), 0, "num_target_devices = 0"),
        (("num_draft_devices",), -1, "num_draft_devices = -1"),
        (("num_draft_devices",), None, "$.num_draft_devices"),
        (("target_model",), " ", "target_model = ' '"),
        (("provenance", "extra"), 1, "extra"),
        (("provenance",), [], "provenance"),
        (("unknown",), 1, "unknown"),
    ],
)
def test_a_bad_field_is_named(
    tmp_path: Path, path: tuple[Any, ...], value: Any, named: str
) -> None:
    with pytest.raises(ConfigError) as error:
        read_profile(_write(tmp_path, _changed(path, value)))
    assert named in str(error.value)
    assert "p.json" in str(error.value)
    assert "minedraft" in str(error.value)


@pytest.mark.parametrize("field", ["num_target_devices", "num_draft_devices"])
def test_how_many_devices_must_be_said(tmp_path: Path, field: str) -> None:
    without = {name: each for name, each in TABLE.items() if name != field}
    with pytest.raises(ConfigError, match=field):
        read_profile(_write(tmp_path, json.dumps(without)))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        b'{"version": 1}',
        b"[" * 100_000,
        b'{"version":' * 50_000,
        b'{"version": NaN}',
        json.dumps({**TABLE, "overhead_ms": float("nan")}).encode(),
        json.dumps({**TABLE, "overhead_ms": float("inf")}).encode(),
        json.dumps(TABLE).replace('"overhead_ms": 1.5', '"overhead_ms": 1e999').encode(),
        json.dumps({**TABLE, "overhead_ms": 10**400}).encode(),
    ],
)
def test_what_is_no_profile_is_refused(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(ConfigError, match=r"p\.json"):
        read_profile(_write(tmp_path, text))


def _is_sound(read: Callable[[], Profile]) -> None:
    """A ConfigError, or a profile that answers with finite times that are not negative."""
    try:
        profile = read()
    except ConfigError:
        return
    for role in ("target", "draft"):
        assert 0 <= profile.latency_model(role).pass_ms(10, 2, 100) < float("inf")
        assert all(each.fit_ms >= 0 for each in profile.passes(role).residuals)
    assert 0 <= profile.overhead_ms < float("inf")


@settings(
    deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.sampled_from(PATHS), json_values)
def test_any_value_in_any_place(tmp_path: Path, path: tuple[Any, ...], value: Any) -> None:
    file = _write(tmp_path, _changed(path, value))
    _is_sound(lambda: read_profile(file))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=40), st.integers(0, len(json.dumps(TABLE))), st.integers(0, 40))
def test_any_bytes_in_any_place(tmp_path: Path, noise: bytes, at: int, gone: int) -> None:
    data = json.dumps(TABLE).encode()
    file = _write(tmp_path, data[:at] + noise + data[at + gone :])
    _is_sound(lambda: read_profile(file))
