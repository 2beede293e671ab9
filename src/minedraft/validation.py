"""Checks that turn a plain mapping into typed fields with one clear error each.

Owns the wording of those errors; it knows no option of minedraft.
"""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Iterable, Mapping

from minedraft.errors import ConfigError


def refuse_unknown(where: str, given: Iterable[object], allowed: Iterable[str]) -> None:
    """Raise ConfigError for the first key of `given` that is not in `allowed`."""
    names = sorted(allowed)
    for key in given:
        if key in names:
            continue
        close = difflib.get_close_matches(str(key), names, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ConfigError(
            f"minedraft: unknown option {key!r} in {where}{hint}; allowed: {', '.join(names)}"
        )


def as_mapping(where: str, value: object) -> Mapping[str, object]:
    """`value` if it is a mapping; ConfigError otherwise."""
    if not isinstance(value, Mapping):
        raise ConfigError.bad_value(where, value, "a table of options (a JSON object)")
    return value


def check_str(field: str, value: object, *, optional: bool = False) -> None:
    """Raise ConfigError unless `value` is a non-empty string (or None, if optional).

    One that no file's name and no message can hold is none.
    """
    if optional and value is None:
        return
    if not isinstance(value, str) or not value.strip():
        raise ConfigError.bad_value(field, value, "a non-empty string")
    try:
        is_text = "\0" not in value and bool(value.encode())
    except UnicodeEncodeError:
        is_text = False
    if not is_text:
        raise ConfigError.bad_value(field, value, "a non-empty string of UTF-8 without NUL")


def check_bool(field: str, value: object) -> None:
    """Raise ConfigError unless `value` is true or false."""
    if not isinstance(value, bool):
        raise ConfigError.bad_value(field, value, "true or false")


def check_int(
    field: str, value: object, low: int, high: int | None = None, *, optional: bool = False
) -> None:
    """Raise ConfigError unless `value` is an int in [low, high] (or None, if optional)."""
    if optional and value is None:
        return
    allowed = f"an integer >= {low}" if high is None else f"an integer from {low} to {high}"
    is_int = isinstance(value, int) and not isinstance(value, bool)
    if not is_int or value < low or (high is not None and value > high):  # type: ignore[operator]
        raise ConfigError.bad_value(field, value, allowed)


def check_number(
    field: str,
    value: object,
    low: float,
    high: float = math.inf,
    *,
    optional: bool = False,
    low_open: bool = False,
) -> None:
    """Raise ConfigError unless `value` is a finite number in [low, high] (or (low, high]).

    Without `high` the message has no upper end: "above 0", or "of at least 0".
    """
    if optional and value is None:
        return
    allowed = _range_words(low, high, low_open)
    high = min(high, sys.float_info.max)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # Comparisons, unlike math.isfinite, hold for integers that no float can represent.
    if not is_number or not -sys.float_info.max <= value <= high:  # type: ignore[operator]
        raise ConfigError.bad_value(field, value, allowed)
    if value < low or (low_open and value == low):  # type: ignore[operator]
        raise ConfigError.bad_value(field, value, allowed)


def _range_words(low: float, high: float, low_open: bool) -> str:
    if high == math.inf:
        return f"a number {'above' if low_open else 'of at least'} {low:g}"
    return f"a number in {'(' if low_open else '['}{low}, {high}]"


def check_type(field: str, value: object, kind: type, *, optional: bool = False) -> None:
    """Raise ConfigError unless `value` is a `kind` (or None, if optional)."""
    if not isinstance(value, kind) and not (optional and value is None):
        raise ConfigError.bad_value(field, value, f"a {kind.__name__}")


def check_choice(field: str, value: object, choices: Iterable[str]) -> None:
    """Raise ConfigError unless `value` is one of `choices`."""
    names = list(choices)
    if value not in names:
        raise ConfigError.bad_value(field, value, ", ".join(names))
