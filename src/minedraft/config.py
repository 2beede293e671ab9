"""Every option of minedraft, validated, in two frozen dataclasses.

Owns names, defaults and ranges; it knows nothing of vLLM and reads no environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields

from minedraft.devices import Device, parse_cores
from minedraft.emulation import Emulation
from minedraft.errors import ConfigError
from minedraft.methods import HEADS, MEDUSA, MODEL, WITH_MODEL, check_method
from minedraft.validation import (
    as_mapping,
    check_bool,
    check_choice,
    check_int,
    check_number,
    check_str,
    check_type,
    refuse_unknown,
)

MODES = ("none", "sequential", "two-batch", "pearl", "wait-free")
SAMPLE_METHODS = ("greedy", "probabilistic")
DTYPES = ("auto", "float32", "float16", "bfloat16", "half", "float")
MAX_DRAFT_TOKENS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterConfig:
    """How drafts are made, and the process that makes them.

    Sizes are in tokens, `kv_cache_gib` in GiB, times in seconds. Options of a model are refused
    where the method has none.
    """

    model: str | None = None
    """The draft model, or the head; None for a method that has none."""
    method: str = MODEL
    """See `minedraft.methods`."""
    options: Mapping[str, object] = field(default_factory=dict, hash=False)
    """Of the method."""
    device: Device = field(default_factory=lambda: Device(kind="cpu"))
    dtype: str = "auto"
    quantization: str | None = None
    revision: str | None = None
    max_model_len: int | None = None
    """None: the smaller of the draft model's own and the target's."""
    memory_share: float = 0.9
    """Share of the drafter's device that weights and KV cache may take (GPU only)."""
    kv_cache_gib: float | None = None
    """Size of the drafter's KV cache; None: by `memory_share` on a GPU, 1 GiB on a CPU."""
    block_size: int | None = None
    max_num_batched_tokens: int = 2048
    """Most tokens in one pass of the draft model; longer prompts are cut in chunks."""
    sample_method: str = "greedy"
    """For requests with a temperature: draft the most likely tokens, or draw them."""
    num_candidates: int = 32
    """Most likely tokens of the draft model that a drawn draft may be."""
    enforce_eager: bool = False
    start_timeout_s: float = 600.0
    reply_timeout_s: float = 5.0
    """Wait for an answer after which requests go on without drafts until it comes."""
    hang_timeout_s: float = 60.0
    """Silence after which the drafter is killed and started again; never less than
    `reply_timeout_s`."""

    def __post_init__(self) -> None:
        check_method(self.method, self.options)
        check_str("draft_model", self.model, optional=not self.runs_model)
        check_type("draft_device", self.device, Device)
        check_choice("draft_dtype", self.dtype, DTYPES)
        check_str("draft_quantization", self.quantization, optional=True)
        check_str("draft_revision", self.revision, optional=True)
        check_int("draft_max_model_len", self.max_model_len, 8, optional=True)
        check_number("draft_memory_share", self.memory_share, 0.0, 1.0, low_open=True)
        check_number(
            "draft_kv_cache_gib", self.kv_cache_gib, 0.0, 4096.0, optional=True, low_open=True
        )
        check_int("draft_block_size", self.block_size, 1, 2048, optional=True)
        check_int("draft_max_num_batched_tokens", self.max_num_batched_tokens, 16, 2**31 - 1)
        check_choice("draft_sample_method", self.sample_method, SAMPLE_METHODS)
        check_int("draft_num_candidates", self.num_candidates, 1, 256)
        check_bool("draft_enforce_eager", self.enforce_eager)
        check_number("draft_start_timeout_s", self.start_timeout_s, 0.0, 86_400.0, low_open=True)
        check_number("draft_reply_timeout_s", self.reply_timeout_s, 0.0, 86_400.0, low_open=True)
        # A drafter with nothing to say shows once a second or two that it lives.
        check_number("draft_hang_timeout_s", self.hang_timeout_s, 3.0, 86_400.0)
        self._check_needs_no_model()
        self._check_medusa()

    @property
    def runs_model(self) -> bool:
        """Whether there is a draft model, or a head."""
        return self.method in WITH_MODEL

    @property
    def takes_hidden_states(self) -> bool:
        """Whether it drafts from hidden states of the target."""
        return self.method in HEADS

    @property
    def name(self) -> str:
        """What the drafts come from, for people: the model, or the method without one."""
        return self.model or self.method

    def _check_needs_no_model(self) -> None:
        if self.runs_model:
            return
        for name in _OF_A_MODEL:
            if (value := getattr(self, name)) != _default(DrafterConfig, name):
                raise ConfigError.bad_value(
                    f"draft_{name}",
                    value,
                    f"not given: draft_method {self.method!r} has no draft model",
                )
        if self.device.kind != "cpu":
            raise ConfigError.bad_value(
                "draft_device",
                str(self.device),
                f"'cpu', or cores of it: draft_method {self.method!r} is given no GPU",
            )

    def _check_medusa(self) -> None:
        if self.method != MEDUSA:
            return
        for name in _NOT_OF_MEDUSA:
            if (value := getattr(self, name)) != _default(DrafterConfig, name):
                raise ConfigError.bad_value(
                    f"draft_{name}",
                    value,
                    f"not given: draft_method {MEDUSA!r} has no KV cache, and takes the most "
                    "likely tokens of its heads as the checkpoint has them",
                )


_NOT_OF_MEDUSA = (
    *("kv_cache_gib", "block_size", "max_num_batched_tokens", "max_model_len", "memory_share"),
    *("quantization", "sample_method", "num_candidates"),
)
_OF_A_MODEL = (
    *("model", "dtype", "quantization", "revision", "max_model_len", "memory_share"),
    *("kv_cache_gib", "block_size", "max_num_batched_tokens", "sample_method", "num_candidates"),
    "enforce_eager",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MineDraftConfig:
    """What `additional_config["minedraft"]` holds, checked.

    `mode` none decodes without drafts and needs no `drafter`; the others need one.
    """

    mode: str = "two-batch"
    num_speculative_tokens: int = 4
    drafter: DrafterConfig | None = None
    tetris_extra_tokens: int = 0
    """Drafts beyond k for each request (e); with any, the best of a step's are verified."""
    tetris_capacity: int | None = None
    """Draft tokens verified in a step; None: k for each of its requests."""
    tetris_min_requests: int = 1
    """In smaller steps every request's first k drafts are verified."""
    target_cores: str | None = None
    """CPU cores of the target, as in '0-3' (CPU only); None: all that the drafter leaves."""
    trace: str | None = None
    """File that receives one JSON line per step; None: no trace, at no cost."""
    emulate: Emulation | None = None
    allow_untested_vllm: bool = False

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, MODES)
        check_int("num_speculative_tokens", self.num_speculative_tokens, 1, MAX_DRAFT_TOKENS)
        most = MAX_DRAFT_TOKENS - self.num_speculative_tokens
        check_int("tetris_extra_tokens", self.tetris_extra_tokens, 0, most)
        check_int("tetris_capacity", self.tetris_capacity, 1, optional=True)
        check_int("tetris_min_requests", self.tetris_min_requests, 1)
        self._check_tetris()
        check_type("drafter", self.drafter, DrafterConfig, optional=True)
        check_type("emulate", self.emulate, Emulation, optional=True)
        check_str("target_cores", self.target_cores, optional=True)
        if self.target_cores is not None:
            parse_cores(self.target_cores, "target_cores")
        check_str("trace", self.trace, optional=True)
        check_bool("allow_untested_vllm", self.allow_untested_vllm)
        self._check_emulated_text()
        self._check_emulated_rows()
        self._check_virtual_medusa()
        self._check_confidences()
        self._check_can_lead()
        if self.mode != "none" and self.drafter is None:
            raise ConfigError(
                f"minedraft: draft_model is missing; mode {self.mode!r} needs a draft model "
                "(allowed: a model name or folder; or a draft_method without one)"
            )

    @property
    def num_draft_tokens(self) -> int:
        """Drafts asked for each request: k, and what TETRIS chooses from beyond it."""
        return self.num_speculative_tokens + self.tetris_extra_tokens

    @property
    def running_drafter(self) -> DrafterConfig | None:
        """The drafter that an engine starts: none in mode none, even if one is named."""
        return None if self.mode == "none" else self.drafter

    def _check_tetris(self) -> None:
        for name in ("tetris_capacity", "tetris_min_requests"):
            value = getattr(self, name)
            if self.tetris_extra_tokens == 0 and value != _default(MineDraftConfig, name):
                raise ConfigError.bad_value(
                    name, value, "not given, or tetris_extra_tokens of 1 or more with it"
                )

    def _check_confidences(self) -> None:
        if self.tetris_extra_tokens and self.drafter is not None and not self.drafter.runs_model:
            raise ConfigError.bad_value(
                "tetris_extra_tokens",
                self.tetris_extra_tokens,
                f"0: draft_method {self.drafter.method!r} gives no probability to choose by",
            )

    def _check_can_lead(self) -> None:
        if self.mode == "pearl" and self.drafter is not None and self.drafter.method == MEDUSA:
            raise ConfigError.bad_value(
                "mode",
                self.mode,
                f"another mode: draft_method {MEDUSA!r} cannot guess on from its own guesses, as "
                "pearl has it do while the target verifies",
            )

    def _check_virtual_medusa(self) -> None:
        is_virtual = self.emulate is not None and self.emulate.clock == "virtual"
        is_medusa = self.drafter is not None and self.drafter.method == MEDUSA
        if is_virtual and is_medusa and self.mode == "wait-free":
            raise ConfigError.bad_value(
                "emulate.clock",
                "virtual",
                f"'real' with draft_method {MEDUSA!r} in wait-free: by a virtual clock the state "
                "to draft from gives way to the target's next one",
            )

    def _check_emulated_text(self) -> None:
        is_emulated = self.emulate is not None and self.emulate.acceptance
        if is_emulated and self.drafter is not None and self.drafter.method != MODEL:
            raise ConfigError.bad_value(
                "draft_method",
                self.drafter.method,
                f"{MODEL!r} with emulate.acceptance: emulation itself drafts an emulated text",
            )
        if is_emulated and self.drafter is not None and self.drafter.sample_method != "greedy":
            raise ConfigError.bad_value(
                "draft_sample_method",
                self.drafter.sample_method,
                "'greedy' with emulate.acceptance: an emulated text has no distribution",
            )

    def _check_emulated_rows(self) -> None:
        drafter, size = self.drafter, 0 if self.emulate is None else self.emulate.hidden_state_bytes
        if size and drafter is not None and not drafter.takes_hidden_states:
            raise ConfigError.bad_value(
                "emulate.hidden_state_bytes",
                size,
                f"not given: draft_method {drafter.method!r} takes no hidden states",
            )

    @classmethod
    def from_mapping(cls, options: object) -> MineDraftConfig:
        """Build from the plain dict that vLLM's `additional_config` carries.

        The drafter's options stand beside the others with the prefix ``draft_``.

        Raises:
            ConfigError: names the option, its value and what is allowed.
        """
        table = as_mapping("additional_config['minedraft']", options)
        refuse_unknown("the minedraft options", table, option_names())
        own = {name: table[name] for name in _own_names() if name in table}
        if table.get("emulate") is not None:
            own["emulate"] = _read_emulation(table["emulate"])
        return cls(drafter=_read_drafter(table), **own)  # type: ignore[arg-type]

    def to_mapping(self) -> dict[str, object]:
        """The plain, JSON-ready dict that `from_mapping` takes; defaults are left out."""
        plain = {
            name: getattr(self, name)
            for name in _own_names()
            if getattr(self, name) != _default(MineDraftConfig, name)
        }
        if self.emulate is not None:
            plain["emulate"] = self.emulate.to_mapping()
        if self.drafter is not None:
            plain.update(_drafter_mapping(self.drafter))
        return plain


def option_names() -> tuple[str, ...]:
    """Every key that the plain dict may have."""
    return (*_own_names(), *(f"draft_{each.name}" for each in fields(DrafterConfig)))


def _own_names() -> tuple[str, ...]:
    return tuple(each.name for each in fields(MineDraftConfig) if each.name != "drafter")


def _default(cls: type, name: str) -> object:
    found = next(each for each in fields(cls) if each.name == name)
    return found.default if found.default_factory is MISSING else found.default_factory()


def _read_emulation(value: object) -> Emulation:
    if isinstance(value, Emulation):
        return value
    return Emulation.from_toml(value) if isinstance(value, str) else Emulation.from_mapping(value)


def _read_drafter(table: Mapping[str, object]) -> DrafterConfig | None:
    names = [each.name for each in fields(DrafterConfig)]
    given = {name: table[f"draft_{name}"] for name in names if f"draft_{name}" in table}
    if given.get("model") is None and given.get("method", MODEL) == MODEL:
        if others := sorted(set(given) - {"model"}):
            raise ConfigError(
                f"minedraft: draft_model is missing, but draft_{others[0]} is given; "
                "allowed: a model name or folder"
            )
        return None
    if "device" in given:
        device = given["device"]
        given["device"] = device if isinstance(device, Device) else Device.parse(device)
    return DrafterConfig(**given)  # type: ignore[arg-type]


def _drafter_mapping(drafter: DrafterConfig) -> dict[str, object]:
    plain: dict[str, object] = {}
    for each in fields(DrafterConfig):
        value = getattr(drafter, each.name)
        if each.name == "device":
            plain["draft_device"] = str(value)
        elif value != _default(DrafterConfig, each.name):
            plain[f"draft_{each.name}"] = value
    return plain
