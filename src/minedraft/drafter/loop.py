"""The drafter's loop: take messages in, run one pass, send what is complete.

Owns the order of these three; the choice of a pass is the book's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from minedraft.drafter.book import DraftBook
from minedraft.drafter.device import DraftDevice
from minedraft.errors import ProtocolError
from minedraft.transport.channel import Channel
from minedraft.transport.messages import Alive, Shutdown, ToDrafter, ToScheduler, Update

logger = logging.getLogger(__name__)

_IDLE_POLL_S = 1.0
_STATES_POLL_S = 0.002
_ALIVE_INTERVAL_NS = 1_000_000_000


class DrafterLoop:
    """Looks for messages between any two passes, so that it never works on old news."""

    def __init__(
        self,
        channel: Channel[ToDrafter, ToScheduler],
        device: DraftDevice,
        *,
        sends_confidences: bool = False,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._channel = channel
        self._device = device
        self._clock_ns = clock_ns
        self._book = DraftBook(device, sends_confidences=sends_confidences)
        self._last_sent_ns = clock_ns()

    def run(self) -> None:
        """Serve until a Shutdown comes."""
        busy = False
        while self._receive(0.0 if busy else self._idle_s):
            busy = self.step()
            self._say_alive()

    @property
    def _idle_s(self) -> float:
        """How long to wait for a message: hidden states come without one."""
        expects = self._device.info.takes_hidden_states and len(self._book)
        return _STATES_POLL_S if expects else _IDLE_POLL_S

    def step(self) -> bool:
        """One pass and the answers that it completed; False if there was nothing to run."""
        rows = self._book.next_pass(self._clock_ns())
        self._send_answers()
        if rows:
            guesses = self._device.run(rows)
            self._book.record(rows, guesses, self._clock_ns())
            self._send_answers()
        return bool(rows)

    def _send_answers(self) -> None:
        for answer in self._book.take_answers():
            self._channel.send(answer)
            self._last_sent_ns = self._clock_ns()

    def _say_alive(self) -> None:
        """While it is expected to speak and has nothing to say, show that it lives."""
        now_ns = self._clock_ns()
        is_quiet = now_ns - self._last_sent_ns >= _ALIVE_INTERVAL_NS
        if is_quiet and self._book.is_expected_to_speak:
            self._channel.send(Alive())
            self._last_sent_ns = now_ns

    def _receive(self, timeout_s: float) -> bool:
        """Apply every message that is there; False once the scheduler ends the drafter."""
        message = self._next_message(timeout_s)
        while message is not None:
            if isinstance(message, Shutdown):
                return False
            if isinstance(message, Update):
                self._book.apply(message, self._clock_ns())
            else:
                logger.error("minedraft drafter: %s came, which is not for it", type(message))
                self._book.has_missed_news = True
            message = self._next_message(0.0)
        return True

    def _next_message(self, timeout_s: float) -> ToDrafter | None:
        """As the channel's; one unreadable message must not end drafting for everyone.

        The requests it was about have another length here than there from then on, and are
        dropped by that.
        """
        try:
            return self._channel.receive(timeout_s)
        except ProtocolError:
            logger.exception("minedraft drafter: a message is lost")
            self._book.has_missed_news = True
            return None
