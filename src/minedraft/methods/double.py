"""A drafter for tests: right as often as told, and strict about what it is given.

Owns no text: what the target would say comes from the test.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from minedraft.methods.base import Needs, Surroundings, Text


class DoubleDrafter:
    """Drafts what `target(tokens, count)` says comes next, with errors.

    The draft at position i is right with probability `acceptance[i]` if those before it were;
    the last entry holds for all that follow. A wrong one is the right one plus 1. `most` is the
    most tokens of one draft; None: as many as are wanted.

    Raises:
        AssertionError: calls do not keep the promises of `Drafter` and `Text`.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        target: Callable[[Sequence[int], int], list[int]],
        *,
        acceptance: Sequence[float] = (1.0,),
        most: int | None = None,
    ) -> None:
        self._surroundings = surroundings
        self._target = target
        self._acceptance = tuple(acceptance)
        self._most = most
        self._coins = random.Random(surroundings.seed)
        self._known: dict[str, list[int]] = {}

    @property
    def texts(self) -> dict[str, list[int]]:
        """Tokens of the requests that it knows, by request id."""
        return {name: list(tokens) for name, tokens in self._known.items()}

    def needs(self) -> Needs:
        """Tokens alone."""
        return Needs.TOKENS

    def draft(self, texts: Sequence[Text]) -> list[list[int]]:
        """See Drafter.draft."""
        assert 0 < len(texts) <= self._surroundings.max_num_seqs
        assert len({text.request_id for text in texts}) == len(texts)
        return [self._draft(text) for text in texts]

    def roll_back(self, request_id: str, length: int) -> None:
        """See Drafter.roll_back."""
        known = self._known[request_id]
        assert 0 <= length < len(known), "nothing to roll back"
        del known[length:]

    def release(self, request_id: str) -> None:
        """See Drafter.release."""
        self._known.pop(request_id, None)

    def _draft(self, text: Text) -> list[int]:
        known = self._known.setdefault(text.request_id, [])
        assert text.num_known == len(known)
        known += text.new_tokens
        assert known == [*text.committed, *text.guesses], "other tokens than before"
        assert 0 < text.num_prompt <= len(text.committed)
        assert text.length <= self._surroundings.max_model_len
        wanted = text.num_wanted if self._most is None else min(text.num_wanted, self._most)
        return self._with_errors(known, wanted)

    def _with_errors(self, tokens: Sequence[int], count: int) -> list[int]:
        draft: list[int] = []
        for at in range(count):
            (token,) = self._target([*tokens, *draft], 1)
            is_right = self._coins.random() < self._acceptance[min(at, len(self._acceptance) - 1)]
            draft.append(token if is_right else (token + 1) % self._surroundings.vocab_size)
        return draft
