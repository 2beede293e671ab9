"""Model folders on disk: atomic creation, the recipe file that identifies a folder, weight files.

Does not know how any model is made.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

RECIPE_FILE = "recipe.json"
WEIGHTS_FILE = "model.safetensors"


def holds_recipe(folder: Path, recipe: Mapping[str, Any]) -> bool:
    """Tell whether `folder` was finished with exactly this recipe.

    Raises:
        ValueError: `folder` has content that was made otherwise, so that writing would destroy it.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False
    recipe_path = folder / RECIPE_FILE
    if not recipe_path.is_file():
        raise ValueError(
            f"folder={str(folder)!r} has content but no {RECIPE_FILE}; use a new folder"
        )
    found = json.loads(recipe_path.read_text())
    if found != json.loads(json.dumps(recipe)):
        raise ValueError(
            f"folder={str(folder)!r} holds another recipe: {found!r}, wanted {dict(recipe)!r}; "
            "remove it or use a new folder"
        )
    return True


@contextmanager
def atomic_folder(folder: Path, recipe: Mapping[str, Any]) -> Iterator[Path]:
    """Yield a scratch folder that becomes `folder`, with its recipe, if the block succeeds.

    When another process finishes the same recipe first, its folder stays and ours is dropped.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        # mkdtemp makes it private, which would outlive the rename.
        scratch.chmod(0o755)
        yield scratch
        (scratch / RECIPE_FILE).write_text(json.dumps(recipe, indent=1, sort_keys=True) + "\n")
        try:
            os.rename(scratch, folder)
        except OSError:
            if not holds_recipe(folder, recipe):
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def save_weights(folder: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write `tensors` as the one weight file of the model in `folder`."""
    path = folder / WEIGHTS_FILE
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()},
        path,
        metadata={"format": "pt"},
    )
    path.chmod(0o644)


def load_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Read every tensor of the model in `folder`, on the CPU, in the stored type.

    Raises:
        ValueError: `folder` has no safetensors file.
    """
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise ValueError(f"folder={str(folder)!r} has no *.safetensors file")
    tensors: dict[str, torch.Tensor] = {}
    for path in paths:
        tensors.update(load_file(path))
    return tensors
