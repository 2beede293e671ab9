"""Texts for drafters: what the drafter's book would hand them."""

from __future__ import annotations

from typing import Any

from minedraft.methods import Surroundings, Text

SURROUNDINGS = Surroundings(
    vocab_size=100, max_model_len=64, max_num_seqs=8, num_speculative_tokens=4, seed=0
)


class Story:
    """One request whose tokens come and go; what the drafter knows is told as it should be."""

    def __init__(self, tokens: list[int], request_id: str = "a") -> None:
        self.tokens = list(tokens)
        self._request_id = request_id
        self._num_prompt = len(tokens)
        self._num_known = 0

    def go_on(self, drafter: Any, new: list[int], rolled_back: int) -> None:
        """Lose the last `rolled_back` tokens (not of the prompt), and go on with `new`."""
        length = max(self._num_prompt, len(self.tokens) - rolled_back)
        del self.tokens[length:]
        if length < self._num_known:
            drafter.roll_back(self._request_id, length)
            self._num_known = length
        self.tokens += new

    def text(self, num_wanted: int, num_guesses: int = 0) -> Text:
        """All of it; the last `num_guesses` tokens are guesses. The drafter knows them then."""
        split = len(self.tokens) - num_guesses
        known, self._num_known = self._num_known, len(self.tokens)
        return Text(
            request_id=self._request_id,
            committed=self.tokens[:split],
            guesses=self.tokens[split:],
            num_prompt=self._num_prompt,
            num_known=known,
            num_wanted=num_wanted,
        )
