"""Trained draft layers as one small file: matrices as 8-bit rows with a scale each, vectors as is.

Does not know where the layers come from or which target they serve.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

_ROWS = ".rows_int8"
_SCALE = ".row_scale"
_LARGEST = 127


def pack(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write `tensors` (matrices and vectors) to `path`, at about one byte a number."""
    packed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.dim() == 1:
            packed[name] = tensor.to(torch.bfloat16)
            continue
        scale = tensor.float().abs().amax(1, keepdim=True).clamp(min=1e-12) / _LARGEST
        packed[name + _ROWS] = (tensor.float() / scale).round().to(torch.int8)
        packed[name + _SCALE] = scale[:, 0]
    save_file(packed, path)
    path.chmod(0o644)


def unpack(path: Path) -> dict[str, Tensor]:
    """Read a file that `pack` wrote, as float32.

    Raises:
        ValueError: rows without a scale, so the file is no packed file.
    """
    packed = load_file(path)
    tensors: dict[str, Tensor] = {}
    for name, tensor in packed.items():
        if name.endswith(_ROWS):
            base = name.removesuffix(_ROWS)
            if base + _SCALE not in packed:
                raise ValueError(f"{path.name} has {name} without {base + _SCALE}")
            tensors[base] = tensor.float() * packed[base + _SCALE][:, None]
        elif not name.endswith(_SCALE):
            tensors[name] = tensor.float()
    return tensors
