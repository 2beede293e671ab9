"""The device notation: what it means, what it refuses, and its round trip through text."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minedraft.devices import Device, parse_cores
from minedraft.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cuda:0", Device(kind="cuda", index=0)),
        ("cuda:12", Device(kind="cuda", index=12)),
        ("cpu", Device(kind="cpu")),
        ("cpu:3", Device(kind="cpu", cores=(3,))),
        ("cpu:2-5", Device(kind="cpu", cores=(2, 3, 4, 5))),
        ("cpu:4,1,4", Device(kind="cpu", cores=(1, 4))),
        ("cpu:0-2,2-3,9", Device(kind="cpu", cores=(0, 1, 2, 3, 9))),
        ("cpu:4095", Device(kind="cpu", cores=(4095,))),
    ],
)
def test_notation(text: str, expected: Device) -> None:
    assert Device.parse(text) == expected


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "gpu:0",
        "cuda",
        "cuda:",
        "cuda:a",
        "cuda:-1",
        "cuda:0,1",
        "cuda:0-1",
        "CPU",
        " cpu",
        "cpu ",
        "cpu\n",
        "cpu:",
        "cpu:,1",
        "cpu:1,",
        "cpu:1--2",
        "cpu:1-2-3",
        "cpu:3-1",
        "cpu:4096",
        "cpu:0-999999999999",
        None,
        0,
        4.0,
        True,
        ["cpu"],
        b"cpu",
    ],
)
def test_refusals_name_the_field_and_what_is_allowed(bad: object) -> None:
    with pytest.raises(ConfigError, match="some_field") as caught:
        Device.parse(bad, "some_field")
    message = str(caught.value)
    assert "allowed: " in message
    shown = bad.partition(":")[2] if isinstance(bad, str) and bad.startswith("cpu:") else bad
    assert repr(shown) in message or repr(bad) in message


def test_default_field_name_is_the_option() -> None:
    with pytest.raises(ConfigError, match="draft_device"):
        Device.parse("tpu")


@given(st.sets(st.integers(0, 4095), min_size=1, max_size=12))
def test_cores_survive_the_round_trip_through_text(cores: set[int]) -> None:
    device = Device(kind="cpu", cores=tuple(sorted(cores)))
    assert Device.parse(str(device)) == device


@given(st.integers(0, 10**6 - 1))
def test_gpu_survives_the_round_trip_through_text(index: int) -> None:
    assert Device.parse(f"cuda:{index}") == Device(kind="cuda", index=index)
    assert str(Device(kind="cuda", index=index)) == f"cuda:{index}"


def test_bare_cpu_survives_the_round_trip_through_text() -> None:
    assert str(Device.parse("cpu")) == "cpu"


PART = st.tuples(st.integers(0, 60), st.integers(0, 8)).map(
    lambda pair: (pair[0], pair[0] + pair[1])
)


@given(st.lists(PART, min_size=1, max_size=6))
def test_parse_cores_equals_the_union_of_its_parts(parts: list[tuple[int, int]]) -> None:
    text = ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)
    expected = {core for low, high in parts for core in range(low, high + 1)}
    assert parse_cores(text, "f") == tuple(sorted(expected))


@given(st.text(alphabet="0123456789,-: cpuda", max_size=12))
def test_text_near_the_notation_is_read_or_refused(text: str) -> None:
    for parse in (lambda: parse_cores(text, "f"), lambda: Device.parse(text)):
        try:
            parse()
        except ConfigError as error:
            assert "allowed: " in str(error)


def test_digits_that_are_no_number_are_refused() -> None:
    with pytest.raises(ConfigError):
        parse_cores("\N{SUPERSCRIPT TWO}", "target_cores")


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_endless_numbers_are_refused(kind: str) -> None:
    with pytest.raises(ConfigError):
        Device.parse(f"{kind}:{'9' * 5000}")


def test_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Device.parse("cpu").kind = "cuda"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "replicas"),
    [
        ("cuda:4", ["cuda:4", "cuda:5", "cuda:6"]),
        ("cpu", ["cpu", "cpu", "cpu"]),
        ("cpu:3", ["cpu:3", "cpu:3", "cpu:3"]),
        ("cpu:0-4", ["cpu:0", "cpu:1,2", "cpu:3,4"]),
    ],
)
def test_replicas_have_devices_of_their_own(text: str, replicas: list[str]) -> None:
    assert [str(Device.parse(text).of_replica(rank, 3)) for rank in range(3)] == replicas
