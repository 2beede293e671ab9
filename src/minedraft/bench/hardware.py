"""How long a pass should take, from published figures of a GPU and a model's configuration.

Owns the arithmetic, and the three shares of a peak that it takes for granted; which GPUs and
models the paper has is `paper_settings`', what it all means docs/latency_models.md. It
measures nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from minedraft.emulation import LatencyModel
from minedraft.errors import ConfigError
from minedraft.validation import check_bool, check_int, check_number, check_str

MEMORY_SHARE = 0.8
"""Of the memory's bandwidth, reached when weights and KV cache are read."""
COMPUTE_SHARE = 0.6
"""Of the dense tensor FLOPS, reached by matrix products of a few hundred rows."""
LINK_SHARE = 0.75
"""Of the link's bandwidth in one direction, reached by a ring all-reduce."""
ACTIVATION_BYTES = 2
"""Of one number in the KV cache, in an all-reduce, and in a head that is not quantized."""

_PER_GIGA_MS = 1e6
_PER_TERA_MS = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU: peaks from its data sheet, and the one number that is not from there."""

    name: str
    memory_gb_per_s: float
    bf16_tflops: float
    """Dense, without sparsity."""
    fp8_tflops: float
    """Dense, without sparsity."""
    link_gb_per_s: float
    """To the other GPUs, in one direction."""
    launch_ms_per_layer: float
    """Host time to start the kernels of one layer in eager mode: the free constant."""

    def __post_init__(self) -> None:
        check_str("gpu.name", self.name)
        for name in ("memory_gb_per_s", "bf16_tflops", "fp8_tflops", "link_gb_per_s"):
            check_number(f"gpu.{name}", getattr(self, name), 0.0, low_open=True)
        check_number("gpu.launch_ms_per_layer", self.launch_ms_per_layer, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A decoder with gated MLPs, in the words of its configuration.

    Norms and biases are left out: they are less than 0.1 % of the weights.
    """

    name: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    """Of the MLP, or of one expert."""
    num_heads: int
    num_kv_heads: int
    head_size: int
    vocab_size: int
    weight_bytes: float = 2.0
    """Of one weight of a layer; the head of the vocabulary is never quantized."""
    num_experts: int = 1
    num_active_experts: int = 1
    num_extra_weights: int = 0
    """Read once a pass beside the layers, as the projection in front of an EAGLE head."""
    fp8: bool = False
    """Whether matrix products run in FP8."""

    def __post_init__(self) -> None:
        check_str("model.name", self.name)
        for each in fields(self):
            if each.type == "int":
                low = 0 if each.name == "num_extra_weights" else 1
                check_int(f"model.{each.name}", getattr(self, each.name), low)
        check_int("model.num_active_experts", self.num_active_experts, 1, self.num_experts)
        check_number("model.weight_bytes", self.weight_bytes, 0.0, low_open=True)
        check_bool("model.fp8", self.fp8)

    @property
    def num_layer_weights(self) -> int:
        """Weights of all layers with all experts, and the extra ones."""
        return self._layer_weights(self.num_experts)

    @property
    def num_head_weights(self) -> int:
        """Weights of the head that gives logits; the input embedding has as many again."""
        return self.vocab_size * self.hidden_size

    @property
    def num_active_weights(self) -> int:
        """Weights that one token is multiplied with."""
        return self._layer_weights(self.num_active_experts) + self.num_head_weights

    @property
    def read_gb(self) -> float:
        """GB that a pass reads whatever its size, all experts included."""
        layers = self.num_layer_weights * self.weight_bytes
        return (layers + self.num_head_weights * ACTIVATION_BYTES) / 1e9

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values of one token."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_size * ACTIVATION_BYTES

    def _layer_weights(self, num_experts: int) -> int:
        attention = 2 * self.hidden_size * (self.num_heads + self.num_kv_heads) * self.head_size
        router = self.hidden_size * self.num_experts if self.num_experts > 1 else 0
        experts = num_experts * 3 * self.hidden_size * self.intermediate_size
        return self.num_layers * (attention + router + experts) + self.num_extra_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A model on tensor parallel GPUs, and what its passes cost there."""

    model: Model
    gpu: Gpu
    num_gpus: int = 1

    def __post_init__(self) -> None:
        check_int("placement.num_gpus", self.num_gpus, 1)
        if self.model.num_heads % self.num_gpus:
            raise ConfigError.bad_value(
                "placement.num_gpus", self.num_gpus, f"a divisor of {self.model.num_heads} heads"
            )

    @property
    def read_ms(self) -> float:
        """To read the weights once."""
        return self.model.read_gb * 1e3 / self._memory_gb_per_s

    @property
    def launch_ms(self) -> float:
        """For the host to start the kernels of a pass, which runs beside the reading."""
        return self.model.num_layers * self.gpu.launch_ms_per_layer

    @property
    def compute_ms_per_token(self) -> float:
        """Two FLOP for each active weight; attention's own are left out."""
        peak = self.gpu.fp8_tflops if self.model.fp8 else self.gpu.bf16_tflops
        flop = 2 * self.model.num_active_weights
        return flop / _PER_TERA_MS / (peak * COMPUTE_SHARE * self.num_gpus)

    @property
    def link_ms_per_token(self) -> float:
        """Two ring all-reduces a layer; their latency is part of the free constant."""
        rounds = 2 * (self.num_gpus - 1) / self.num_gpus
        sent = 2 * self.model.num_layers * rounds * self.model.hidden_size * ACTIVATION_BYTES
        return sent / _PER_GIGA_MS / (self.gpu.link_gb_per_s * LINK_SHARE)

    @property
    def kv_ms_per_token(self) -> float:
        """To read the keys and values of one token."""
        return self.model.kv_bytes_per_token / _PER_GIGA_MS / self._memory_gb_per_s

    @property
    def latency(self) -> LatencyModel:
        """The linear model, to three significant digits."""
        return LatencyModel(
            fixed_ms=_three_digits(max(self.launch_ms, self.read_ms)),
            per_token_ms=_three_digits(self.compute_ms_per_token + self.link_ms_per_token),
            per_kv_token_ms=_three_digits(self.kv_ms_per_token),
        )

    def least_ms(self, num_tokens: int, num_kv_tokens: int) -> float:
        """A pass in which reading, computing and launching overlap perfectly.

        `latency` adds the first two up. Hardware that keeps to the same shares of its peaks
        is between the two.
        """
        memory = self.read_ms + self.kv_ms_per_token * num_kv_tokens
        compute = self.compute_ms_per_token * num_tokens
        return max(memory, compute, self.launch_ms) + self.link_ms_per_token * num_tokens

    @property
    def _memory_gb_per_s(self) -> float:
        return self.gpu.memory_gb_per_s * MEMORY_SHARE * self.num_gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """t and V of one step in ms."""

    draft_ms: float
    verify_ms: float

    @property
    def sequential_ms(self) -> float:
        """One after the other."""
        return self.draft_ms + self.verify_ms

    @property
    def two_batch_ms(self) -> float:
        """One beside the other."""
        return max(self.draft_ms, self.verify_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A target and its draft model; passes are of requests with `context` tokens each."""

    target: Placement
    draft: Placement
    context: int = 256

    def times(self, num_requests: int, k: int) -> StepTimes:
        """t and V by the linear models: k draft passes, and k + 1 tokens verified a request."""
        kv = num_requests * self.context
        draft, target = self.draft.latency, self.target.latency
        return StepTimes(
            draft_ms=k * draft.pass_ms(num_requests, num_requests, kv),
            verify_ms=target.pass_ms(num_requests * (k + 1), num_requests, kv),
        )

    def least_times(self, num_requests: int, k: int) -> StepTimes:
        """t and V if nothing were added up that can overlap."""
        kv = num_requests * self.context
        return StepTimes(
            draft_ms=k * self.draft.least_ms(num_requests, kv),
            verify_ms=self.target.least_ms(num_requests * (k + 1), kv),
        )

    def gain_at_equal_batch(self, num_requests: int, k: int) -> float:
        """Throughput of two batches of `num_requests` over one such batch: the paper's way."""
        times = self.times(num_requests, k)
        return times.sequential_ms / times.two_batch_ms

    def gain_at_equal_in_flight(self, num_requests: int, k: int) -> float:
        """Throughput of two batches of half of `num_requests` over one batch of all."""
        check_int("num_requests", num_requests, 2)
        if num_requests % 2:
            raise ConfigError.bad_value("num_requests", num_requests, "an even number")
        half = self.times(num_requests // 2, k)
        return self.times(num_requests, k).sequential_ms / (2 * half.two_batch_ms)


def _three_digits(value: float) -> float:
    return float(f"{value:.3g}")
