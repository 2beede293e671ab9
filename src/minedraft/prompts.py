"""Prompt files: one JSON object per line, in the shapes that common data sets have.

Owns reading and its errors; it downloads nothing and knows no tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from minedraft.errors import ConfigError

_SHAPES = '{"prompt": "..."}, {"turns": ["...", ...]} or {"question": "..."}'
_ID_KEYS = ("id", "question_id", "task_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One prompt: its id in the file (its line, counted from 0, if it has none) and text."""

    id: str | int
    text: str


def read_prompts(path: str | Path, limit: int | None = None) -> list[Prompt]:
    """Read up to `limit` prompts; of several turns the first is taken. Empty lines are skipped.

    Raises:
        ConfigError: names file, line and what is wrong; also if there is no prompt at all.
    """
    try:
        # Not splitlines: it also splits at characters that JSON allows within a string.
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
    except (OSError, ValueError) as error:
        raise ConfigError(f"minedraft: cannot read prompts file {str(path)!r}: {error}") from error
    prompts: list[Prompt] = []
    for number, line in enumerate(lines):
        if limit is not None and len(prompts) >= limit:
            break
        if line.strip():
            prompts.append(_read_row(f"{path}, line {number + 1}", line, number))
    if not prompts:
        raise ConfigError(f"minedraft: prompts file {str(path)!r} has no prompt; rows: {_SHAPES}")
    return prompts


def _read_row(where: str, line: str, number: int) -> Prompt:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"minedraft: {where} is not JSON: {error}") from error
    if not isinstance(row, Mapping):
        raise ConfigError(f"minedraft: {where} is no JSON object; allowed: {_SHAPES}")
    return Prompt(id=_row_id(where, row, number), text=_row_text(where, row))


def _row_id(where: str, row: Mapping[str, object], number: int) -> str | int:
    found = next((row[key] for key in _ID_KEYS if isinstance(row.get(key), str | int)), number)
    assert isinstance(found, str | int)
    return _encodable(where, found) if isinstance(found, str) else found


def _row_text(where: str, row: Mapping[str, object]) -> str:
    turns = row.get("turns")
    first = turns[0] if isinstance(turns, list) and turns else None
    for text in (row.get("prompt"), first, row.get("question")):
        if isinstance(text, str) and text.strip():
            return _encodable(where, text)
    raise ConfigError(f"minedraft: {where} has no text to prompt with; allowed: {_SHAPES}")


def _encodable(where: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"minedraft: {where} has half of a surrogate pair at character {error.start}; "
            "allowed: text that UTF-8 can express"
        ) from error
    return text
