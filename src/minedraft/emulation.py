"""Latency models of devices that are not here: how long a pass would take.

Owns the numbers and their file format; it does not sleep and runs no model. The
scheduler, the transport and the engine stay real when it is used; results are labelled
emulated.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Protocol

from minedraft.clock import CLOCKS, Clock, RealClock, clock_named
from minedraft.errors import ConfigError
from minedraft.validation import as_mapping, check_choice, check_int, check_number, refuse_unknown


class PassTimes(Protocol):
    """How long passes of one model take: modelled, or measured (`minedraft.profiles.TimeFit`)."""

    def pass_ms(self, num_tokens: float, num_requests: float, num_kv_tokens: float) -> float:
        """Time in ms of a pass over `num_tokens` tokens of `num_requests` requests, which
        together have `num_kv_tokens` tokens in the KV cache after it; sizes may be means."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyModel:
    """Milliseconds of one pass: fixed + per token + per request + per token in the KV cache."""

    fixed_ms: float
    per_token_ms: float = 0.0
    per_request_ms: float = 0.0
    per_kv_token_ms: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            check_number(f"emulate.{field.name}", getattr(self, field.name), 0.0, 60_000.0)

    def pass_ms(self, num_tokens: float, num_requests: float, num_kv_tokens: float = 0) -> float:
        """See PassTimes."""
        return (
            self.fixed_ms
            + self.per_token_ms * num_tokens
            + self.per_request_ms * num_requests
            + self.per_kv_token_ms * num_kv_tokens
        )

    def pass_ns(self, num_tokens: int, num_requests: int, num_kv_tokens: int) -> int:
        """The same in whole ns."""
        return round(self.pass_ms(num_tokens, num_requests, num_kv_tokens) * 1e6)

    @classmethod
    def from_mapping(cls, where: str, table: object) -> LatencyModel:
        """Build from a TOML table; ConfigError names the field and what is allowed."""
        options = as_mapping(where, table)
        refuse_unknown(where, options, (field.name for field in fields(cls)))
        if "fixed_ms" not in options:
            raise ConfigError(f"minedraft: {where} has no fixed_ms; give the time of an empty pass")
        for name, value in options.items():
            check_number(f"{where}.{name}", value, 0.0, 60_000.0)
        return cls(**{name: float(value) for name, value in options.items()})  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulation:
    """One latency model a role: `target` for verification passes, `draft` for draft passes.

    With `acceptance` the text is emulated too (`minedraft.emulated_text`): entry i is the
    probability that the draft at position i + 1 is right if those before it were; the last
    one holds for all that follow. Without, acceptance is what the two models make it.
    By a `clock` that is "real", passes sleep until their modelled time is over, and all else
    takes what it takes; by a "virtual" one nothing sleeps and nothing else takes time, so
    that a run can be repeated step by step.
    """

    target: LatencyModel
    draft: LatencyModel
    acceptance: tuple[float, ...] = ()
    clock: str = "real"
    hidden_state_bytes: int = 0
    """Bytes of a row of the target's hidden states, which a head takes: the rows of the model that
    runs are made that long. 0: as they are."""

    def __post_init__(self) -> None:
        check_choice("emulate.clock", self.clock, CLOCKS)
        for at, value in enumerate(self.acceptance):
            check_number(f"emulate.acceptance[{at}]", value, 0.0, 1.0)
        check_int("emulate.hidden_state_bytes", self.hidden_state_bytes, 0, 2**20)
        if self.hidden_state_bytes % 8:
            raise ConfigError.bad_value(
                "emulate.hidden_state_bytes", self.hidden_state_bytes, "a multiple of 8"
            )

    def acceptance_at(self, position: int) -> float:
        """That of the draft at `position`, counted from 0."""
        return self.acceptance[min(position, len(self.acceptance) - 1)]

    @classmethod
    def from_mapping(cls, table: object, where: str = "emulate") -> Emulation:
        """Build from a mapping with the tables target and draft, and perhaps the other fields.

        Raises:
            ConfigError: names the field, the value and what is allowed.
        """
        options = as_mapping(where, table)
        refuse_unknown(where, options, (field.name for field in fields(cls)))
        for role in ("target", "draft"):
            if role not in options:
                raise ConfigError(f"minedraft: {where} has no table [{role}]; both are needed")
        clock: Any = options.get("clock", "real")
        check_choice(f"{where}.clock", clock, CLOCKS)
        state_bytes: Any = options.get("hidden_state_bytes", 0)
        check_int(f"{where}.hidden_state_bytes", state_bytes, 0, 2**20)
        return cls(
            target=LatencyModel.from_mapping(f"{where}.target", options["target"]),
            draft=LatencyModel.from_mapping(f"{where}.draft", options["draft"]),
            acceptance=_read_acceptance(where, options.get("acceptance", ())),
            clock=clock,
            hidden_state_bytes=state_bytes,
        )

    @classmethod
    def from_toml(cls, path: str | Path) -> Emulation:
        """Read a TOML file with the tables [target] and [draft]; ConfigError names the file."""
        try:
            table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(
                f"minedraft: cannot read emulate file {str(path)!r}: {error}"
            ) from error
        return cls.from_mapping(table, where=f"emulate file {str(path)!r}")

    def to_mapping(self) -> Mapping[str, object]:
        """The mapping that `from_mapping` takes."""
        return {**asdict(self), "acceptance": list(self.acceptance)}


def make_clock(emulation: Emulation | None) -> Clock:
    """The clock of a process that runs with this emulation, or without any."""
    return RealClock() if emulation is None else clock_named(emulation.clock)


def _read_acceptance(where: str, value: object) -> tuple[float, ...]:
    if not isinstance(value, list | tuple):
        raise ConfigError.bad_value(f"{where}.acceptance", value, "a list of numbers from 0 to 1")
    for at, each in enumerate(value):
        check_number(f"{where}.acceptance[{at}]", each, 0.0, 1.0)
    return tuple(float(each) for each in value)
