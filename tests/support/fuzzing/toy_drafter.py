"""A drafter in this process: the real book, fed with real messages, on a toy device.

Owns what stands for process, channel and clock, so that every run of a plan takes the same
course. What it drafts is the toy language, with mistakes.
"""

from __future__ import annotations

import random
import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from fake_engine import VOCAB, FakeConnection, next_token
from fuzzing.plan import MAX_MODEL_LEN
from minedraft.drafter import DraftBook
from minedraft.transport.messages import Drafts, Guesses, Update, decode_to_drafter, encode
from toy_device import ToyDevice

_BLOCK = 16


@dataclass(slots=True)
class TurnClock:
    """Stands for the module `time` in the client: moved by turns and by waiting alone."""

    now_s: float = 100.0

    def monotonic(self) -> float:
        return self.now_s


class BookConnection(FakeConnection):
    """Makes a few passes whenever the scheduler looks, and as many as need be if it waits."""

    def __init__(
        self, rng: random.Random, accuracy: float, k: int, num_blocks: int, clock: TurnClock
    ) -> None:
        super().__init__(rng, accuracy, k)
        self.is_stopped = False
        self.device = ToyDevice(
            prefix_caching=True,
            next_token=lambda tokens: _guess(tokens, accuracy),
            vocab_size=VOCAB,
            max_model_len=MAX_MODEL_LEN,
            max_num_batched_tokens=128,
            max_num_seqs=8,
            num_kv_blocks=num_blocks,
            block_size=_BLOCK,
        )
        self.book = DraftBook(self.device)
        self._clock = clock
        self._inbox: deque[bytes] = deque()
        self._num_passes = 0

    def send(self, update: Update) -> None:
        if not self.is_dead:
            self._inbox.append(encode(update))

    def receive(self, timeout_s: float = 0.0) -> Drafts | Guesses | None:
        if not self.is_dead and not self.is_stopped:
            self.take_in()
            self._work(1000 if timeout_s > 0 else self._rng.randrange(4))
            if self._answers:
                return self._answers.popleft()
        self._clock.now_s += timeout_s
        return None

    def take_in(self) -> None:
        """Apply every message that was sent."""
        while self._inbox:
            message = decode_to_drafter(self._inbox.popleft())
            assert isinstance(message, Update)
            self.book.apply(message, self._num_passes + 1)
        self._answers.extend(self.book.take_answers())

    def _work(self, most: int) -> None:
        while not self._answers and most > 0:
            most = most - 1 if self._one_pass() else 0
            self._answers.extend(self.book.take_answers())

    def _one_pass(self) -> bool:
        self._num_passes += 1
        rows = self.book.next_pass(self._num_passes)
        if rows:
            self.book.record(rows, self.device.run(rows), self._num_passes)
        return bool(rows)


def _guess(tokens: Sequence[int], accuracy: float) -> int:
    """The target's next token, or another one; always the same after the same tokens."""
    wrong = zlib.crc32(bytes(str(list(tokens[-3:])), "ascii")) % 100 >= accuracy * 100
    return (next_token(tokens) + wrong) % VOCAB
