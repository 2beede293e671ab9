"""One resolved benchmark run: its fields, their checks, and the identity that names its results.

Owns which fields a mode makes use of; what `dataset`, `load`, `tetris` and `engine` hold is for
those who read them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Self

from minedraft.bench.datasets import DatasetSpec
from minedraft.bench.load import LoadSpec
from minedraft.bench.tables import look_up, plain_table
from minedraft.config import DTYPES, MAX_DRAFT_TOKENS
from minedraft.devices import Device, parse_cores
from minedraft.emulation import Emulation, LatencyModel
from minedraft.errors import ConfigError
from minedraft.methods import MODEL, WITH_MODEL, check_method
from minedraft.validation import (
    as_mapping,
    check_bool,
    check_choice,
    check_int,
    check_number,
    check_str,
    refuse_unknown,
)

MODES = ("none", "vllm-sd", "sequential", "two-batch", "pearl", "wait-free")
"""Those of minedraft, and vLLM's own speculative decoding."""
BATCHES = {"two-batch": 2}
"""Batches that the requests in flight are split into; one where a mode is not named."""
TABLES = ("dataset", "load", "emulate", "tetris", "engine", "draft_options")
"""Fields that hold tables."""

_UNUSED: Mapping[str, tuple[str, ...]] = {
    "none": (
        *("draft", "draft_method", "draft_options", "num_speculative_tokens", "draft_device"),
        *("tetris", "emulate.draft"),
    ),
    "vllm-sd": ("draft_device", "tetris"),
}
_NO_DRAFT_PASS = {"fixed_ms": 0.0}
_ENGINE_OWN = ("model", "dtype", "seed", "max_num_seqs", "max_model_len")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """What one run measures; all that its figures depend on but versions and the machine.

    Two runs are the same run if their `identity` is equal. A new field must have a default
    under which runs are what they were before, and a default is never changed: either would
    give old results a new identity.
    """

    mode: str
    target: str
    dataset: Mapping[str, Any]
    draft: str | None = None
    """The draft model; needed by every mode that drafts, unless `draft_method` has none."""
    num_speculative_tokens: int = 4
    max_num_seqs: int = 8
    """Requests in flight, both batches together."""
    load: Mapping[str, Any] = field(default_factory=dict)
    max_tokens: int = 128
    """Output tokens of a request, at most."""
    ignore_eos: bool = False
    temperature: float = 0.0
    seed: int = 0
    dtype: str = "auto"
    max_model_len: int | None = None
    """Tokens; None: the model's own."""
    chat: bool = False
    """Whether prompts go through the chat template."""
    emulate: Mapping[str, Any] | None = None
    """Tables target and draft of a latency model; None: real times."""
    target_cores: str | None = None
    draft_device: str | None = None
    tetris: Mapping[str, Any] | None = None
    engine: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of vLLM's engine."""
    draft_method: str = MODEL
    """One of minedraft's; for vLLM's own drafting one that both have."""
    draft_options: Mapping[str, Any] = field(default_factory=dict)
    repeat: int = 0

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, MODES)
        check_str("target", self.target)
        check_str("draft", self.draft, optional=True)
        check_int("num_speculative_tokens", self.num_speculative_tokens, 1, MAX_DRAFT_TOKENS)
        check_int("max_num_seqs", self.max_num_seqs, 1)
        check_int("max_tokens", self.max_tokens, 1)
        check_bool("ignore_eos", self.ignore_eos)
        check_number("temperature", self.temperature, 0.0, 10.0)
        check_int("seed", self.seed, 0)
        check_choice("dtype", self.dtype, DTYPES)
        check_int("max_model_len", self.max_model_len, 8, optional=True)
        check_bool("chat", self.chat)
        check_int("repeat", self.repeat, 0)
        self._check_devices()
        self._check_tables()
        check_method(self.draft_method, plain_table("draft_options", self.draft_options))
        if self.draft is None and not self.ignores("draft"):
            raise ConfigError.bad_value("draft", None, f"a model, since mode {self.mode!r} drafts")

    def _check_devices(self) -> None:
        check_str("target_cores", self.target_cores, optional=True)
        if self.target_cores is not None:
            parse_cores(self.target_cores, "target_cores")
        if self.draft_device is not None:
            Device.parse(self.draft_device)

    def _check_tables(self) -> None:
        DatasetSpec.from_mapping(plain_table("dataset", self.dataset))
        LoadSpec.from_mapping(plain_table("load", self.load))
        if self.tetris is not None:
            self._check_tetris(plain_table("tetris", self.tetris))
        if self.emulate is not None:
            Emulation.from_mapping(self.emulate)
        for name in plain_table("engine", self.engine):
            if name.replace("-", "_") in _ENGINE_OWN:
                raise ConfigError(
                    f"minedraft: engine.{name} = {self.engine[name]!r} is not allowed; "
                    "the run has a field of its own for it"
                )

    def _check_tetris(self, options: Mapping[str, Any]) -> None:
        refuse_unknown("tetris", options, ("extra_tokens", "capacity", "min_requests"))
        check_int("tetris.extra_tokens", options.get("extra_tokens"), 1, MAX_DRAFT_TOKENS)
        check_int("tetris.capacity", options.get("capacity"), 1, optional=True)
        check_int("tetris.min_requests", options.get("min_requests", 1), 1)

    @classmethod
    def from_mapping(cls, options: object) -> Self:
        """Build from a table of fields; those that the mode makes no use of are set aside.

        `emulate` may also be the name of a TOML file.

        Raises:
            ConfigError: names the field, its value and what is allowed.
        """
        return cls.as_written(options).without_unused()

    @classmethod
    def as_written(cls, options: object) -> Self:
        """As `from_mapping`, with what the mode makes no use of."""
        table = as_mapping("a run", options)
        refuse_unknown("a run", table, (each.name for each in fields(cls)))
        given: dict[str, Any] = dict(table)
        for each in fields(cls):
            required = each.default is MISSING and each.default_factory is MISSING
            if required and each.name not in given:
                raise ConfigError.bad_value(each.name, None, "a value: every run needs one")
        for name in ("dataset", "load", "tetris", "engine", "draft_options"):
            if given.get(name) is not None:
                given[name] = plain_table(name, given[name])
        if given.get("emulate") is not None:
            given["emulate"] = read_emulation(given["emulate"])
        return cls(**given)

    def to_mapping(self) -> dict[str, Any]:
        """The table that `from_mapping` takes; fields at their default are left out."""
        return {
            each.name: _settled(getattr(self, each.name), each.default)
            for each in fields(self)
            if getattr(self, each.name) != _default(each)
        }

    def to_full_mapping(self) -> dict[str, Any]:
        """The same with the defaults."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def identity(self) -> str:
        """SHA-256, in hex, of `to_mapping` as JSON with sorted keys."""
        text = json.dumps(self.to_mapping(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def setting(self) -> str:
        """The identity of this run's first repeat: equal for all repeats."""
        return replace(self, repeat=0).identity

    @property
    def batches(self) -> int:
        """Batches that the requests in flight are split into."""
        return BATCHES.get(self.mode, 1)

    def ignores(self, path: str) -> bool:
        """Whether the mode makes no use of the field with that dotted name."""
        return any(f"{path}.".startswith(f"{each}.") for each in self._unused)

    @property
    def _unused(self) -> tuple[str, ...]:
        unused = _UNUSED.get(self.mode, ())
        return unused if self.draft_method in WITH_MODEL else (*unused, "draft")

    def value(self, path: str) -> Any:
        """The field with that dotted name; None if it is not there or the mode ignores it."""
        return None if self.ignores(path) else look_up(self.to_full_mapping(), path)

    @property
    def has_virtual_clock(self) -> bool:
        """Whether its devices are emulated by a virtual clock."""
        return self.emulate is not None and self.emulate.get("clock") == "virtual"

    def in_mode(self, mode: str, *, max_num_seqs: int | None = None) -> Self:
        """The same run in another mode, with as many or with `max_num_seqs` in flight.

        Where `load` states as many in flight as the engine takes, it follows.

        Raises:
            ConfigError: that mode needs what this run lacks, as a draft model.
        """
        changed: dict[str, Any] = {"mode": mode}
        if max_num_seqs is not None:
            changed["max_num_seqs"] = max_num_seqs
            if self.load.get("in_flight") == self.max_num_seqs:
                changed["load"] = {**self.load, "in_flight": max_num_seqs}
        return replace(self, **changed).without_unused()

    def without_unused(self) -> Self:
        """The same run with what its mode makes no use of at its default."""
        defaults = {each.name: _default(each) for each in fields(self) if each.name in self._unused}
        if self.emulate is not None and self.ignores("emulate.draft"):
            defaults["emulate"] = {**self.emulate, "draft": _NO_DRAFT_PASS}
            if self.emulate.get("acceptance"):
                # The text is emulated still: it is the same whatever is accepted.
                defaults["emulate"]["acceptance"] = [1.0]
        return replace(self, **defaults)


def read_emulation(value: object) -> dict[str, Any]:
    """The tables of a latency model, from a file's name or a table, without its defaults.

    Raises:
        ConfigError: names the file or field, its value and what is allowed.
    """
    by_file = isinstance(value, str)
    model = Emulation.from_toml(value) if by_file else Emulation.from_mapping(value)  # type: ignore[arg-type]
    tables: dict[str, Any] = {
        role: _latency_table(getattr(model, role)) for role in ("target", "draft")
    }
    if model.clock != "real":
        tables["clock"] = model.clock
    if model.acceptance:
        tables["acceptance"] = list(model.acceptance)
    return tables


def _latency_table(model: LatencyModel) -> dict[str, float]:
    return {
        each.name: getattr(model, each.name)
        for each in fields(model)
        if getattr(model, each.name) != each.default
    }


def _default(each: Any) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()


def _settled(value: Any, default: object) -> Any:
    # 1 and 1.0 are the same setting and must be the same JSON.
    return float(value) if isinstance(default, float) else value
