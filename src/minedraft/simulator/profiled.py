"""Measured times in the place of latency models in a scenario file.

Owns what a named profile fills in; the tables are `scenario`'s.
"""

from __future__ import annotations

from collections.abc import Mapping

from minedraft.emulation import LatencyModel, PassTimes
from minedraft.errors import ConfigError
from minedraft.profiles import Profile, read_profile
from minedraft.validation import as_mapping, check_str, refuse_unknown

_KEY = "profile"
_NEEDED = {"engines": "target", "drafters": "draft"}


def read_latency(where: str, table: object, role: str) -> PassTimes:
    """The times of `role`: a latency model's table, or the fit of ``{profile = "P.json"}``.

    Raises:
        ConfigError: names the field, its value and what is allowed.
    """
    options = as_mapping(where, table)
    if _KEY not in options:
        return LatencyModel.from_mapping(where, options)
    refuse_unknown(where, options, (_KEY,))
    return _read(f"{where}.{_KEY}", options[_KEY]).passes(role).fit


def fill_in(where: str, table: Mapping[str, object]) -> Mapping[str, object]:
    """The tables of a scenario with those of its top-level `profile`, where they have none.

    Engines get `target` and `overhead_ms`, drafters `draft`; without a [link], one way to the
    drafter takes half of `round_trip_ms`.

    Raises:
        ConfigError: the profile cannot be read, or every group has a latency model of its own.
    """
    if _KEY not in table:
        return dict(table)
    name = table[_KEY]
    profile = _read(f"{where}: {_KEY}", name)
    given: dict[str, dict[str, object]] = {
        "engines": {"target": {_KEY: name}, "overhead_ms": profile.overhead_ms},
        "drafters": {"draft": {_KEY: name}},
    }
    filled = {
        each: _filled(table.get(each), _NEEDED[each], values) for each, values in given.items()
    }
    if all(_is_whole(table.get(each, []), needed) for each, needed in _NEEDED.items()):
        raise ConfigError.bad_value(
            f"{where}: {_KEY}", name, "none where every group names its own latency model"
        )
    own = {each: value for each, value in table.items() if each != _KEY}
    link = {"delay_ms": profile.round_trip_ms / 2}
    return {"link": link, **own, **{each: value for each, value in filled.items() if value}}


def _is_whole(groups: object, needed: str) -> bool:
    """Whether these are groups, and each has its latency model."""
    return isinstance(groups, list) and all(
        isinstance(each, Mapping) and needed in each for each in groups
    )


def _filled(groups: object, needed: str, values: Mapping[str, object]) -> object:
    """`groups` with `values` in those that lack a latency model; what is no group as it is."""
    if not isinstance(groups, list):
        return groups
    return [
        {**values, **each} if isinstance(each, Mapping) and needed not in each else each
        for each in groups
    ]


def _read(where: str, name: object) -> Profile:
    check_str(where, name)
    return read_profile(str(name))
