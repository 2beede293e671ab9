"""Drafters of other people, as an engine finds them by name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minedraft.methods import Needs, Surroundings, Text
from minedraft.methods.ngram import NgramDrafter, NgramOptions


class Echo:
    """Says the last token again."""

    def __init__(self, surroundings: Surroundings, times: int = 1) -> None:
        if not isinstance(times, int):
            raise ValueError(f"times is {times!r}")
        self._times = times

    def needs(self) -> Needs:
        return Needs.TOKENS

    def draft(self, texts: Sequence[Text]) -> list[list[int]]:
        return [text.last(1) * min(self._times, text.num_wanted) for text in texts]

    def roll_back(self, request_id: str, length: int) -> None:
        pass

    def release(self, request_id: str) -> None:
        pass


class Silent(Echo):
    draft = None  # type: ignore[assignment]


class Greedy(Echo):
    def needs(self) -> Any:
        return "everything"


class NotingNgram(NgramDrafter):
    """minedraft's own, which writes down each text, what was wanted, and the draft."""

    def __init__(self, surroundings: Surroundings, path: str, **options: int) -> None:
        super().__init__(surroundings, NgramOptions(**options))
        self._path = Path(path)

    def draft(self, texts: Sequence[Text]) -> list[list[int]]:
        drafts = super().draft(texts)
        with self._path.open("a") as file:
            for text, draft in zip(texts, drafts, strict=True):
                tokens = [*text.committed, *text.guesses]
                file.write(json.dumps([tokens, text.num_wanted, draft]) + "\n")
        return drafts
