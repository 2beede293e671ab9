"""What drafts in the engines of fuzzed runs: a draft model, a head, or a method without either.

Owns minedraft's options for each, and the made-up heads below a lab's folder.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from engines import draft_options
from fuzzing.plan import VOCAB, EngineSettings
from heads import make_eagle, make_eagle3, make_medusa
from minedraft.methods import HEADS, MEDUSA, MODEL
from minedraft.models.made_up import MadeUpPair

MOST_HEADS = 5
"""Tokens that Medusa's heads guess, and the most drafts of any engine here."""

_WITHOUT_A_MODEL: dict[str, dict[str, Any]] = {
    "ngram": {
        "draft_method": "ngram",
        "draft_options": {"prompt_lookup_min": 1, "prompt_lookup_max": 3},
    },
    "suffix": {"draft_method": "suffix"},
}
METHODS = (*HEADS, *_WITHOUT_A_MODEL)
"""All but a draft model."""
_TIGHT_DRAFT_GIB = 0.00012


def drafter_options(settings: EngineSettings, pair: MadeUpPair, folder: Path) -> dict[str, Any]:
    """minedraft's options for the drafter of an engine with these settings."""
    if settings.method in _WITHOUT_A_MODEL:
        return _WITHOUT_A_MODEL[settings.method]
    options = draft_options(pair)
    del options["num_speculative_tokens"]
    if settings.drawn:
        options["draft_sample_method"] = "probabilistic"
    if settings.tight_draft_kv:
        options["draft_kv_cache_gib"] = _TIGHT_DRAFT_GIB
    if settings.method == MODEL:
        return options
    options |= {
        "draft_method": settings.method,
        "draft_model": str(made_up_head(settings.method, pair, folder / settings.pair)),
    }
    if settings.method == MEDUSA:
        del options["draft_kv_cache_gib"], options["draft_block_size"]
    return options


def made_up_head(method: str, pair: MadeUpPair, folder: Path) -> Path:
    """The head of that method below `folder`, made if it is not there."""
    place = folder / method
    if (place / "config.json").exists():
        return place
    make = {"eagle": make_eagle, "eagle3": make_eagle3, MEDUSA: _medusa}[method]
    return make(pair.target, place)


def _medusa(target: Path, folder: Path) -> Path:
    import torch
    from transformers import AutoModelForCausalLM

    from minedraft.heads import write_texts

    rng = random.Random("minedraft medusa")
    prompts = [[rng.randrange(3, VOCAB) for _ in range(6)] for _ in range(16)]
    model: Any = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).eval()
    texts = write_texts(model, prompts, num_tokens=60, layers=None, temperature=0.0, seed=1)
    return make_medusa(target, folder, list(texts), MOST_HEADS)
