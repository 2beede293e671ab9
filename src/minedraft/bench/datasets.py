"""Which prompts a benchmark asks: a seeded sample of a data set, within length bounds.

Owns the choice of rows and the account of what was left out; it knows neither file formats
nor field names (``dataset_sources.py`` does), and no tokenizer.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields

from minedraft.bench.dataset_sources import (
    SOURCES,
    Rows,
    fetch_rows,
    read_rows,
    row_category,
    row_id,
)
from minedraft.errors import ConfigError
from minedraft.validation import as_mapping, check_choice, check_int, check_str, refuse_unknown

DATASET_NAMES = tuple(SOURCES)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSpec:
    """A data set and the sample to take of it. Bounds are in tokens and inclusive.

    `count` is the most prompts to take. With `path` None the rows come from the Hugging Face
    hub; ``jsonl`` and ``spec-bench`` need a path.
    """

    name: str
    path: str | None = None
    count: int = 64
    min_prompt_tokens: int | None = None
    max_prompt_tokens: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("dataset.name", self.name, DATASET_NAMES)
        check_str("dataset.path", self.path, optional=True)
        check_int("dataset.count", self.count, 1)
        check_int("dataset.min_prompt_tokens", self.min_prompt_tokens, 1, optional=True)
        least = self.min_prompt_tokens or 1
        check_int("dataset.max_prompt_tokens", self.max_prompt_tokens, least, optional=True)
        check_int("dataset.seed", self.seed, 0)
        if self.path is None and SOURCES[self.name].hub is None:
            raise ConfigError.bad_value(
                "dataset.path", None, f"a file, since dataset {self.name!r} is on no hub"
            )

    @classmethod
    def from_mapping(cls, table: object, where: str = "dataset") -> DatasetSpec:
        """Build from a mapping; ConfigError names the field, its value and what is allowed."""
        options = as_mapping(where, table)
        refuse_unknown(where, options, (field.name for field in fields(cls)))
        if "name" not in options:
            raise ConfigError(f"minedraft: {where} has no name; allowed: {', '.join(SOURCES)}")
        return cls(**options)  # type: ignore[arg-type]

    def to_mapping(self) -> dict[str, object]:
        """The plain mapping that `from_mapping` takes, with every field."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPrompt:
    """One prompt and the category that its row states.

    `id` is the row's own, or its number, counted from 0; one that is taken gets ``#number``.
    """

    id: str
    text: str
    category: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetCounts:
    """What became of the rows; the last four add up to `num_read`."""

    num_rows: int
    """Rows in the file or hub data set."""
    num_read: int
    """Rows looked at until there were enough prompts."""
    num_without_text: int
    num_too_short: int
    num_too_long: int
    num_kept: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedDataset:
    """The sampled prompts, in the order to ask them."""

    prompts: tuple[BenchPrompt, ...]
    counts: DatasetCounts


def load_dataset(spec: DatasetSpec, count_tokens: Callable[[str], int]) -> LoadedDataset:
    """Take up to `spec.count` prompts whose length, by `count_tokens`, is within the bounds.

    The order depends on the seed and the number of rows alone. A sample of fewer prompts is
    the beginning of a larger one with the same seed. Without bounds nothing is counted.

    Raises:
        ConfigError: the rows cannot be had, or none is left; fewer than `count` is no error.
    """
    source = SOURCES[spec.name]
    rows: Rows = fetch_rows(spec.name, source) if spec.path is None else read_rows(spec.path)
    sample = _Sample(spec, count_tokens)
    for index in _shuffled(len(rows), spec.seed):
        if len(sample.prompts) == spec.count:
            break
        row = rows[index]
        sample.add(index, source.text(row), row)
    counts = sample.counts(len(rows))
    if not sample.prompts:
        raise ConfigError(
            f"minedraft: no prompt is left of dataset {spec.name!r} "
            f"({spec.path or 'Hugging Face hub'}): {counts.num_rows} rows, "
            f"{counts.num_without_text} without text in {' or '.join(source.fields)}, "
            f"{counts.num_too_short} too short, {counts.num_too_long} too long"
        )
    return LoadedDataset(prompts=tuple(sample.prompts.values()), counts=counts)


class _Sample:
    """Prompts kept so far by id, and the tally of the rows that were not."""

    def __init__(self, spec: DatasetSpec, count_tokens: Callable[[str], int]) -> None:
        self.prompts: dict[str, BenchPrompt] = {}
        self._count_tokens = count_tokens
        self._least = spec.min_prompt_tokens or 0
        self._most = spec.max_prompt_tokens or math.inf
        self._bounded = (spec.min_prompt_tokens, spec.max_prompt_tokens) != (None, None)
        self._without_text = self._too_short = self._too_long = 0

    def add(self, index: int, text: str | None, row: object) -> None:
        if text is None:
            self._without_text += 1
            return
        length = self._count_tokens(text) if self._bounded else 0
        if length < self._least:
            self._too_short += 1
        elif length > self._most:
            self._too_long += 1
        else:
            name = row_id(row, index)
            while name in self.prompts:
                name += f"#{index}"
            self.prompts[name] = BenchPrompt(id=name, text=text, category=row_category(row))

    def counts(self, num_rows: int) -> DatasetCounts:
        left_out = self._without_text + self._too_short + self._too_long
        return DatasetCounts(
            num_rows=num_rows,
            num_read=left_out + len(self.prompts),
            num_without_text=self._without_text,
            num_too_short=self._too_short,
            num_too_long=self._too_long,
            num_kept=len(self.prompts),
        )


def _shuffled(num_rows: int, seed: int) -> list[int]:
    # Not random.shuffle: what it does with a seed may change between versions of Python.
    def key(index: int) -> bytes:
        return hashlib.sha256(f"{seed}/{index}".encode()).digest()

    return sorted(range(num_rows), key=key)
