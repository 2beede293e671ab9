"""Scheduler and drafter under one virtual time: neither runs ahead of what the other may do.

Owns the exchange of time; drafts are the book's and the client's. The scheduler says how
far it may wait (a Tick), the drafter runs the passes that begin before that, and says what
it sent at which time (a Tock). A pass is decided by what was sent when it began, so its end
may lie beyond. This is conservative discrete-event simulation of two processes (Chandy and
Misra, 1979), with the real book, client, messages and models.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable

from minedraft.clock import VirtualClock
from minedraft.drafter.book import DraftBook
from minedraft.drafter.device import DraftDevice
from minedraft.errors import ProtocolError
from minedraft.transport.channel import Channel, Line
from minedraft.transport.messages import (
    Alive,
    Drafts,
    Guesses,
    Shutdown,
    Tick,
    Timed,
    Tock,
    ToDrafter,
    ToScheduler,
    Update,
)

_POLL_S = 1.0


class VirtualLine:
    """The scheduler's end: to wait is to let the drafter run, and to put `clock` forward.

    A drafter that answers no Tick for `silence_s` of real time breaks the protocol.
    """

    def __init__(
        self,
        line: Line,
        clock: VirtualClock,
        *,
        is_alive: Callable[[], bool],
        silence_s: float,
    ) -> None:
        self._line = line
        self._clock = clock
        self._is_alive = is_alive
        self._silence_s = silence_s
        self._known_until_ns = clock.now_ns()
        self._inbox: deque[tuple[int, Drafts | Guesses]] = deque()

    def send(self, message: ToDrafter) -> None:
        """As Channel.send; an Update is sent at the clock's time."""
        if isinstance(message, Update):
            message = Timed(at_ns=self._clock.now_ns(), update=message)
        self._line.send(message)

    def receive(self, timeout_s: float = 0.0) -> ToScheduler | None:
        """As Channel.receive, with virtual seconds; Alive where the drafter said nothing else.

        Raises:
            DrafterError: there is no drafter any more.
            ProtocolError: the drafter broke the protocol, or is silent.
        """
        # Rounded up: who waits for the fraction of a ns that is left would wait for ever.
        deadline_ns = self._clock.now_ns() + math.ceil(max(0.0, timeout_s) * 1e9)
        has_heard = False
        while True:
            if self._inbox and self._inbox[0][0] <= deadline_ns:
                at_ns, answer = self._inbox.popleft()
                self._clock.sleep_until_ns(at_ns)
                return answer
            if self._known_until_ns >= deadline_ns:
                self._clock.sleep_until_ns(deadline_ns)
                return Alive() if has_heard else None
            tock = self._tick(deadline_ns)
            if tock is None:
                return None
            has_heard = True
            self._inbox.extend(tock.answers)
            self._known_until_ns = tock.until_ns

    def close(self) -> None:
        """As Channel.close."""
        self._line.close()

    def _tick(self, until_ns: int) -> Tock | None:
        """None if the drafter is dead."""
        self._line.send(Tick(now_ns=self._clock.now_ns(), until_ns=until_ns))
        give_up_s = time.monotonic() + self._silence_s
        while self._is_alive():
            message = self._line.receive(_POLL_S)
            if isinstance(message, Tock):
                return message
            if message is not None:
                raise ProtocolError(f"minedraft: {message!r} came when a tock was expected")
            if time.monotonic() > give_up_s:
                raise ProtocolError(f"minedraft: no tock for {self._silence_s:g} s")
        return None


class VirtualDrafterLoop:
    """DrafterLoop by virtual time: `device` puts `clock` forward by what a pass takes."""

    def __init__(
        self,
        channel: Channel[ToDrafter, ToScheduler],
        device: DraftDevice,
        clock: VirtualClock,
        *,
        sends_confidences: bool = False,
    ) -> None:
        self._channel = channel
        self._device = device
        self._clock = clock
        self._book = DraftBook(device, sends_confidences=sends_confidences)
        self._mail: deque[Timed] = deque()
        self._sent: list[tuple[int, Drafts | Guesses]] = []

    def run(self) -> None:
        """Serve until a Shutdown comes.

        Raises:
            ProtocolError: the scheduler sends what has no time, or cannot be read.
        """
        while not isinstance(message := self._channel.receive(_POLL_S), Shutdown):
            if isinstance(message, Timed):
                self._mail.append(message)
            elif isinstance(message, Tick):
                self._channel.send(self._go_on(message))
            elif message is not None:
                raise ProtocolError(f"minedraft: {type(message).__name__} has no virtual time")

    def _go_on(self, tick: Tick) -> Tock:
        horizon_ns = tick.until_ns
        while self._clock.now_ns() < horizon_ns:
            self._take_mail()
            self._run_pass(horizon_ns)
            # What the scheduler hears, it may answer at once.
            heard_ns = [max(at_ns, tick.now_ns) for at_ns, _ in self._sent]
            horizon_ns = min([horizon_ns, *heard_ns])
        answers, self._sent = self._sent, []
        return Tock(until_ns=horizon_ns, answers=answers)

    def _take_mail(self) -> None:
        while self._mail and self._mail[0].at_ns <= self._clock.now_ns():
            self._book.apply(self._mail.popleft().update, self._clock.now_ns())

    def _run_pass(self, horizon_ns: int) -> None:
        """One pass; without anything to run, the time until there may be."""
        rows = self._book.next_pass(self._clock.now_ns())
        has_sent = self._send_answers()
        if rows:
            guesses = self._device.run(rows)
            self._book.record(rows, guesses, self._clock.now_ns())
            self._send_answers()
        elif not has_sent:
            next_mail_ns = self._mail[0].at_ns if self._mail else horizon_ns
            self._clock.sleep_until_ns(min(next_mail_ns, horizon_ns))

    def _send_answers(self) -> bool:
        """Whether there were any."""
        answers = self._book.take_answers()
        self._sent += ((self._clock.now_ns(), answer) for answer in answers)
        return bool(answers)
