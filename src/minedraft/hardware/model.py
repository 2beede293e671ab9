"""One decoder by the numbers of its configuration.

Owns how many weights and bytes a pass takes in; how long that takes is `placement`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from minedraft.validation import check_bool, check_int, check_number, check_str

ACTIVATION_BYTES = 2
"""Of one number in the KV cache, in an all-reduce, and in a head that is not quantized."""


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
