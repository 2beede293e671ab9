"""Training text that a chat model writes itself: sampled user turns and greedy answers, in batches.

Does not choose prompts and trains nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from minedraft.models.plain_llama import KeyValues, PlainLlama


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMarks:
    """Ids that frame a chat, as the chat template writes them.

    `opening` goes before a user turn, `bridge` between a user turn's end and the answer, and
    `end` closes any turn.
    """

    opening: tuple[int, ...]
    bridge: tuple[int, ...]
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialogue:
    """One dialogue's ids; the answer starts at `answer_at` (the length, if none was reached).

    `states` are the model's states before its last norm, float16, for every id but the last.
    """

    ids: tuple[int, ...]
    answer_at: int
    states: Tensor


@dataclass(slots=True, kw_only=True)
class _Row:
    ids: list[int]
    known: list[int]
    answer_at: int | None
    states: list[Tensor]

    @property
    def samples(self) -> bool:
        """Whether the next id is drawn, not given and not greedy."""
        return not self.known and self.answer_at is None


@torch.inference_mode()
def write_dialogues(
    model: PlainLlama,
    marks: ChatMarks,
    prompts: Sequence[Sequence[int] | None],
    *,
    max_length: int,
    temperature: float,
    generator: torch.Generator,
) -> list[Dialogue]:
    """Write one dialogue per prompt, all as one batch; `None` has the model invent the user turn.

    A prompt is a whole framed prompt, up to where the answer starts. User turns are sampled at
    `temperature`, answers are greedy. A dialogue ends with its answer or at `max_length` ids.
    """
    rows = [_start(marks, prompt) for prompt in prompts]
    depth = range(len(model.layers))
    caches = [KeyValues.empty(model.shape, len(rows), max_length) for _ in depth]
    alive = list(range(len(rows)))
    for position in range(max_length - 1):
        ids = torch.tensor([[rows[row].ids[position]] for row in alive])
        states = model.hidden(ids, layers=depth, caches=caches)[:, -1]
        drawing = torch.tensor([rows[row].samples for row in alive])
        chosen = _choose(model.logits(states), drawing, temperature, generator)
        for row, state, token in zip(alive, states.half(), chosen, strict=True):
            rows[row].states.append(state)
            _advance(rows[row], marks, token)
        kept = [slot for slot, row in enumerate(alive) if not _finished(rows[row], marks)]
        if not kept:
            break
        if len(kept) < len(alive):
            for cache in caches:
                cache.keep_rows(torch.tensor(kept))
            alive = [alive[slot] for slot in kept]
    return [_dialogue(row) for row in rows]


def _choose(
    logits: Tensor, drawing: Tensor, temperature: float, generator: torch.Generator
) -> list[int]:
    chosen = logits.argmax(-1)
    if drawing.any():
        chances = torch.softmax(logits[drawing] / temperature, -1)
        chosen[drawing] = torch.multinomial(chances, 1, generator=generator)[:, 0]
    tokens: list[int] = chosen.tolist()
    return tokens


def _start(marks: ChatMarks, prompt: Sequence[int] | None) -> _Row:
    known = list(marks.opening if prompt is None else prompt)
    answer_at = None if prompt is None else len(known)
    return _Row(ids=known[:1], known=known[1:], answer_at=answer_at, states=[])


def _advance(row: _Row, marks: ChatMarks, token: int) -> None:
    sampled = row.samples
    row.ids.append(row.known.pop(0) if row.known else token)
    if sampled and token == marks.end:
        row.known = list(marks.bridge)
        row.answer_at = len(row.ids) + len(marks.bridge)


def _finished(row: _Row, marks: ChatMarks) -> bool:
    answered = row.answer_at is not None and len(row.ids) > row.answer_at
    return answered and row.ids[-1] == marks.end


def _dialogue(row: _Row) -> Dialogue:
    length = len(row.ids)
    answer_at = length if row.answer_at is None else min(row.answer_at, length)
    return Dialogue(ids=tuple(row.ids), answer_at=answer_at, states=torch.stack(row.states))
