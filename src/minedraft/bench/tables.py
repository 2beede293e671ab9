"""Dotted names into nested tables, and what a table that is written as JSON may hold.

Owns no field of a run; it knows tables only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from minedraft.errors import ConfigError
from minedraft.validation import as_mapping

_ALLOWED = "strings, finite numbers, true or false, and lists and tables of them"


def plain_table(field: str, value: object) -> dict[str, Any]:
    """A copy of the mapping `value`, to any depth, with None left out of it.

    Raises:
        ConfigError: it holds what JSON has no form for; the error names the entry.
    """
    table = as_mapping(field, value)
    for key in table:
        if not isinstance(key, str):
            raise ConfigError.bad_value(f"a key of {field}", key, "a string")
    return {
        key: _plain(f"{field}.{key}", entry) for key, entry in table.items() if entry is not None
    }


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted name to value, for every value that is not a table with entries."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def look_up(table: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted name; None where there is none."""
    value: Any = table
    for key in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def with_value(table: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of `table` with `value` at the dotted name; tables on the way are made.

    Raises:
        ConfigError: on the way stands a value that is no table.
    """
    return _with(table, path.split("."), value, path)


def _with(table: Mapping[str, Any], keys: list[str], value: Any, path: str) -> dict[str, Any]:
    key, *rest = keys
    if not rest:
        return {**table, key: value}
    below = table.get(key)
    inner = {} if below is None else as_mapping(f"{key!r}, on the way to {path!r},", below)
    return {**table, key: _with(inner, rest, value, path)}


def _plain(field: str, value: object) -> Any:
    if isinstance(value, Mapping):
        return plain_table(field, value)
    if isinstance(value, list | tuple):
        return [_plain(f"{field}[{index}]", entry) for index, entry in enumerate(value)]
    finite = not isinstance(value, float) or math.isfinite(value)
    if not isinstance(value, str | int | float) or not finite:
        raise ConfigError.bad_value(field, value, _ALLOWED)
    return value
