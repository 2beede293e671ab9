"""One GPU by the published figures of its data sheet.

Owns the fields and their ranges; what a pass costs on it is `placement`'s.
"""

from __future__ import annotations

from dataclasses import dataclass

from minedraft.validation import check_number, check_str


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
