"""From a target and prompts to a head on disk: texts, training, checkpoint, and going on again.

Owns the folder in which an unfinished course is kept, beside the one that it makes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from minedraft.errors import ConfigError
from minedraft.heads.eagle import default_layers, head_config, new_head
from minedraft.heads.kinds import Head, HeadKind
from minedraft.heads.medusa import medusa_config, new_medusa
from minedraft.heads.text import TargetText, write_texts
from minedraft.heads.train import HeadTraining, Progress, train_head
from minedraft.heads.vocabulary import check_draft_vocab, frequent_tokens
from minedraft.models.folders import atomic_folder, holds_recipe
from minedraft.models.plain_llama import PlainLlama

_TEXTS = "texts.pt"
_STATE = "state.pt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What to train on, and how.

    Of `prompts` (token ids) the last `num_held_out` are continued greedily and measured on; the
    others are continued at `temperature` and trained on.
    """

    target: Path
    kind: HeadKind
    prompts: Sequence[Sequence[int]]
    num_held_out: int
    num_tokens: int
    temperature: float
    training: HeadTraining
    draft_vocab: int | None = None
    """How many of the target's tokens the head may draft, the most frequent ones; None: all."""
    dtype: str = "float32"
    """Of the checkpoint, by its name in torch."""

    def __post_init__(self) -> None:
        if self.draft_vocab is not None and self.kind is not HeadKind.EAGLE3:
            raise ValueError(
                f"draft_vocab={self.draft_vocab} must be None for {self.kind.value}; vLLM loads "
                "a head with fewer tokens than its target for eagle3 alone"
            )
        if not 1 <= self.num_held_out < len(self.prompts):
            raise ValueError(
                f"num_held_out={self.num_held_out} must be from 1 to the number of prompts less "
                f"one, {len(self.prompts) - 1}"
            )
        if self.num_tokens <= self.training.depths:
            raise ValueError(
                f"num_tokens={self.num_tokens} must be above depths={self.training.depths}"
            )

    @property
    def recipe(self) -> dict[str, Any]:
        """What identifies its outcome."""
        return {
            "kind": f"{self.kind.value} head",
            "target": str(self.target.absolute()),
            "prompts": [list(each) for each in self.prompts],
            "num_held_out": self.num_held_out,
            "num_tokens": self.num_tokens,
            "temperature": self.temperature,
            "training": asdict(self.training),
            "draft_vocab": self.draft_vocab,
            "dtype": self.dtype,
        }


def run_course(
    course: Course,
    folder: Path,
    *,
    report_text: Callable[[int, int], None] = lambda *_: None,
    report: Callable[[Progress], None] = lambda _: None,
) -> Path:
    """Train, and write the head to `folder`; one that the same course finished is left alone.

    A course that was stopped goes on from what `FOLDER.training` holds.

    Raises:
        ConfigError: the target is no Llama, or `folder` or its training hold something else.
    """
    try:
        if holds_recipe(folder, course.recipe):
            return folder
        plain = PlainLlama.load(course.target)
        config = json.loads((course.target / "config.json").read_text())
        _check_lengths(course, int(config["max_position_embeddings"]))
        if course.draft_vocab is not None:
            check_draft_vocab(course.draft_vocab, len(plain.head))
        layers = default_layers(len(plain.layers)) if course.kind is HeadKind.EAGLE3 else ()
        kept = folder.with_name(folder.name + ".training")
        kept.mkdir(parents=True, exist_ok=True)
        texts = _texts(course, layers, kept / _TEXTS, report_text)
        cut = len(texts) - course.num_held_out
        head = train_head(
            _beginning(course, plain, len(layers), texts[:cut]),
            texts[:cut],
            texts[cut:],
            course.training,
            report=report,
            state=kept / _STATE,
        )
    except ValueError as error:
        raise ConfigError(f"minedraft: {error}") from error
    with atomic_folder(folder, course.recipe) as scratch:
        head.save(scratch, _config(course, config, layers))
    shutil.rmtree(kept)
    return folder


def _check_lengths(course: Course, most: int) -> None:
    longest = max(len(each) for each in course.prompts)
    if longest + course.num_tokens > most:
        raise ValueError(
            f"num_tokens={course.num_tokens} after a prompt of {longest} tokens is more than the "
            f"target's {most}; take shorter prompts or fewer tokens"
        )


def _beginning(
    course: Course, plain: PlainLlama, num_states: int, texts: Sequence[TargetText]
) -> Head:
    draft_ids = None
    if course.draft_vocab is not None:
        draft_ids = frequent_tokens(texts, course.draft_vocab, len(plain.head))
    if course.kind is HeadKind.MEDUSA:
        return new_medusa(course.training.depths, plain.head)
    return new_head(
        course.kind,
        plain.shape,
        embedding=plain.embedding,
        output=plain.head,
        first_layer=plain.layers[0],
        num_states=num_states,
        generator=torch.Generator().manual_seed(course.training.seed),
        draft_ids=draft_ids,
    )


def _config(course: Course, target: Mapping[str, Any], layers: Sequence[int]) -> dict[str, Any]:
    if course.kind is HeadKind.MEDUSA:
        return medusa_config(course.training.depths, target, dtype=course.dtype)
    return head_config(
        course.kind, target, layers, draft_vocab=course.draft_vocab, dtype=course.dtype
    )


def _texts(
    course: Course, layers: Sequence[int], path: Path, report: Callable[[int, int], None]
) -> list[TargetText]:
    """The target's texts, those of an earlier run if it wrote them all."""
    recipe = json.dumps(course.recipe, sort_keys=True)
    if path.exists():
        kept = torch.load(path, weights_only=True)
        if kept["recipe"] != recipe:
            raise ValueError(f"{str(path.parent)!r} is of another course; remove it")
        return [TargetText(**each) for each in kept["texts"]]
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(course.target, dtype=torch.float32).eval()
    total = len(course.prompts)
    cut = total - course.num_held_out
    texts: list[TargetText] = []
    for part, temperature in ((slice(cut), course.temperature), (slice(cut, None), 0.0)):
        for text in write_texts(
            model,
            course.prompts[part],
            num_tokens=course.num_tokens,
            layers=layers or None,
            temperature=temperature,
            seed=course.training.seed,
        ):
            texts.append(text)
            report(len(texts), total)
    scratch = path.with_name(path.name + ".new")
    plain = [
        {
            "ids": each.ids,
            "answer_at": each.answer_at,
            "states": each.states,
            "goals": each.goals,
            "best": each.best,
        }
        for each in texts
    ]
    torch.save({"recipe": recipe, "texts": plain}, scratch)
    scratch.replace(path)
    return texts
