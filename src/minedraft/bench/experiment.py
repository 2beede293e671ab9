"""An experiment: a TOML file that becomes a list of runs and what its report shows.

Owns the file's form: base, grids, repeats, quick, report. What a run's fields mean is
`minedraft.bench.spec`'s.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from minedraft.bench.spec import MODES, TABLES, RunSpec, read_emulation
from minedraft.bench.tables import flatten, with_value
from minedraft.errors import ConfigError
from minedraft.validation import as_mapping, check_choice, check_int, check_str, refuse_unknown

__all__ = ["Experiment", "ReportPlan", "RunSpec"]

_NAME = re.compile(r"[a-z0-9]+(?:[-_.][a-z0-9]+)*")
_KEYS = ("name", "description", "base", "grid", "repeats", "quick", "report")
_QUICK = "-quick"

Table = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPlan:
    """What a report shows, by the names of fields and figures.

    Fields that differ between runs and are not named here are shown too, so that no two
    settings look the same.
    """

    rows: tuple[str, ...] = ()
    """Fields that label a table's rows; the first that is a number is the x axis of plots."""
    series: str = "mode"
    """Field whose values are a plot's lines."""
    figures: tuple[str, ...] = ("output_tokens_per_s",)
    """A table and a plot for each."""
    baseline: str | None = None
    """Mode that ratios are to; None: no ratios."""
    throughput: str = "output_tokens_per_s"
    """Figure compared at equal requests per batch, the drafter's device not counted."""
    per_device: str = "output_tokens_per_s_per_device"
    """Figure compared at equal requests in flight."""

    def __post_init__(self) -> None:
        for name in (*self.rows, self.series):
            _check_path("report", name)
        for name in (*self.figures, self.throughput, self.per_device):
            check_str("report.figures", name)
        if self.baseline is not None:
            check_choice("report.baseline", self.baseline, MODES)

    @classmethod
    def from_mapping(cls, options: object) -> ReportPlan:
        """Build from the table [report]; ConfigError names field, value and what is allowed."""
        table: dict[str, Any] = dict(as_mapping("report", options))
        refuse_unknown("report", table, (each.name for each in fields(cls)))
        for name in ("rows", "figures"):
            if name in table:
                table[name] = tuple(_strings(f"report.{name}", table[name]))
        return cls(**table)

    def to_mapping(self) -> dict[str, Any]:
        """The table that `from_mapping` takes."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in plain.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """Runs in the order of the file, repeats last, and what their report shows."""

    name: str
    runs: tuple[RunSpec, ...]
    description: str = ""
    report: ReportPlan = field(default_factory=ReportPlan)

    @classmethod
    def from_toml(cls, path: str | Path, *, quick: bool = False) -> Experiment:
        """Read an experiment; with `quick` its table [quick] overrides base and grids.

        In [quick], a value takes the place of the base's and of all of a grid's values for
        that field; a list takes the place of a grid's list. The name then ends in "-quick".

        Raises:
            ConfigError: names the file, the field, its value and what is allowed.
        """
        with _naming(path):
            try:
                table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
                raise ConfigError(f"minedraft: cannot be read: {error}") from error
            return cls._from_table(table, quick)

    @classmethod
    def _from_table(cls, table: Table, quick: bool) -> Experiment:
        refuse_unknown("an experiment", table, _KEYS)
        name, description = table.get("name"), table.get("description", "")
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            allowed = "small letters and digits, with '-', '_' or '.' between them"
            raise ConfigError.bad_value("name", name, allowed)
        if not isinstance(description, str):
            raise ConfigError.bad_value("description", description, "a string")
        base, grids = _read_base(table.get("base", {})), _read_grids(table.get("grid"))
        changes = _read_quick(table.get("quick", {}))
        repeats = table.get("repeats", 1)
        check_int("repeats", repeats, 1, 1000)
        if quick:
            repeats = changes.pop("repeats", repeats)
            grids = _override(grids, changes)
            name += _QUICK
        settings = _expand(base, grids, changes if quick else {})
        return cls(
            name=name,
            description=description.strip(),
            report=ReportPlan.from_mapping(table.get("report", {})),
            runs=tuple(
                RunSpec.from_mapping({**setting, "repeat": repeat})
                for repeat in range(repeats)
                for setting in settings
            ),
        )


@contextlib.contextmanager
def _naming(path: str | Path) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        text = str(error).removeprefix("minedraft: ")
        raise ConfigError(f"minedraft: experiment {str(path)!r}: {text}") from error


def _check_path(where: str, path: object) -> None:
    """Raise ConfigError unless `path` is a field of a run, or a dotted name below a table of it."""
    check_str(where, path)
    names = [each.name for each in fields(RunSpec) if each.name != "repeat"]
    top, dot, _ = str(path).partition(".")
    refuse_unknown(where, [top], names)
    if dot and top not in TABLES:
        raise ConfigError.bad_value(where, path, f"dotted names below {', '.join(TABLES)}")


def _strings(name: str, value: object) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise ConfigError.bad_value(name, value, "a list of strings")
    return list(value)


def _read_base(value: object) -> dict[str, Any]:
    base: dict[str, Any] = {}
    for path, entry in as_mapping("base", value).items():
        _check_path("base", path)
        base = with_value(base, path, entry)
    if isinstance(base.get("emulate"), str):
        # A grid may then change single numbers of the file's.
        base["emulate"] = read_emulation(base["emulate"])
    return base


def _read_grids(value: object) -> list[dict[str, list[Any]]]:
    if value is None:
        return [{}]
    if not isinstance(value, list) or not value:
        raise ConfigError.bad_value("grid", value, "one or more tables [[grid]]")
    return [_read_grid(f"grid {number}", each) for number, each in enumerate(value, start=1)]


def _read_grid(where: str, value: object) -> dict[str, list[Any]]:
    grid = flatten(as_mapping(where, value))
    if not grid:
        raise ConfigError.bad_value(where, value, "a list of values for at least one field")
    for path, values in grid.items():
        _check_path(where, path)
        if not isinstance(values, list) or not values:
            raise ConfigError.bad_value(f"{where}: {path}", values, "a list of at least one value")
    return grid


def _read_quick(value: object) -> dict[str, Any]:
    changes = flatten(as_mapping("quick", value))
    for path in changes:
        if path != "repeats":
            _check_path("quick", path)
    if "repeats" in changes:
        check_int("quick.repeats", changes["repeats"], 1, 1000)
    return changes


def _override(grids: Sequence[dict[str, list[Any]]], changes: Table) -> list[dict[str, list[Any]]]:
    for path, value in changes.items():
        if isinstance(value, list) and not any(path in grid for grid in grids):
            raise ConfigError.bad_value(f"quick.{path}", value, "one value: no grid has that field")
    return [
        {path: _replaced(values, changes.get(path)) for path, values in grid.items()}
        for grid in grids
    ]


def _replaced(values: list[Any], change: Any) -> list[Any]:
    if change is None:
        return values
    return change if isinstance(change, list) else [change]


def _expand(
    base: dict[str, Any], grids: Sequence[dict[str, list[Any]]], changes: Table
) -> list[dict[str, Any]]:
    """Every setting once, as the table that it is stored as.

    The same setting twice is a mistake. Two that differ only in what their mode ignores are
    one: plain decoding in a grid of draft lengths.
    """
    fixed = {path: value for path, value in changes.items() if not isinstance(value, list)}
    places: dict[str, str] = {}
    settings: dict[str, dict[str, Any]] = {}
    for number, grid in enumerate(grids, start=1):
        for values in itertools.product(*grid.values()):
            table = base
            for path, value in (*zip(grid, values, strict=True), *fixed.items()):
                table = with_value(table, path, value)
            spec = RunSpec.as_written(table)
            place = f"grid {number}, {_words(grid, values)}"
            if spec.identity in places:
                raise ConfigError(
                    f"minedraft: {place} is the same run as {places[spec.identity]}; "
                    "allowed: every run once (see repeats)"
                )
            places[spec.identity] = place
            used = spec.without_unused()
            settings.setdefault(used.identity, used.to_mapping())
    return list(settings.values())


def _words(names: Mapping[str, Any], values: Sequence[Any]) -> str:
    return ", ".join(f"{name} = {value!r}" for name, value in zip(names, values, strict=True))
