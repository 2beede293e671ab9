"""The wording of refusals: what is allowed is said as a reader would."""

from __future__ import annotations

import math

import pytest

from minedraft.errors import ConfigError
from minedraft.validation import check_number


@pytest.mark.parametrize(
    ("value", "bounds", "allowed"),
    [
        (0, {"low": 0.0, "low_open": True}, "a number above 0"),
        (math.inf, {"low": 0.0, "low_open": True}, "a number above 0"),
        (-1, {"low": 0.0}, "a number of at least 0"),
        (0.5, {"low": 1.5}, "a number of at least 1.5"),
        (10**400, {"low": 1.0}, "a number of at least 1"),
        (2, {"low": 0.0, "high": 1.0}, "a number in [0.0, 1.0]"),
        (0, {"low": 0.0, "high": 1.0, "low_open": True}, "a number in (0.0, 1.0]"),
    ],
)
def test_ranges_in_words(value: float, bounds: dict[str, float], allowed: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_number("f", value, **bounds)  # type: ignore[arg-type]
    assert str(caught.value).endswith(f"allowed: {allowed}")
