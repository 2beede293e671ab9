"""When a benchmark's requests arrive: all at once, as others finish, or at set times.

Owns arrival times; it neither reads a clock, nor sends a request, nor knows a prompt.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Protocol

from minedraft.errors import ConfigError
from minedraft.validation import (
    as_mapping,
    check_choice,
    check_int,
    check_number,
    check_str,
    refuse_unknown,
)

_LATEST_S = 1e9
"""Thirty years: nobody waits for later arrivals, and times near them have few digits left."""
_ARRIVAL = "arrival_s"
_TRACE_ROWS = f'a number of seconds or {{"{_ARRIVAL}": seconds}} per line, or CSV with {_ARRIVAL}'


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSpec:
    """How requests arrive. Each kind has the one option that it needs, and no other.

    ``offline``: all at time 0. ``closed-loop``: a new one when fewer than `in_flight` are open.
    ``poisson``: `rate_per_s` on average, in exponential gaps. ``trace``: at the times in `path`.
    """

    kind: str = "offline"
    in_flight: int | None = None
    rate_per_s: float | None = None
    path: str | None = None
    """A file of rising arrival times in seconds from the start of the run: JSON lines or CSV."""

    def __post_init__(self) -> None:
        check_choice("load.kind", self.kind, LOAD_KINDS)
        check_int("load.in_flight", self.in_flight, 1, optional=True)
        check_number("load.rate_per_s", self.rate_per_s, 0.0, 1e6, optional=True, low_open=True)
        check_str("load.path", self.path, optional=True)
        needed = _VARIANTS[self.kind].option
        for option in ("in_flight", "rate_per_s", "path"):
            value = getattr(self, option)
            if value is None and option == needed:
                raise ConfigError(f"minedraft: load.{option} is missing; {self.kind!r} needs it")
            if value is not None and option != needed:
                raise ConfigError.bad_value(
                    f"load.{option}", value, f"nothing, since {self.kind!r} has no use for it"
                )

    @classmethod
    def from_mapping(cls, table: object, where: str = "load") -> LoadSpec:
        """Build from a mapping; ConfigError names the field, its value and what is allowed."""
        options = as_mapping(where, table)
        refuse_unknown(where, options, (field.name for field in fields(cls)))
        return cls(**options)  # type: ignore[arg-type]

    def to_mapping(self) -> dict[str, object]:
        """The plain mapping that `from_mapping` takes, without the options that are not set."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


class Arrivals(Protocol):
    """Says which requests start. Times are seconds from the start of the run."""

    @property
    def num_left(self) -> int:
        """Requests that have not started."""

    def due(self, now_s: float, num_open: int) -> list[float]:
        """Start what may start now: one arrival time per request, in order, none after `now_s`.

        `num_open` counts requests that have started and not finished. The caller starts as many
        as there are times, and measures latencies from these: a request that is started late
        has waited.
        """

    def next_at_s(self) -> float | None:
        """When the clock alone lets the next one start.

        None if only a finished request can, or if none is left.
        """


class TimedArrivals:
    """Requests that arrive at known times, however many are open."""

    def __init__(self, times_s: Sequence[float]) -> None:
        """`times_s`: one time per request, none before the one before it."""
        self._times_s = list(times_s)
        self._next = 0

    @property
    def num_left(self) -> int:
        """Requests that have not started."""
        return len(self._times_s) - self._next

    def due(self, now_s: float, num_open: int) -> list[float]:
        """Start all whose time has come."""
        begin = self._next
        while self._next < len(self._times_s) and self._times_s[self._next] <= now_s:
            self._next += 1
        return self._times_s[begin : self._next]

    def next_at_s(self) -> float | None:
        """The time of the next one."""
        return self._times_s[self._next] if self.num_left else None


class ClosedLoopArrivals:
    """A fixed number of users, each of whom asks again when answered."""

    def __init__(self, num_requests: int, in_flight: int) -> None:
        self._num_left = num_requests
        self._in_flight = in_flight

    @property
    def num_left(self) -> int:
        """Requests that have not started."""
        return self._num_left

    def due(self, now_s: float, num_open: int) -> list[float]:
        """Start as many as there is room for; they arrive now."""
        count = min(self._num_left, max(0, self._in_flight - num_open))
        self._num_left -= count
        return [now_s] * count

    def next_at_s(self) -> float | None:
        """None: whenever there is room, a request starts at once."""
        return None


def make_arrivals(spec: LoadSpec, num_requests: int, rng: random.Random) -> Arrivals:
    """The arrivals of `num_requests` requests; only ``poisson`` draws from `rng`.

    Raises:
        ConfigError: the trace cannot be read, or has fewer arrivals than there are requests.
    """
    return _VARIANTS[spec.kind].make(spec, num_requests, rng)


def read_arrival_times(path: str | Path) -> list[float]:
    """Read arrival times in seconds, from a CSV file (by its suffix) or JSON lines.

    A CSV file has a column ``arrival_s``, or no header and the times in its first column.

    Raises:
        ConfigError: names the file, the line, and what is wrong.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"minedraft: cannot read load.path = {str(path)!r}: {error}") from error
    read = _csv_values if Path(path).suffix.lower() == ".csv" else _json_values
    times_s: list[float] = []
    for number, value in read(str(path), lines):
        where = f"{path}, line {number}"
        check_number(where, value, times_s[-1] if times_s else 0.0, _LATEST_S)
        times_s.append(float(value))  # type: ignore[arg-type]
    if not times_s:
        raise ConfigError(f"minedraft: load.path = {str(path)!r} has no arrival; {_TRACE_ROWS}")
    return times_s


def _json_values(path: str, lines: list[str]) -> Iterator[tuple[int, object]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ConfigError(
                f"minedraft: {path}, line {number} is not JSON: {error}; allowed: {_TRACE_ROWS}"
            ) from None
        yield number, row.get(_ARRIVAL) if isinstance(row, Mapping) else row


def _csv_values(path: str, lines: list[str]) -> Iterator[tuple[int, object]]:
    rows = [(number, row) for number, row in enumerate(csv.reader(lines), start=1) if any(row)]
    column = 0
    if rows and not any(isinstance(_number(cell), float) for cell in rows[0][1]):
        header = [cell.strip() for cell in rows.pop(0)[1]]
        if _ARRIVAL not in header:
            raise ConfigError(
                f"minedraft: {path} has the columns {', '.join(header)}; allowed: {_TRACE_ROWS}"
            )
        column = header.index(_ARRIVAL)
    for number, row in rows:
        yield number, _number(row[column]) if column < len(row) else None


def _number(cell: str) -> object:
    try:
        return float(cell)
    except ValueError:
        return cell


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variant:
    """A kind of load: the one option that it needs, and how its arrivals are made."""

    option: str | None
    make: Callable[[LoadSpec, int, random.Random], Arrivals]


def _offline(spec: LoadSpec, num_requests: int, rng: random.Random) -> Arrivals:
    return TimedArrivals([0.0] * num_requests)


def _closed_loop(spec: LoadSpec, num_requests: int, rng: random.Random) -> Arrivals:
    assert spec.in_flight is not None
    return ClosedLoopArrivals(num_requests, spec.in_flight)


def _poisson(spec: LoadSpec, num_requests: int, rng: random.Random) -> Arrivals:
    assert spec.rate_per_s is not None
    # 1 - random() is never 0. Only random() draws the same numbers in all versions of Python.
    gaps_s = (-math.log(1.0 - rng.random()) / spec.rate_per_s for _ in range(num_requests))
    times_s = list(itertools.accumulate(gaps_s))
    if times_s and times_s[-1] > _LATEST_S:
        allowed = f"a rate at which {num_requests} requests arrive within {_LATEST_S:g} s"
        raise ConfigError.bad_value("load.rate_per_s", spec.rate_per_s, allowed)
    return TimedArrivals(times_s)


def _trace(spec: LoadSpec, num_requests: int, rng: random.Random) -> Arrivals:
    assert spec.path is not None
    times_s = read_arrival_times(spec.path)
    if len(times_s) < num_requests:
        raise ConfigError(
            f"minedraft: load.path = {spec.path!r} has {len(times_s)} arrivals for {num_requests} "
            "requests; allowed: at least one each"
        )
    return TimedArrivals(times_s[:num_requests])


_VARIANTS: Mapping[str, _Variant] = {
    "offline": _Variant(option=None, make=_offline),
    "closed-loop": _Variant(option="in_flight", make=_closed_loop),
    "poisson": _Variant(option="rate_per_s", make=_poisson),
    "trace": _Variant(option="path", make=_trace),
}
LOAD_KINDS = tuple(_VARIANTS)
