"""Draft models made from a Llama target: fewer layers, the same tokenizer, embedding and head.

Does not train (`minedraft.models.distill` does); trained layers come in as a packed file.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from minedraft.models.folders import (
    RECIPE_FILE,
    WEIGHTS_FILE,
    atomic_folder,
    holds_recipe,
    load_weights,
    save_weights,
)
from minedraft.models.healing import heal, kept_layers
from minedraft.models.packed import unpack
from minedraft.models.plain_llama import PlainLlama

_FORMAT = 1
_SHARED = ("model.embed_tokens.weight", "lm_head.weight", "model.norm.weight")


class Recipe(Protocol):
    """A way to get a draft's layers."""

    def identity(self) -> Mapping[str, Any]:
        """What tells this recipe from others, as JSON."""
        ...

    def weights(self, target_folder: Path) -> Mapping[str, Tensor]:
        """The layers' tensors by their names in a model file; other tensors replace the target's.

        Raises:
            ValueError: the recipe does not fit the target.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepLayers:
    """The named layers of the target, as they are."""

    layers: tuple[int, ...]

    def identity(self) -> Mapping[str, Any]:
        """See `Recipe`."""
        return {"recipe": "keep layers", "layers": list(self.layers)}

    def weights(self, target_folder: Path) -> Mapping[str, Tensor]:
        """See `Recipe`."""
        return model_tensors(kept_layers(PlainLlama.load(target_folder), self.layers))


@dataclass(frozen=True, slots=True, kw_only=True)
class HealLayers:
    """The named layers, refitted by least squares on `texts` (token ids the target is good at)."""

    layers: tuple[int, ...]
    texts: tuple[tuple[int, ...], ...]
    ridge: float = 1e-2

    def identity(self) -> Mapping[str, Any]:
        """See `Recipe`."""
        texts = hashlib.sha256(json.dumps(self.texts).encode()).hexdigest()
        kept = list(self.layers)
        return {"recipe": "heal layers", "layers": kept, "texts": texts, "ridge": self.ridge}

    def weights(self, target_folder: Path) -> Mapping[str, Tensor]:
        """See `Recipe`."""
        target = PlainLlama.load(target_folder)
        return model_tensors(heal(target, self.layers, self.texts, ridge=self.ridge))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedLayers:
    """Layers and last norm from a file that `minedraft.models.packed.pack` wrote."""

    path: Path

    def identity(self) -> Mapping[str, Any]:
        """See `Recipe`."""
        return {"recipe": "trained layers", "file": _sha256(self.path)}

    def weights(self, target_folder: Path) -> Mapping[str, Tensor]:
        """See `Recipe`."""
        return unpack(self.path)


def derive_draft(target_folder: Path | str, out_folder: Path | str, *, recipe: Recipe) -> Path:
    """Write a draft of the Llama in `target_folder` into `out_folder`, unless it is there.

    Tokenizer files are copied and weights have the type of the target's, so that a serving
    engine takes the two as a pair.

    Raises:
        ValueError: the target is no plain Llama, the recipe does not fit it, or `out_folder`
            holds something else.
    """
    target, out = Path(target_folder).absolute(), Path(out_folder).absolute()
    if not (target / "config.json").is_file():
        raise ValueError(f"target_folder={str(target)!r} has no config.json")
    digests = {path.name: _sha256(path) for path in sorted(target.glob("*.safetensors"))}
    identity = {
        "kind": "derived draft",
        "format": _FORMAT,
        "target": digests,
        **recipe.identity(),
    }
    if not holds_recipe(out, identity):
        with atomic_folder(out, identity) as scratch:
            _write(target, scratch, recipe)
    return out


def model_tensors(model: PlainLlama) -> dict[str, Tensor]:
    """Name the layers' tensors and the last norm of `model` as a model file does."""
    tensors = {"model.norm.weight": model.norm}
    for index, layer in enumerate(model.layers):
        for name, tensor in layer.items():
            tensors[f"model.layers.{index}.{name}.weight"] = tensor
    return tensors


def _write(target: Path, out: Path, recipe: Recipe) -> None:
    theirs = load_weights(target)
    ours = recipe.weights(target)
    dtype = theirs[_SHARED[0]].dtype
    _check_shapes(ours, theirs)
    shared = {name: theirs[name] for name in _SHARED if name in theirs}
    save_weights(out, shared | {name: tensor.to(dtype) for name, tensor in ours.items()})
    config = json.loads((target / "config.json").read_text())
    config["num_hidden_layers"] = _depth(ours)
    (out / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    for path in sorted(target.iterdir()):
        weights = path.suffix == ".safetensors" or path.name.startswith(WEIGHTS_FILE)
        if path.is_file() and not weights and path.name not in ("config.json", RECIPE_FILE):
            shutil.copyfile(path, out / path.name)


def _check_shapes(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> None:
    for name, tensor in ours.items():
        found, wanted = tuple(tensor.shape), _shape(theirs, name)
        if found != wanted:
            raise ValueError(f"recipe gives {name} of shape {found}; the target needs {wanted}")


def _shape(theirs: Mapping[str, Tensor], name: str) -> tuple[int, ...] | None:
    parts = name.split(".")
    if parts[1] == "layers":
        parts[2] = "0"
    tensor = theirs.get(".".join(parts))
    return None if tensor is None else tuple(tensor.shape)


def _depth(names: Sequence[str] | Mapping[str, Tensor]) -> int:
    return len({name.split(".")[2] for name in names if name.startswith("model.layers.")})


def _sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
