"""Starting a lost drafter again: after a pause that grows, without ever holding a step up.

Owns the pauses and the process on its way up; the client owns what it is told then.
"""

from __future__ import annotations

import logging
import subprocess
import time
from collections.abc import Callable

from minedraft.drafter.process import Connection, DrafterLauncher, StartingDrafter
from minedraft.errors import DrafterError, ProtocolError

logger = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 60.0


class Revival:
    """One lost drafter at a time; `begin` after each loss, `poll` until it is back.

    The pause before a start doubles with every attempt until `proven` says that the
    drafter works.
    """

    def __init__(
        self,
        launcher: DrafterLauncher,
        start_timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._launcher = launcher
        self._start_timeout_s = start_timeout_s
        self._clock = clock
        self._attempts = 0
        self._lost: Connection | None = None
        self._dying: subprocess.Popen[bytes] | None = None
        self._num_starts = 0
        self._starting: StartingDrafter | None = None
        self._due = 0.0

    def begin(self, lost: Connection) -> None:
        """Take over a connection whose process was killed or is dead."""
        self._lost = lost
        self._pause()

    def poll(self) -> Connection | None:
        """The new connection once it is ready; a failed start takes 0.2 s at most to clear."""
        if not self._bury():
            return None
        now = self._clock()
        try:
            if self._starting is None:
                if now < self._due:
                    return None
                self._due = now + self._start_timeout_s
                self._num_starts += 1
                self._starting = self._launcher.start(self._num_starts)
            connection = self._starting.poll()
        except (DrafterError, ProtocolError) as error:
            self._failed(str(error))
            return None
        if connection is not None:
            self._starting = None
        elif now >= self._due:
            self._failed(f"it was not ready after {self._start_timeout_s:g} s")
        return connection

    def proven(self) -> None:
        """Note that the drafter drafts: the next loss is followed by the shortest pause."""
        self._attempts = 0

    def close(self) -> None:
        """End what is on its way up."""
        if self._lost is not None:
            self._lost.close()
        if self._starting is not None:
            self._starting.kill()

    def _bury(self) -> bool:
        """Whether those before are dead: one that still holds its device would keep the next
        from loading."""
        if self._dying is not None and self._dying.poll() is None:
            return False
        if self._lost is not None and self._lost.is_alive():
            return False
        if self._lost is not None:
            self._lost.close()
        self._lost = self._dying = None
        return True

    def _failed(self, reason: str) -> None:
        if self._starting is not None:
            self._starting.kill()
            self._dying, self._starting = self._starting.process, None
        self._pause()
        logger.error(
            "minedraft: the drafter did not come back (%s); next attempt in %.1f s",
            reason,
            self._due - self._clock(),
        )

    def _pause(self) -> None:
        self._due = self._clock() + min(FIRST_PAUSE_S * 2**self._attempts, LONGEST_PAUSE_S)
        # Beyond this the pause is the longest anyway.
        self._attempts = min(self._attempts + 1, 16)
