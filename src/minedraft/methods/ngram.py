"""Prompt lookup: what followed the last tokens when they came before, in the same request.

The drafts are those of vLLM's `ngram` method (`vllm.v1.spec_decode.ngram_proposer`): of the
n-grams of `prompt_lookup_min` to `prompt_lookup_max` tokens at the end of the text the longest
that came before, and of its places the first. An index that grows with the text takes the
place of a search through all of it. Idea: Saxena, Prompt Lookup Decoding, 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from minedraft.methods.base import Needs, Surroundings, Text
from minedraft.validation import check_int

_MOST_TOKENS = 64
_DEFAULT_TOKENS = 5
"""vLLM's, of both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramOptions:
    """Lengths of n-grams in tokens; one that is not given is the other, as in vLLM."""

    prompt_lookup_min: int | None = None
    prompt_lookup_max: int | None = None

    def __post_init__(self) -> None:
        low, high = self.prompt_lookup_min, self.prompt_lookup_max
        where = "draft_options.prompt_lookup"
        check_int(f"{where}_max", high, 1, _MOST_TOKENS, optional=True)
        check_int(f"{where}_min", low, 1, high or _MOST_TOKENS, optional=True)

    @property
    def lengths(self) -> tuple[int, int]:
        """The shortest and the longest."""
        low, high = self.prompt_lookup_min, self.prompt_lookup_max
        return (
            low or high or _DEFAULT_TOKENS,
            high or low or _DEFAULT_TOKENS,
        )


@dataclass(slots=True)
class _Index:
    """Where each n-gram of a text first ended, counted in tokens from its start."""

    tokens: list[int] = field(default_factory=list)
    ends: dict[tuple[int, ...], int] = field(default_factory=dict)


class NgramDrafter:
    """Looks n-grams up in each request's own text; see the module."""

    def __init__(self, surroundings: Surroundings, options: NgramOptions) -> None:
        self._shortest, self._longest = options.lengths
        self._max_model_len = surroundings.max_model_len
        self._indexes: dict[str, _Index] = {}

    def needs(self) -> Needs:
        """Tokens alone."""
        return Needs.TOKENS

    def draft(self, texts: Sequence[Text]) -> list[list[int]]:
        """See Drafter.draft."""
        return [self._draft(text) for text in texts]

    def roll_back(self, request_id: str, length: int) -> None:
        """See Drafter.roll_back."""
        index = self._indexes[request_id]
        for end in range(len(index.tokens), length, -1):
            for ngram in self._ngrams_at(index.tokens, end):
                if index.ends[ngram] == end:
                    del index.ends[ngram]
            index.tokens.pop()

    def release(self, request_id: str) -> None:
        """See Drafter.release."""
        self._indexes.pop(request_id, None)

    def _draft(self, text: Text) -> list[int]:
        index = self._indexes.setdefault(text.request_id, _Index())
        for token in text.new_tokens:
            index.tokens.append(token)
            for ngram in self._ngrams_at(index.tokens, len(index.tokens)):
                index.ends.setdefault(ngram, len(index.tokens))
        wanted = min(text.num_wanted, self._max_model_len - len(index.tokens))
        return self._continuation(index, wanted) if wanted > 0 else []

    def _continuation(self, index: _Index, num_wanted: int) -> list[int]:
        length = len(index.tokens)
        for ngram in self._ngrams_at(index.tokens, length):
            end = index.ends[ngram]
            if end < length:
                return index.tokens[end : end + num_wanted]
        return []

    def _ngrams_at(self, tokens: Sequence[int], end: int) -> list[tuple[int, ...]]:
        """Those that end there, the longest first."""
        longest = min(self._longest, end)
        return [tuple(tokens[end - n : end]) for n in range(longest, self._shortest - 1, -1)]
