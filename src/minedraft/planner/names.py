"""GPUs, models and acceptance by the names that a user gives.

Owns how a name is looked up; the numbers are `minedraft.hardware`'s and `bench.paper_settings`'.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from minedraft.bench.paper_settings import DATASET_OFFSETS, SETTINGS
from minedraft.errors import ConfigError
from minedraft.hardware import GPUS, MODELS, Gpu, Model, read_model
from minedraft.theory import Acceptance
from minedraft.validation import check_choice

T = TypeVar("T")


def find_gpu(field: str, name: str) -> Gpu:
    """A known GPU, whatever the case of its name; ConfigError lists all."""
    known = {**GPUS, **{gpu.name: gpu for gpu in GPUS.values()}}
    return _find(field, name, known, ", ".join(GPUS))


def find_model(field: str, name: str) -> Model:
    """A known model, with or without its owner in front, or one from a `config.json`.

    Raises:
        ConfigError: neither a known name nor a folder or file, or one that cannot be read.
    """
    # Unlike Path.exists it takes names that no file system does.
    if os.path.exists(name):
        return read_model(Path(name))
    allowed = f"{', '.join(MODELS)}, or a folder with a config.json"
    return _find(field, name.rpartition("/")[2], MODELS, allowed)


def known_acceptance(target: Model, draft: Model, dataset: str) -> Acceptance:
    """What docs/latency_models.md assumes for a pair of the paper on a data set.

    Raises:
        ConfigError: an unknown data set, or a pair that the paper does not have.
    """
    check_choice("dataset", dataset, DATASET_OFFSETS)
    for setting in SETTINGS.values():
        if (setting.pair.target.model, setting.pair.draft.model) == (target, draft):
            return Acceptance(setting.acceptance_of(dataset))
    pairs = ", ".join(
        f"{each.pair.target.model.name} with {each.pair.draft.model.name}"
        for each in SETTINGS.values()
    )
    raise ConfigError(
        f"minedraft: acceptance is missing, and none is assumed for {target.name} with "
        f"{draft.name}; allowed: one or more numbers from 0 to 1, or a pair of: {pairs}"
    )


def _find(field: str, name: str, known: Mapping[str, T], allowed: str) -> T:
    for each, value in known.items():
        if each.casefold() == name.strip().casefold():
            return value
    raise ConfigError.bad_value(field, name, allowed)
