"""A drafter of minedraft.methods as the device of the drafter's book: no model, no KV cache.

Owns the translation of rows into texts, and the check of what comes back.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence

from minedraft.drafter.device import DeviceInfo, Guess, Row
from minedraft.drafter.request import DraftedRequest
from minedraft.errors import DrafterError
from minedraft.methods.base import Drafter, Surroundings, Text

_ENDLESS = 1 << 30


class TokensOnlyDevice:
    """Asks `drafter`, called `name` in errors, for the rows of each pass.

    Raises:
        DrafterError: from `run`, what the drafter gave is no draft.
    """

    def __init__(self, drafter: Drafter, surroundings: Surroundings, name: str) -> None:
        self._drafter = drafter
        self._name = name
        self._vocab_size = surroundings.vocab_size
        self._lengths: dict[str, int] = {}
        self.info = DeviceInfo(
            vocab_size=surroundings.vocab_size,
            max_model_len=surroundings.max_model_len,
            max_num_batched_tokens=_ENDLESS,
            max_num_seqs=surroundings.max_num_seqs,
            num_kv_blocks=0,
            block_size=1,
        )

    @property
    def num_free_blocks(self) -> int:
        """It has none, and needs none."""
        return 0

    def num_held_blocks(self, request: DraftedRequest) -> int:
        """Always 0."""
        return 0

    def num_ready(self, request: DraftedRequest) -> int:
        """All of them."""
        return request.length

    def take_in(self) -> Collection[str]:
        """Nothing comes besides."""
        return ()

    def reserve(self, request: DraftedRequest, num_tokens: int, chunk: int) -> bool:
        """There is always room."""
        return True

    def run(self, rows: Sequence[Row]) -> Mapping[str, Sequence[Guess]]:
        """See DraftDevice.run; who gets fewer tokens than wanted is exhausted."""
        texts = [self._text(row) for row in rows]
        drafts = self._asked(texts)
        for row, draft in zip(rows, drafts, strict=True):
            row.request.is_exhausted = len(draft) < row.num_wanted
        return {
            text.request_id: [Guess(token) for token in draft]
            for text, draft in zip(texts, drafts, strict=True)
        }

    def release(self, request: DraftedRequest) -> None:
        """See DraftDevice.release."""
        if self._lengths.pop(request.key, None) is not None:
            self._drafter.release(request.key)

    def close(self) -> None:
        """Nothing to free."""

    def _text(self, row: Row) -> Text:
        """The request of a row; a pass is never too small for all of it."""
        request = row.request
        if request.num_fed < self._lengths.get(request.key, 0):
            self._drafter.roll_back(request.key, request.num_fed)
        self._lengths[request.key] = request.length
        return Text(
            request_id=request.key,
            committed=request.committed,
            guesses=request.guesses,
            num_prompt=request.num_given,
            num_known=request.num_fed,
            num_wanted=row.num_wanted,
        )

    def _asked(self, texts: Sequence[Text]) -> list[list[int]]:
        """The drafts, checked."""
        drafts = self._drafter.draft(texts)
        if not isinstance(drafts, Sequence) or len(drafts) != len(texts):
            raise self._wrong(drafts, f"a list of {len(texts)} drafts")
        return [self._checked(draft, text) for draft, text in zip(drafts, texts, strict=True)]

    def _checked(self, draft: object, text: Text) -> list[int]:
        allowed = f"up to {text.num_wanted} integers from 0 to {self._vocab_size - 1} for a request"
        is_list = isinstance(draft, Sequence) and not isinstance(draft, str | bytes)
        if not is_list or len(draft) > text.num_wanted:  # type: ignore[arg-type]
            raise self._wrong(draft, allowed)
        tokens = []
        for token in draft:  # type: ignore[attr-defined]
            try:
                tokens.append(operator.index(token))
            except TypeError as error:
                raise self._wrong(draft, allowed) from error
            if isinstance(token, bool) or not 0 <= tokens[-1] < self._vocab_size:
                raise self._wrong(draft, allowed)
        return tokens

    def _wrong(self, value: object, allowed: str) -> DrafterError:
        return DrafterError(
            f"minedraft: {self._name}.draft returned {value!r:.200}; allowed: {allowed}"
        )
