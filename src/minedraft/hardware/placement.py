"""How long a pass should take, from published figures of a GPU and a model's configuration.

Owns the arithmetic, and the three shares of a peak that it takes for granted; which GPUs and
models there are is `catalogue`'s, what it all means docs/latency_models.md. It measures nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from minedraft.emulation import LatencyModel
from minedraft.errors import ConfigError
from minedraft.hardware.gpu import Gpu
from minedraft.hardware.model import ACTIVATION_BYTES, Model
from minedraft.theory import Acceptance, LinearTimes, Load
from minedraft.validation import check_int, check_number

MEMORY_SHARE = 0.8
"""Of the memory's bandwidth, reached when weights and KV cache are read."""
COMPUTE_SHARE = 0.6
"""Of the dense tensor FLOPS, reached by matrix products of a few hundred rows."""
LINK_SHARE = 0.75
"""Of the link's bandwidth in one direction, reached by a ring all-reduce."""

_PER_GIGA_MS = 1e6
_PER_TERA_MS = 1e9
_NEVER = Acceptance((0.0,))
"""Nothing is accepted, so that no draft pass has a token to catch up with."""


def check_num_gpus(field: str, num_gpus: int, model: Model) -> None:
    """Raise ConfigError, which names `field`, unless so many GPUs can share the model's heads."""
    check_int(field, num_gpus, 1)
    if model.num_heads % num_gpus:
        raise ConfigError.bad_value(field, num_gpus, f"a divisor of {model.num_heads} heads")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A model on tensor parallel GPUs, and what its passes cost there."""

    model: Model
    gpu: Gpu
    num_gpus: int = 1

    def __post_init__(self) -> None:
        check_num_gpus("placement.num_gpus", self.num_gpus, self.model)

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

    def least_ms(self, num_tokens: int, num_kv_tokens: float) -> float:
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
    context: float = 256

    def __post_init__(self) -> None:
        check_number("pair.context", self.context, 0.0)

    @property
    def linear_times(self) -> LinearTimes:
        """The linear models of both."""
        return LinearTimes(
            target=self.target.latency, draft=self.draft.latency, context=self.context
        )

    def times(self, num_requests: int, k: int) -> StepTimes:
        """t and V by the linear models: k draft passes, and k + 1 tokens verified a request.

        Acceptance is left out: it cancels in ratios, but for a token to catch up with.
        """
        load = Load(times=self.linear_times, acceptance=_NEVER, in_flight=num_requests)
        return StepTimes(
            draft_ms=load.draft_ms(num_requests, k),
            verify_ms=load.step_ms(num_requests, num_requests * k),
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
