"""Where the rows of a data set come from, and where a row keeps its prompt.

Owns file formats, hub names and field names; it neither filters nor samples.
"""

from __future__ import annotations

import importlib
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Protocol

from minedraft.errors import ConfigError

_HUMANS = ("human", "user")
_ID_KEYS = ("id", "question_id", "task_id", "prompt_id")
_CATEGORY_KEYS = ("category", "domain")
_FORMATS = "a JSON array, or one JSON object per line"
_BETWEEN_ITEMS = re.compile(r"[\s,]*")


class Rows(Protocol):
    """Rows by number, as a list or the package `datasets` has them; each is a mapping."""

    def __len__(self) -> int:
        """How many there are."""

    def __getitem__(self, index: int, /) -> object:
        """Row `index`, counted from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSet:
    """A data set on the Hugging Face hub, in the words of ``datasets.load_dataset``."""

    repo: str
    split: str
    config: str | None = None
    file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One data set: fields of a row that may hold the prompt, best first, and its hub name.

    A field holds a text, a list of turns, or a conversation; of several turns the first
    counts, and of a conversation the turn with which a human opens it.
    """

    fields: tuple[str, ...]
    hub: HubSet | None = None
    hint: str = ""
    """What else to say to somebody who has no file."""

    def text(self, row: object) -> str | None:
        """The prompt of `row`; None if there is none."""
        if not isinstance(row, Mapping):
            return None
        return next(filter(None, (_first_text(row.get(field)) for field in self.fields)), None)


SOURCES: Mapping[str, Source] = {
    "sharegpt": Source(
        fields=("conversations",),
        hub=HubSet(
            repo="anon8231489123/ShareGPT_Vicuna_unfiltered",
            split="train",
            file="ShareGPT_V3_unfiltered_cleaned_split.json",
        ),
    ),
    "arena": Source(
        fields=("conversation_a", "prompt", "conversations"),
        hub=HubSet(repo="lmsys/chatbot_arena_conversations", split="train"),
        hint="its terms must be accepted on the hub first",
    ),
    "tough": Source(
        fields=("question", "prompt", "conversations"),
        hub=HubSet(repo="YAV-AI/llm-domain-specific-tough-questions", split="train"),
    ),
    "spec-bench": Source(
        fields=("turns", "conversations"),
        hint="the file is data/spec_bench/question.jsonl in the repository hemingkx/Spec-Bench",
    ),
    "mt-bench": Source(
        fields=("turns", "prompt"),
        hub=HubSet(repo="philschmid/mt-bench", split="train"),
    ),
    "gsm8k": Source(
        fields=("question",),
        hub=HubSet(repo="openai/gsm8k", split="test", config="main"),
    ),
    "humaneval": Source(
        fields=("prompt",),
        hub=HubSet(repo="openai/openai_humaneval", split="test"),
    ),
    "jsonl": Source(fields=("prompt", "turns", "question")),
}
"""Every data set by its name. The paper's own files (``conversations``) are read too."""


def row_id(row: object, index: int) -> str:
    """The row's own id as text; `index` if it has none."""
    found = _first_of(row, _ID_KEYS, str | int)
    return str(index if found is None else found)


def row_category(row: object) -> str | None:
    """The category that the row states; None if it states none."""
    found = _first_of(row, _CATEGORY_KEYS, str)
    return None if found is None else str(found)


def read_rows(path: str) -> list[object]:
    """Read a file of rows: a JSON array, or one JSON object per line.

    Of an array that was cut off, the whole rows are kept, with a logged warning.

    Raises:
        ConfigError: the file cannot be read, or a row is not JSON; names file and place.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"minedraft: cannot read dataset.path = {path!r}: {error}") from error
    is_array = text.lstrip().startswith("[")
    return list(_array_items(path, text) if is_array else _lines(path, text))


def fetch_rows(name: str, source: Source) -> Rows:
    """Get the rows of `source` by the package `datasets`, from its cache or the hub.

    Raises:
        ConfigError: there is no such hub data set, the package is not installed, or it fails;
            says what to do instead.
    """
    hint = f"; {source.hint}" if source.hint else ""
    if source.hub is None:
        raise ConfigError(f"minedraft: dataset {name!r} needs dataset.path ({_FORMATS}){hint}")
    advice = f"or give dataset.path ({_FORMATS}){hint}"
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        raise ConfigError(
            f"minedraft: dataset {name!r} is on the Hugging Face hub, but the package `datasets` "
            f"cannot be imported: pip install datasets, {advice}"
        ) from error
    hub = source.hub
    more = {} if hub.file is None else {"data_files": hub.file}
    try:
        rows: Rows = datasets.load_dataset(hub.repo, name=hub.config, split=hub.split, **more)
    except Exception as error:  # what it raises depends on hub, network and version
        raise ConfigError(
            f"minedraft: cannot load dataset {name!r} ({hub.repo} on the Hugging Face hub): "
            f"{type(error).__name__}: {error}; check the network and your access, {advice}"
        ) from error
    return rows


def _first_text(value: object) -> str | None:
    if isinstance(value, str):
        return value if value.strip() else None
    if not isinstance(value, Sequence) or not value:
        return None
    return _opening(value) if isinstance(value[0], Mapping) else _first_text(value[0])


def _opening(turns: Sequence[object]) -> str | None:
    """The first turn of a conversation, system prompts aside, if a human speaks it."""
    for turn in turns:
        speaker = _first_of(turn, ("from", "role"), str)
        if speaker != "system":
            text = _first_of(turn, ("value", "content"), str)
            return _first_text(text) if speaker in _HUMANS else None
    return None


def _first_of(row: object, keys: Sequence[str], kind: type | UnionType) -> object:
    if not isinstance(row, Mapping):
        return None
    return next((row[key] for key in keys if isinstance(row.get(key), kind)), None)


def _lines(path: str, text: str) -> Iterator[object]:
    # Not splitlines(): a JSON string may hold U+2028 and its like unescaped.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield _read_line(f"{path}, line {number}", line)


def _read_line(where: str, line: str) -> object:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ConfigError(f"minedraft: {where} is not JSON: {error}; allowed: {_FORMATS}") from None
    if not isinstance(row, Mapping):
        raise ConfigError(f"minedraft: {where} is no JSON object; allowed: {_FORMATS}")
    return row


def _array_items(path: str, text: str) -> Iterator[object]:
    """Yield the items one by one, so that a cut-off end costs one item and not the file."""
    decoder = json.JSONDecoder()
    position, count = text.index("[") + 1, 0
    while True:
        position = _skip(text, position)
        if text[position : position + 1] == "]":
            return
        try:
            item, position = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            if count == 0 or not _ran_out(text, error):
                raise ConfigError(
                    f"minedraft: {path}, row {count + 1} is not JSON: {error}; allowed: {_FORMATS}"
                ) from None
            logging.getLogger(__name__).warning(
                "minedraft: %s is cut off; kept its %d whole rows", path, count
            )
            return
        count += 1
        yield item


def _ran_out(text: str, error: json.JSONDecodeError) -> bool:
    """Whether the decoder gave up at the end of the text, or in a string that has no end."""
    longest_unit = len("\\uffff")
    return error.msg.startswith("Unterminated string") or error.pos > len(text) - longest_unit


def _skip(text: str, position: int) -> int:
    found = _BETWEEN_ITEMS.match(text, position)
    assert found is not None
    return found.end()
