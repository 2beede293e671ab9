"""The command that trains the demo's draft: dialogues, healed start, distillation, packed file.

Does not hold the steps themselves; each has its module in `minedraft.models`.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from minedraft.models.corpus import ChatMarks, Dialogue, write_dialogues
from minedraft.models.derive import model_tensors
from minedraft.models.distill import Distillation, distil
from minedraft.models.healing import heal
from minedraft.models.packed import pack
from minedraft.models.plain_llama import PlainLlama
from minedraft.models.smollm2 import DRAFT_WEIGHTS, ensure_smollm2

LAYERS = (0, 1, 2, 3)
HEALING_TEXTS = 20
BATCH = 80
#: The rest of a batch has the model invent the user turn, so that topics are many.
PROMPTS_PER_BATCH = 20
MAX_LENGTH = 320
MAX_PROMPT = MAX_LENGTH // 2

logger = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train draft layers for SmolLM2-135M-Instruct on dialogues that it writes."""
    options = _parse(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    folder = ensure_smollm2(options.models / "smollm2")
    target = PlainLlama.load(folder)
    dialogues = _write(target, AutoTokenizer.from_pretrained(folder), options)
    logger.info("refitting layers %s", LAYERS)
    texts = [dialogue.ids for dialogue in dialogues[:HEALING_TEXTS]]
    start = heal(target, LAYERS, texts, ridge=1e-2)
    training = Distillation(epochs=options.epochs, dialogues_per_step=3, seed=options.seed)
    trained = distil(target, start, dialogues, training, report=_report)
    pack(model_tensors(trained), options.output)
    logger.info("wrote %s", options.output)
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="train-demo-draft", description=main.__doc__)
    parser.add_argument("prompts", type=Path, nargs="+", help="JSON lines: turns or question")
    parser.add_argument("--models", type=Path, default=Path("models"), help="for the target")
    parser.add_argument("--output", type=Path, default=Path(DRAFT_WEIGHTS), help="packed layers")
    parser.add_argument("--dialogues", type=int, default=256, help="at least as many are written")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.dialogues < 1:
        parser.error(f"--dialogues={options.dialogues} must be at least 1")
    return options


def _write(target: PlainLlama, tokenizer: Any, options: argparse.Namespace) -> list[Dialogue]:
    framed = [_frame(tokenizer, text) for path in options.prompts for text in _read(path)]
    prompts = [prompt for prompt in framed if len(prompt) <= MAX_PROMPT]
    random.Random(options.seed).shuffle(prompts)
    generator = torch.Generator().manual_seed(options.seed)
    dialogues: list[Dialogue] = []
    while len(dialogues) < options.dialogues:
        given = [prompts.pop() for _ in range(min(PROMPTS_PER_BATCH, len(prompts)))]
        batch = [*given, *[None] * (BATCH - len(given))]
        dialogues += write_dialogues(
            target,
            _marks(tokenizer),
            batch,
            max_length=MAX_LENGTH,
            temperature=0.9,
            generator=generator,
        )
        logger.info("%d of %d dialogues", len(dialogues), options.dialogues)
    # The first ones are refitted on, so given and invented turns must be mixed.
    random.Random(options.seed).shuffle(dialogues)
    return dialogues


def _read(path: Path) -> Iterator[str]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        row = json.loads(line)
        text = row["turns"][0] if row.get("turns") else row.get("question")
        if not isinstance(text, str):
            raise ValueError(f"{path.name}:{number} has neither turns nor a question")
        yield text


def _frame(tokenizer: Any, text: str) -> list[int]:
    message = [{"role": "user", "content": text}]
    framed = tokenizer.apply_chat_template(message, add_generation_prompt=True)
    ids: list[int] = framed["input_ids"]
    return ids


def _marks(tokenizer: Any) -> ChatMarks:
    """Take the ids around a user turn from what the chat template makes of a one-token turn."""
    (probe,) = tokenizer("X").input_ids
    framed = _frame(tokenizer, "X")
    at = len(framed) - 1 - framed[::-1].index(probe)
    return ChatMarks(opening=tuple(framed[:at]), bridge=tuple(framed[at + 2 :]), end=framed[at + 1])


def _report(step: int, steps: int, loss: float) -> None:
    if step % 20 == 0 or step == steps:
        logger.info("step %d of %d: loss %.3f", step, steps, loss)


if __name__ == "__main__":
    sys.exit(main())
