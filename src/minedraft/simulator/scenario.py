"""What is simulated: engines, drafters, requests, load and faults, from a TOML file.

Owns the fields, their ranges and their file format; it simulates nothing.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Self, TypeVar

from minedraft.bench.load import LoadSpec
from minedraft.config import MODES
from minedraft.emulation import PassTimes
from minedraft.errors import ConfigError
from minedraft.simulator.chains import ChainModel, MarkovChains, PositionChains
from minedraft.simulator.link import LinkModel
from minedraft.simulator.profiled import fill_in, read_latency
from minedraft.simulator.recorded import recorded_acceptance
from minedraft.theory import MAX_DRAFT_TOKENS, Acceptance
from minedraft.validation import (
    as_mapping,
    check_choice,
    check_int,
    check_number,
    check_str,
    refuse_unknown,
)

_MAX_COUNT = 100_000_000
_MAX_REQUESTS = 10_000_000
"""Arrivals and results take 80 bytes each, and the figures half a kilobyte."""
_MAX_DEVICES = 10_000
"""Of a kind; an engine or a drafter takes some kilobytes before it does anything."""
_MAX_TOKENS = 20_000_000_000
"""Output tokens of a run: in plain decoding each takes a few microseconds, so that is a day."""
_SHORTEST_PASS_MS = 1e-3
"""In no time at all any number of passes would take place."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineGroup:
    """Engines that are alike. Options have vLLM's names and meaning."""

    target: PassTimes
    count: int = 1
    overhead_ms: float = 0.0
    """From a step's output to the start of the next one, where none is queued."""
    max_queued_steps: int | None = None
    """On the target, at most; None: as many as the mode keeps. 1: by a virtual clock."""
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    num_kv_blocks: int | None = None
    """None: as many as anyone wants."""
    block_size: int = 16

    def __post_init__(self) -> None:
        _check_takes_time("engines.target", self.target)
        check_int("engines.count", self.count, 1, _MAX_DEVICES)
        check_number("engines.overhead_ms", self.overhead_ms, 0.0, 60_000.0)
        check_int("engines.max_queued_steps", self.max_queued_steps, 1, 2, optional=True)
        check_int("engines.max_num_seqs", self.max_num_seqs, 1, 1_000_000)
        check_int("engines.max_num_batched_tokens", self.max_num_batched_tokens, 1, _MAX_COUNT)
        check_int("engines.num_kv_blocks", self.num_kv_blocks, 1, optional=True)
        check_int("engines.block_size", self.block_size, 1, 65_536)

    @classmethod
    def from_mapping(cls, where: str, table: object) -> Self:
        """Build from a TOML table; ConfigError names the field and what is allowed."""
        return cls(**_with_latency(cls, where, table, "target"))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterGroup:
    """Drafters that are alike; engine i is served by drafter i modulo their number."""

    draft: PassTimes
    count: int = 1
    max_num_seqs: int = 1024
    max_num_batched_tokens: int = 2048
    max_model_len: int = 1 << 20
    num_kv_blocks: int | None = None
    block_size: int = 16

    def __post_init__(self) -> None:
        _check_takes_time("drafters.draft", self.draft)
        check_int("drafters.count", self.count, 1, _MAX_DEVICES)
        check_int("drafters.max_num_seqs", self.max_num_seqs, 1, 1_000_000)
        check_int("drafters.max_num_batched_tokens", self.max_num_batched_tokens, 1, _MAX_COUNT)
        check_int("drafters.max_model_len", self.max_model_len, 1)
        check_int("drafters.num_kv_blocks", self.num_kv_blocks, 1, optional=True)
        check_int("drafters.block_size", self.block_size, 1, 65_536)

    @classmethod
    def from_mapping(cls, where: str, table: object) -> Self:
        """Build from a TOML table; ConfigError names the field and what is allowed."""
        return cls(**_with_latency(cls, where, table, "draft"))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Lengths:
    """Numbers of tokens: one, each of [low, high] alike, or those of a list in turn."""

    values: tuple[int, ...] = ()
    low: int = 0
    high: int = 0

    @classmethod
    def read(cls, where: str, value: object) -> Lengths:
        """From an integer, ``{low, high}``, or a list of integers; each is at least 1."""
        if isinstance(value, Mapping):
            refuse_unknown(where, value, ("low", "high"))
            low, high = value.get("low"), value.get("high")
            check_int(f"{where}.low", low, 1, _MAX_COUNT)
            check_int(f"{where}.high", high, int(low), _MAX_COUNT)  # type: ignore[arg-type]
            return cls(low=low, high=high)  # type: ignore[arg-type]
        listed = value if isinstance(value, list) else [value]
        if not listed:
            raise ConfigError.bad_value(where, value, "at least one number of tokens")
        for at, each in enumerate(listed):
            check_int(f"{where}[{at}]" if isinstance(value, list) else where, each, 1, _MAX_COUNT)
        return cls(values=tuple(listed))  # type: ignore[arg-type]

    def of(self, number: int, draw: float) -> int:
        """That of request `number`, with a draw from [0, 1)."""
        if self.values:
            return self.values[number % len(self.values)]
        return self.low + int(draw * (self.high - self.low + 1))

    @property
    def largest(self) -> int:
        """The most that it can be."""
        return max(self.values) if self.values else self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestModel:
    """How many requests, and how long they are."""

    count: int
    prompt_tokens: Lengths
    output_tokens: Lengths

    def __post_init__(self) -> None:
        check_int("requests.count", self.count, 1, _MAX_REQUESTS)
        if self.count * self.output_tokens.largest > _MAX_TOKENS:
            raise ConfigError.bad_value(
                "requests.output_tokens",
                self.output_tokens.largest,
                f"at most {_MAX_TOKENS // self.count} for {self.count} requests: simulating "
                f"{_MAX_TOKENS} tokens takes about a day",
            )

    @classmethod
    def from_mapping(cls, where: str, table: object) -> RequestModel:
        """Build from a TOML table; ConfigError names the field and what is allowed."""
        options = as_mapping(where, table)
        names = ("count", "prompt_tokens", "output_tokens")
        refuse_unknown(where, options, names)
        _require(where, options, names)
        return cls(
            count=options["count"],  # type: ignore[arg-type]
            prompt_tokens=Lengths.read(f"{where}.prompt_tokens", options["prompt_tokens"]),
            output_tokens=Lengths.read(f"{where}.output_tokens", options["output_tokens"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A drafter that is down for some time; what it knew is lost."""

    drafter: int
    at_s: float
    for_s: float

    def __post_init__(self) -> None:
        check_int("failures.drafter", self.drafter, 0)
        check_number("failures.at_s", self.at_s, 0.0)
        check_number("failures.for_s", self.for_s, 0.0, low_open=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One simulated run."""

    name: str
    mode: str
    num_speculative_tokens: int
    acceptance: Acceptance | MarkovChains
    engines: tuple[EngineGroup, ...]
    requests: RequestModel
    drafters: tuple[DrafterGroup, ...] = ()
    load: LoadSpec = field(default_factory=LoadSpec)
    link: LinkModel = field(default_factory=LinkModel)
    failures: tuple[Failure, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        check_str("name", self.name)
        check_choice("mode", self.mode, MODES)
        check_int("num_speculative_tokens", self.num_speculative_tokens, 1, MAX_DRAFT_TOKENS)
        check_int("seed", self.seed, 0)
        if not self.engines:
            raise ConfigError.bad_value("engines", [], "at least one table [[engines]]")
        if not self.drafters and self.mode != "none":
            raise ConfigError(
                f"minedraft: mode = {self.mode!r} needs at least one table [[drafters]]; "
                "allowed without: none"
            )
        for failure in self.failures:
            check_int("failures.drafter", failure.drafter, 0, max(0, self.num_drafters - 1))
        self._check_fits()

    @property
    def num_engines(self) -> int:
        """Engines of all groups."""
        return sum(each.count for each in self.engines)

    @property
    def num_drafters(self) -> int:
        """Drafters of all groups; none in mode none."""
        return 0 if self.mode == "none" else sum(each.count for each in self.drafters)

    @property
    def chains(self) -> ChainModel:
        """The acceptance as chains of guesses."""
        if isinstance(self.acceptance, Acceptance):
            return PositionChains(self.acceptance)
        return self.acceptance

    def _check_fits(self) -> None:
        """A request that no KV pool can ever hold would wait for ever."""
        longest = self.requests.prompt_tokens.largest + self.requests.output_tokens.largest
        needed_tokens = longest + self.num_speculative_tokens
        for group in self.engines:
            needed = -(-needed_tokens // group.block_size)
            if group.num_kv_blocks is not None and group.num_kv_blocks < needed:
                raise ConfigError.bad_value(
                    "engines.num_kv_blocks",
                    group.num_kv_blocks,
                    f"at least {needed}, for the longest request of {longest} tokens",
                )

    @classmethod
    def from_mapping(cls, table: object, where: str = "scenario") -> Scenario:
        """Build from a mapping; ConfigError names the field, its value and what is allowed."""
        options = fill_in(where, as_mapping(where, table))
        refuse_unknown(where, options, (each.name for each in fields(cls)))
        needed = ("mode", "num_speculative_tokens", "acceptance", "engines", "requests")
        _require(where, options, needed)
        return cls(
            name=options.get("name", "scenario"),  # type: ignore[arg-type]
            mode=options["mode"],  # type: ignore[arg-type]
            num_speculative_tokens=options["num_speculative_tokens"],  # type: ignore[arg-type]
            acceptance=_read_acceptance(f"{where}.acceptance", options["acceptance"]),
            engines=tuple(
                EngineGroup.from_mapping(at, each)
                for at, each in _tables(where, options, "engines")
            ),
            drafters=tuple(
                DrafterGroup.from_mapping(at, each)
                for at, each in _tables(where, options, "drafters")
            ),
            requests=RequestModel.from_mapping(f"{where}.requests", options["requests"]),
            load=LoadSpec.from_mapping(options.get("load", {}), f"{where}.load"),
            link=_read(LinkModel, f"{where}.link", options.get("link", {})),
            failures=tuple(
                _read(Failure, at, each, ("drafter", "at_s", "for_s"))
                for at, each in _tables(where, options, "failures")
            ),
            seed=options.get("seed", 0),  # type: ignore[arg-type]
        )


def read_scenarios(path: str | Path, *, seed: int | None = None) -> list[Scenario]:
    """The scenarios of a TOML file: one for each of its modes and numbers of draft tokens.

    `mode` and `num_speculative_tokens` may be lists; `seed` takes the place of the file's.

    Raises:
        ConfigError: the file cannot be read, or a field is not allowed.
    """
    where = f"scenario file {str(path)!r}"
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"minedraft: cannot read {where}: {error}") from error
    _require(where, table, ("mode", "num_speculative_tokens"))
    if seed is not None:
        table["seed"] = seed
    modes, lengths = (
        value if isinstance(value := table[name], list) and value else [value]
        for name in ("mode", "num_speculative_tokens")
    )
    return [
        Scenario.from_mapping({**table, "mode": mode, "num_speculative_tokens": k}, where)
        for mode in modes
        for k in (lengths if mode != "none" else lengths[:1])
    ]


def _check_takes_time(where: str, latency: PassTimes) -> None:
    check_number(
        f"{where}: ms of a pass over one token", latency.pass_ms(1, 1, 1), _SHORTEST_PASS_MS
    )


def _require(where: str, options: Mapping[str, object], names: tuple[str, ...]) -> None:
    for name in names:
        if name not in options:
            raise ConfigError(f"minedraft: {where} has no {name}")


def _tables(
    where: str, options: Mapping[str, object], name: str
) -> list[tuple[str, Mapping[str, object]]]:
    value = options.get(name, [])
    if not isinstance(value, list):
        raise ConfigError.bad_value(f"{where}.{name}", value, f"tables [[{name}]]")
    return [
        (f"{where}.{name}[{at}]", as_mapping(f"{where}.{name}[{at}]", each))
        for at, each in enumerate(value)
    ]


def _with_latency(kind: type, where: str, table: object, role: str) -> dict[str, object]:
    options = dict(as_mapping(where, table))
    refuse_unknown(where, options, (each.name for each in fields(kind)))
    _require(where, options, (role,))
    return {**options, role: read_latency(f"{where}.{role}", options[role], role)}


def _read(kind: type[T], where: str, table: object, needed: tuple[str, ...] = ()) -> T:
    options = as_mapping(where, table)
    _require(where, options, needed)
    refuse_unknown(where, options, (each.name for each in fields(kind)))  # type: ignore[arg-type]
    return kind(**options)


def _read_acceptance(where: str, value: object) -> Acceptance | MarkovChains:
    if isinstance(value, Mapping) and "trace" in value:
        refuse_unknown(where, value, ("trace",))
        return recorded_acceptance(f"{where}.trace", value["trace"])
    if isinstance(value, Mapping):
        names = tuple(each.name for each in fields(MarkovChains))
        refuse_unknown(where, value, names)
        _require(where, value, names)
        return MarkovChains(**value)
    if not isinstance(value, list):
        raise ConfigError.bad_value(
            where,
            value,
            "a list of numbers from 0 to 1, or a table easy, hard, to_hard, to_easy, or one with "
            "the name of a trace",
        )
    return Acceptance(tuple(value))
