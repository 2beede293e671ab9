"""Prompt lookup: what followed the last tokens when they came before, in the same request.

The drafts are those of vLLM's `ngram` method (`vllm.v1.spec_decode.ngram_proposer`): of the
n-grams of `prompt_lookup_min` to `prompt_lookup_max` tokens at the end of the text the longest
that came before, and of its places the first. An index of the shortest n-grams, which grows
with the text, takes the place of a search through all of it. Idea: Saxena, Prompt Lookup
Decoding, 2023.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

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


class _Index:
    """A text, and where each of its shortest n-grams ended, counted in tokens from its start."""

    def __init__(self, shortest: int) -> None:
        self.tokens: list[int] = []
        self._shortest = shortest
        self._ends: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)

    def extend(self, tokens: Sequence[int]) -> None:
        """Go on with `tokens`."""
        for token in tokens:
            self.tokens.append(token)
            if len(self.tokens) >= self._shortest:
                self._ends[self._last()].append(len(self.tokens))

    def cut(self, length: int) -> None:
        """Keep the first `length` tokens."""
        while len(self.tokens) > length:
            if len(self.tokens) >= self._shortest:
                self._ends[self._last()].pop()
            self.tokens.pop()

    def match(self, longest: int) -> int | None:
        """Where the longest n-gram at the end of the text, of at most `longest` tokens, ended
        first; None if not even a shortest one came before."""
        best, best_length = None, 0
        for end in self._ends.get(self._last(), [])[:-1]:
            length = self._common(end, longest)
            if length > best_length:
                best, best_length = end, length
            if length == longest:
                break
        return best

    def _common(self, end: int, longest: int) -> int:
        """Tokens, up to `longest`, in which the text up to `end` ends as the whole of it does."""
        tokens, length = self.tokens, self._shortest
        most = min(longest, end)
        while length < most and tokens[end - length - 1] == tokens[-length - 1]:
            length += 1
        return length

    def _last(self) -> tuple[int, ...]:
        return tuple(self.tokens[-self._shortest :])


class NgramDrafter:
    """Looks n-grams up in each request's own text; see the module."""

    def __init__(self, surroundings: Surroundings, options: NgramOptions) -> None:
        self._shortest, self._longest = options.lengths
        self._indexes: dict[str, _Index] = {}

    def needs(self) -> Needs:
        """Tokens alone."""
        return Needs.TOKENS

    def draft(self, texts: Sequence[Text]) -> list[list[int]]:
        """See Drafter.draft."""
        return [self._draft(text) for text in texts]

    def roll_back(self, request_id: str, length: int) -> None:
        """See Drafter.roll_back."""
        self._indexes[request_id].cut(length)

    def release(self, request_id: str) -> None:
        """See Drafter.release."""
        self._indexes.pop(request_id, None)

    def _draft(self, text: Text) -> list[int]:
        index = self._indexes.setdefault(text.request_id, _Index(self._shortest))
        index.extend(text.new_tokens)
        end = index.match(self._longest) if text.num_wanted else None
        return [] if end is None else index.tokens[end : end + text.num_wanted]
