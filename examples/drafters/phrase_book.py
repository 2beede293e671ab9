"""A drafter that says what most often followed the last two tokens, in all requests so far."""

from __future__ import annotations

from minedraft import Needs, Surroundings, Text

Phrase = tuple[int, ...]


class PhraseBook:
    """Counts phrases of two and three tokens; at `max_entries` phrases it admits no new ones."""

    def __init__(self, surroundings: Surroundings, max_entries: int = 100_000) -> None:
        if max_entries < 1:
            raise ValueError(f"max_entries must be at least 1, not {max_entries}")
        self._max_entries = max_entries
        self._counts: dict[Phrase, int] = {}
        self._favourites: dict[Phrase, Phrase] = {}  # the most frequent phrase that starts so
        self._num_counted: dict[str, int] = {}  # committed tokens taken in, by request

    def needs(self) -> Needs:
        return Needs.TOKENS

    def draft(self, texts: list[Text]) -> list[list[int]]:
        for text in texts:
            self._learn(text)
        return [self._continue(text.last(2), text.num_wanted) for text in texts]

    def roll_back(self, request_id: str, length: int) -> None:
        """Nothing to forget: guesses are counted only once the target has committed them."""

    def release(self, request_id: str) -> None:
        """Forgets how far the request was read; what it taught stays."""
        self._num_counted.pop(request_id, None)

    def _learn(self, text: Text) -> None:
        """Counts the phrases that end in a newly committed token."""
        tokens = text.committed
        for end in range(self._num_counted.get(text.request_id, 0) + 1, len(tokens) + 1):
            for size in range(2, min(end, 3) + 1):
                self._count(tuple(tokens[end - size : end]))
        self._num_counted[text.request_id] = len(tokens)

    def _count(self, phrase: Phrase) -> None:
        if phrase not in self._counts and len(self._counts) >= self._max_entries:
            return
        self._counts[phrase] = self._counts.get(phrase, 0) + 1
        favourite = self._favourites.setdefault(phrase[:-1], phrase)
        if self._counts[phrase] > self._counts[favourite]:
            self._favourites[phrase[:-1]] = phrase

    def _continue(self, tail: list[int], num_wanted: int) -> list[int]:
        """Walks from favourite to favourite; ends where neither two tokens nor one are known."""
        walk, known = list(tail), self._favourites.get
        for _ in range(num_wanted):
            phrase = known(tuple(walk[-2:])) or known(tuple(walk[-1:]))
            if phrase is None:
                break
            walk.append(phrase[-1])
        return walk[len(tail) :]
