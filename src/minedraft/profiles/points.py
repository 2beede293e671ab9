"""One measured size of a pass, and how long passes of that size took.

Owns the fields and their ranges; who measures them is others' business.
"""

from __future__ import annotations

import msgspec

from minedraft.errors import ConfigError
from minedraft.validation import check_int, check_number

_MOST = 1e9


class Point(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Passes of one size; sizes are means over these passes, times are in ms.

    Raises:
        ConfigError: names the field, its value and what is allowed.
    """

    num_requests: float
    num_tokens: float
    """Fed to the model, of all requests together: at least one each."""
    context: float
    """Tokens of one request in the KV cache after the pass."""
    median_ms: float
    low_ms: float
    """Lower quartile."""
    high_ms: float
    """Upper quartile."""
    num_samples: int

    def __post_init__(self) -> None:
        check_number("num_requests", self.num_requests, 1, _MOST)
        check_number("num_tokens", self.num_tokens, self.num_requests, _MOST)
        check_number("context", self.context, 1, _MOST)
        check_number("median_ms", self.median_ms, 0.0, _MOST, low_open=True)
        check_number("low_ms", self.low_ms, 0.0, self.median_ms, low_open=True)
        check_number("high_ms", self.high_ms, self.median_ms, _MOST)
        check_int("num_samples", self.num_samples, 1)
        # More tokens than the cache holds after them cannot have been fed.
        if self.num_tokens > self.num_kv_tokens * (1 + 1e-9):
            raise ConfigError.bad_value(
                "num_tokens",
                self.num_tokens,
                f"at most num_requests * context = {self.num_kv_tokens:g}",
            )

    @property
    def num_kv_tokens(self) -> float:
        """Tokens of all requests in the KV cache after the pass."""
        return self.num_requests * self.context
