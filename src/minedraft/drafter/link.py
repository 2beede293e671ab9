"""The line to the drafter: messages out and in, its loss, and its return.

Owns the connection and what is not sent yet; which drafts hold is its client's business.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from minedraft.clock import Clock, RealClock
from minedraft.drafter.process import Connection
from minedraft.drafter.revival import Revival
from minedraft.drafter.source import DraftCounters
from minedraft.errors import DrafterError, ProtocolError
from minedraft.transport.messages import Add, Alive, Commit, ToScheduler, Update, Want

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class _Outbox:
    releases: list[tuple[str, int]] = field(default_factory=list)
    adds: list[Add] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    wants: list[Want] = field(default_factory=list)

    def drop_add(self, request_id: str) -> bool:
        """Take back an Add that was not sent yet; False if there is none."""
        kept = [each for each in self.adds if each.request_id != request_id]
        found = len(kept) < len(self.adds)
        if found:
            self.adds = kept
            self.commits = [each for each in self.commits if each.request_id != request_id]
        return found

    def __bool__(self) -> bool:
        return bool(self.releases or self.adds or self.commits or self.wants)


class DrafterLink:
    """Messages are collected and sent together by `flush`. Not thread-safe.

    A drafter that dies, breaks the protocol, or is found silent for longer than
    `hang_timeout_s` is lost: it is killed, `on_loss` is called, and `revival`, if there is
    one, starts it again. Nothing is collected for a drafter that is not there.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        hang_timeout_s: float,
        revival: Revival | None,
        on_loss: Callable[[], None],
        clock: Clock | None = None,
    ) -> None:
        self._clock = RealClock() if clock is None else clock
        self._connection = connection
        self._hang_timeout_s = hang_timeout_s
        self._revival = revival
        self._on_loss = on_loss
        self._outbox = _Outbox()
        self._last_heard = self._now_s()
        self.is_connected = True
        self.counters = DraftCounters()

    # -- out -------------------------------------------------------------------------

    def add(self, add: Add) -> None:
        """Tell of a request."""
        if self.is_connected:
            self._outbox.adds.append(add)

    def commit(self, commit: Commit) -> None:
        """Tell of tokens that the target decided."""
        if self.is_connected:
            self._outbox.commits.append(commit)

    def release(self, request_id: str, version: int) -> None:
        """Tell that a request is gone; one that it was not told of yet is left out."""
        if self.is_connected and not self._outbox.drop_add(request_id):
            self._outbox.releases.append((request_id, version))

    def want(self, want: Want) -> None:
        """Ask for drafts."""
        if self.is_connected:
            self._outbox.wants.append(want)

    def drop_wants(self) -> None:
        """Ask nothing that is not sent yet."""
        self._outbox.wants.clear()

    def flush(self) -> Sequence[Want]:
        """Send what was collected; the questions that are on their way now."""
        outbox, self._outbox = self._outbox, _Outbox()
        if not outbox or not self.is_connected:
            return ()
        try:
            self._connection.channel.send(
                Update(
                    releases=outbox.releases,
                    adds=outbox.adds,
                    commits=outbox.commits,
                    wants=outbox.wants,
                )
            )
        except (DrafterError, ProtocolError) as error:
            self.lose(str(error))
            return ()
        return outbox.wants

    # -- in --------------------------------------------------------------------------

    def receive(self, timeout_s: float) -> ToScheduler | None:
        """The next message that is no sign of life; None if none comes, or the drafter is lost."""
        try:
            message = self._connection.channel.receive(timeout_s)
            while isinstance(message, Alive):
                self._last_heard = self._now_s()
                message = self._connection.channel.receive(0.0)
        except (DrafterError, ProtocolError) as error:
            self.lose(str(error))
            return None
        if message is not None:
            self._last_heard = self._now_s()
        elif not self._connection.is_alive():
            self.lose(f"the process ended with code {self._connection.process.returncode}")
        return message

    def lose_if_silent(self, since: float) -> bool:
        """Lose it if it said nothing for too long, of which the time before `since` does not
        count."""
        is_silent = self._now_s() - max(since, self._last_heard) > self._hang_timeout_s
        if is_silent:
            self.lose(f"it said nothing for {self._hang_timeout_s:g} s")
        return is_silent

    def _now_s(self) -> float:
        return self._clock.now_ns() / 1e9

    # -- loss and return -------------------------------------------------------------

    def lose(self, reason: str) -> None:
        """Give it up."""
        logger.error("minedraft: the drafter is lost (%s); requests go on without drafts", reason)
        self.is_connected = False
        self.counters.losses += 1
        # A drafter that is silent or confused would keep its device.
        self._connection.kill()
        self._outbox = _Outbox()
        self._on_loss()
        if self._revival is not None:
            self._revival.begin(self._connection)

    def revive(self) -> bool:
        """Whether a lost drafter is back now; it knows no request."""
        connection = None if self._revival is None else self._revival.poll()
        if connection is None:
            return False
        self._connection = connection
        self.is_connected = True
        self._last_heard = self._now_s()
        self.counters.returns += 1
        logger.warning("minedraft: the drafter is back; lost %d times so far", self.counters.losses)
        return True

    def proven(self) -> None:
        """Note that it drafts."""
        if self._revival is not None:
            self._revival.proven()

    def close(self) -> None:
        """End the drafter, for good."""
        self.is_connected = False
        self._connection.close()
        if self._revival is not None:
            self._revival.close()
            self._revival = None
