"""How long the drafter takes for prompts: its process, without an engine beside it.

Owns what is said to it. In an engine prompts are taken in while the target computes its own,
and no trace tells of them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

from vllm.config import VllmConfig

from minedraft.config import DrafterConfig
from minedraft.drafter.process import Connection
from minedraft.errors import DrafterError
from minedraft.plugin.engine_config import active_options
from minedraft.plugin.lifecycle import drafter_launcher
from minedraft.profiles import Sample
from minedraft.transport.messages import Add, Drafts, Update, Want

_POLL_S = 0.1
_NS_PER_MS = 1e6


@contextmanager
def profiled_drafter(vllm_config: VllmConfig, seed: int) -> Iterator[ProfiledDrafter]:
    """The drafter of an engine with that config, which must have ended; it ends with the context.

    Raises:
        DrafterError: it does not start.
    """
    config = active_options(vllm_config)
    assert config.drafter is not None
    starting = drafter_launcher(config, vllm_config).start()
    connection = starting.wait(config.drafter.start_timeout_s)
    try:
        yield ProfiledDrafter(connection, config.drafter, seed)
    finally:
        connection.close()


class ProfiledDrafter:
    """A running drafter, asked for one draft token of new requests."""

    def __init__(self, connection: Connection, config: DrafterConfig, seed: int) -> None:
        self._connection = connection
        self._limit_s = max(config.hang_timeout_s, config.reply_timeout_s)
        self._most_tokens = config.max_num_batched_tokens
        self._dice = random.Random(seed)
        self._num_asked = 0

    def takes(self, num_requests: int, prompt_tokens: int) -> bool:
        """Whether so many prompts fit into one pass."""
        fits = prompt_tokens < self._connection.hello.max_model_len
        return fits and num_requests * prompt_tokens <= self._most_tokens

    @property
    def limits(self) -> str:
        """What `takes` goes by, in words."""
        return (
            f"one pass of the drafter takes {self._most_tokens} tokens "
            "(draft_max_num_batched_tokens), each prompt fewer than "
            f"{self._connection.hello.max_model_len}"
        )

    def run(self, num_requests: int, prompt_tokens: int) -> list[Sample]:
        """One pass over prompts of random tokens; none if the drafter had no room for them all.

        Raises:
            DrafterError: it died, or is silent for longer than any engine would wait.
        """
        self._num_asked += 1
        names = [f"{self._num_asked}-{number}" for number in range(num_requests)]
        want = Want(ticket=self._num_asked, request_ids=names, num_tokens=1)
        adds = [Add(name, 0, self._prompt(prompt_tokens)) for name in names]
        self._connection.channel.send(Update(adds=adds, wants=[want]))
        answer = self._answer()
        self._connection.channel.send(Update(releases=[(name, 0) for name in names]))
        drafted = [each for each in answer.drafts if each.token_ids]
        if answer.num_passes != 1 or len(drafted) != num_requests:
            return []
        ms = (answer.end_ns - answer.start_ns) / _NS_PER_MS
        return [Sample(num_requests, num_requests * prompt_tokens, prompt_tokens, ms)]

    def _prompt(self, length: int) -> list[int]:
        vocab_size = self._connection.hello.vocab_size
        return [self._dice.randrange(vocab_size) for _ in range(length)]

    def _answer(self) -> Drafts:
        deadline_s = time.monotonic() + self._limit_s
        while time.monotonic() < deadline_s and self._connection.is_alive():
            message = self._connection.channel.receive(_POLL_S)
            if isinstance(message, Drafts) and message.ticket == self._num_asked:
                return message
        raise DrafterError(
            "minedraft: the drafter died, or gave no answer for "
            f"{self._limit_s:g} s; raise draft_reply_timeout_s if it is slow"
        )
