"""The scheduler's view of the drafter: what was asked, what came back, what still holds.

Owns the bookkeeping of tickets and drafts by request id, version and committed length; it
neither plans steps nor knows vLLM.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from minedraft.drafter.process import Connection
from minedraft.drafter.revival import Revival
from minedraft.drafter.source import DraftCounters
from minedraft.errors import DrafterError, ProtocolError
from minedraft.policies.base import DraftState
from minedraft.transport.candidates import is_sound
from minedraft.transport.messages import (
    Add,
    Alive,
    Commit,
    Draft,
    Drafts,
    Sampling,
    Update,
    Want,
)

logger = logging.getLogger(__name__)

_ALIVE_POLL_S = 0.25
_LONGEST_PAUSE_S = 60.0


@dataclass(slots=True, kw_only=True)
class _Followed:
    version: int
    committed_len: int
    sampling: Sampling | None = None
    ticket: int | None = None
    draft: Draft | None = None
    origin: Drafts | None = None


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


class DrafterClient:
    """Follows requests on behalf of the scheduler. Not thread-safe.

    Messages are collected and sent together by `flush`. A drafter that gives none of the
    answers it owes for `reply_timeout_s` is late: every awaited draft counts as absent and
    nothing is asked until it answers, and for a pause after that, which doubles with every
    delay in a row. One that says nothing at all for `hang_timeout_s`, dies or breaks the
    protocol is lost: it is killed, and started again by `revival` if there is one. In both
    cases `available` is False, and requests go on without drafts. Drawn drafts whose
    candidates reach beyond `vocab_size`, the target's, are no drafts.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        k: int,
        reply_timeout_s: float,
        hang_timeout_s: float,
        vocab_size: int | None = None,
        revival: Revival | None = None,
    ) -> None:
        self._connection = connection
        self._k = k
        self._reply_timeout_s = reply_timeout_s
        self._hang_timeout_s = hang_timeout_s
        self._vocab_size = vocab_size
        self._revival = revival
        self._followed: dict[str, _Followed] = {}
        self._asked: dict[int, tuple[str, ...]] = {}
        self._outbox = _Outbox()
        self._last_version = 0
        self._last_ticket = 0
        self._sent_at: dict[int, float] = {}
        self._last_heard = self._last_answer = time.monotonic()
        self._late_since: float | None = None
        self._last_late_ticket = 0
        self._delays_in_a_row = 0
        self._ask_again_at = 0.0
        self._longest_pause_s = max(_LONGEST_PAUSE_S, reply_timeout_s)
        self._is_connected = True
        self.counters = DraftCounters()

    @property
    def available(self) -> bool:
        """Whether drafts can be asked for: the drafter is there and answers in time."""
        return self.is_answering and time.monotonic() >= self._ask_again_at

    @property
    def is_answering(self) -> bool:
        """Whether the drafter is there and is not late with an answer."""
        return self._is_connected and self._late_since is None

    # -- what happened ---------------------------------------------------------------

    def follow(
        self,
        request_id: str,
        token_ids: Sequence[int],
        *,
        limit: int | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        """Tell the drafter of a request with all of its tokens, prompt first.

        At most `limit` drafts are made for it at a time; with `sampling` they are drawn, and
        come with the distribution that they were drawn from.

        A drafter that came back knows nobody: whoever sees `counters.returns` grow tells it
        of every request again.
        """
        self.release(request_id)
        self._last_version += 1
        self._followed[request_id] = _Followed(
            version=self._last_version, committed_len=len(token_ids), sampling=sampling
        )
        if self._is_connected:
            self._outbox.adds.append(
                Add(request_id, self._last_version, list(token_ids), limit, sampling)
            )

    def commit(self, request_id: str, token_ids: Sequence[int]) -> None:
        """Report tokens that the target decided; drafts made before are void."""
        followed = self._followed.get(request_id)
        if followed is None or not token_ids:
            return
        if self._is_connected:
            self._outbox.commits.append(
                Commit(request_id, followed.version, followed.committed_len, list(token_ids))
            )
        followed.committed_len += len(token_ids)
        followed.draft = followed.origin = None

    def release(self, request_id: str) -> None:
        """Forget a request that finished, was aborted or preempted; unknown ids are ignored."""
        followed = self._followed.pop(request_id, None)
        if followed is None or not self._is_connected:
            return
        if self._outbox.drop_add(request_id):
            return
        self._outbox.releases.append((request_id, followed.version))

    def ask(self, request_ids: Sequence[str]) -> None:
        """Ask for k drafts for each of a group, under one ticket; those not followed get none."""
        known = [each for each in request_ids if each in self._followed]
        if not self.available or not known:
            return
        self._last_ticket += 1
        self._asked[self._last_ticket] = tuple(known)
        for request_id in known:
            followed = self._followed[request_id]
            followed.ticket, followed.draft, followed.origin = self._last_ticket, None, None
        self._outbox.wants.append(
            Want(ticket=self._last_ticket, request_ids=known, num_tokens=self._k)
        )
        self.counters.tickets += 1

    def flush(self) -> None:
        """Send what was collected."""
        outbox, self._outbox = self._outbox, _Outbox()
        if not outbox or not self._is_connected:
            return
        for want in outbox.wants:
            self._sent_at[want.ticket] = time.monotonic()
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
            self._lose(str(error))

    # -- what is known ---------------------------------------------------------------

    def follows(self, request_id: str) -> bool:
        """Whether drafts can be asked for this request."""
        return request_id in self._followed

    def state(self, request_id: str) -> DraftState:
        """NONE, PENDING or READY; a request that is not followed has NONE."""
        followed = self._followed.get(request_id)
        if followed is None:
            return DraftState.NONE
        if followed.draft is not None:
            return DraftState.READY
        if followed.ticket is not None and followed.ticket in self._asked:
            return DraftState.PENDING
        return DraftState.NONE

    def draft_of(self, request_id: str, committed_len: int) -> tuple[Draft, Drafts] | None:
        """The draft that continues the request from `committed_len`, with its answer.

        A draft for another length or another life of the id is never returned.
        """
        followed = self._followed.get(request_id)
        if followed is None or followed.draft is None or followed.origin is None:
            return None
        if followed.draft.committed_len != committed_len:
            return None
        return followed.draft, followed.origin

    # -- what comes back -------------------------------------------------------------

    def collect(self) -> None:
        """Take in every answer that is here, and a drafter that came back."""
        if not self._is_connected:
            self._revive()
        while self._is_connected and (answer := self._receive(0.0)) is not None:
            self._accept(answer)

    def wait(self, request_ids: Collection[str], timeout_s: float) -> bool:
        """Wait until none of these requests is PENDING; False if `timeout_s` passes first."""
        deadline = time.monotonic() + timeout_s
        while self._any_pending(request_ids):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            answer = self._receive(min(left, _ALIVE_POLL_S))
            if answer is not None:
                self._accept(answer)
        return not self._any_pending(request_ids)

    def close(self) -> None:
        """End the drafter, for good."""
        self._is_connected = False
        self._connection.close()
        if self._revival is not None:
            self._revival.close()
            self._revival = None

    def _any_pending(self, request_ids: Collection[str]) -> bool:
        return any(self.state(each) is DraftState.PENDING for each in request_ids)

    def _receive(self, timeout_s: float) -> Drafts | None:
        try:
            message = self._connection.channel.receive(timeout_s)
            while isinstance(message, Alive):
                self._last_heard = time.monotonic()
                message = self._connection.channel.receive(0.0)
        except ProtocolError as error:
            self._lose(str(error))
            return None
        if message is None:
            self._check_alive()
            return None
        self._last_heard = time.monotonic()
        if isinstance(message, Drafts):
            self._note_answer()
            return message
        self._lose(f"it sent {message!r} when drafts were expected")
        return None

    def _check_alive(self) -> None:
        if not self._connection.is_alive():
            self._lose(f"the process ended with code {self._connection.process.returncode}")
        elif (since := self._owing_since()) is not None:
            now = time.monotonic()
            if now - max(since, self._last_heard) > self._hang_timeout_s:
                self._lose(f"it said nothing for {self._hang_timeout_s:g} s")
            elif now - since > self._reply_timeout_s and self._late_since is None:
                self._note_late(since)

    def _owing_since(self) -> float | None:
        """Since when it owes an answer and gives none; None if it owes none."""
        if self._late_since is not None:
            return self._late_since
        return max(self._last_answer, min(self._sent_at.values())) if self._sent_at else None

    def _note_answer(self) -> None:
        now = self._last_answer = time.monotonic()
        if self._late_since is None:
            self._delays_in_a_row = 0
            return
        self._late_since = None
        pause_s = self._reply_timeout_s * 2 ** (self._delays_in_a_row - 1)
        self._ask_again_at = now + min(pause_s, self._longest_pause_s)

    def _note_late(self, since: float) -> None:
        logger.warning(
            "minedraft: no drafts for %g s; requests go on without until the drafter answers",
            self._reply_timeout_s,
        )
        self._late_since = since
        self._last_late_ticket = self._last_ticket
        self.counters.delays += 1
        self._delays_in_a_row = min(self._delays_in_a_row + 1, 16)
        self._forget_questions()

    def _forget_questions(self) -> None:
        """Await nothing any more; drafts that are here stay."""
        self._asked.clear()
        self._sent_at.clear()
        self._outbox.wants.clear()
        for followed in self._followed.values():
            followed.ticket = None

    def _accept(self, answer: Drafts) -> None:
        asked = self._asked.pop(answer.ticket, None)
        self._sent_at.pop(answer.ticket, None)
        if asked is None and answer.ticket <= self._last_late_ticket:
            return
        if asked is None:
            logger.warning("minedraft: an answer to ticket %d, which is not open", answer.ticket)
            return
        drafts: Mapping[str, Draft] = {draft.request_id: draft for draft in answer.drafts}
        for request_id in asked:
            self._settle(request_id, drafts.get(request_id), answer)
        self._give_up_before(answer.ticket)

    def _give_up_before(self, ticket: int) -> None:
        """Tickets are answered in order: an older one that is open will not be."""
        for lost in [each for each in self._asked if each < ticket]:
            logger.error("minedraft: ticket %d was passed over by the drafter", lost)
            self._sent_at.pop(lost, None)
            for request_id in self._asked.pop(lost):
                followed = self._followed.get(request_id)
                if followed is not None and followed.ticket == lost:
                    followed.ticket = None

    def _settle(self, request_id: str, draft: Draft | None, answer: Drafts) -> None:
        followed = self._followed.get(request_id)
        if followed is None or followed.ticket != answer.ticket:
            self.counters.stale_drafts += draft is not None
            return
        followed.ticket = None
        empty = Draft(request_id, followed.version, followed.committed_len, [])
        fits = (
            draft is not None
            and draft.version == followed.version
            and draft.committed_len == followed.committed_len
            and len(draft.token_ids) <= self._k
            and is_sound(draft, followed.sampling, self._vocab_size)
        )
        self.counters.stale_drafts += draft is not None and not fits
        followed.draft = draft if fits and draft is not None else empty
        followed.origin = answer
        self.counters.drafts += 1
        self.counters.draft_tokens += len(followed.draft.token_ids)
        if followed.draft.token_ids and self._revival is not None:
            self._revival.proven()

    def _lose(self, reason: str) -> None:
        logger.error("minedraft: the drafter is lost (%s); requests go on without drafts", reason)
        self._is_connected = False
        self._late_since = None
        self.counters.losses += 1
        # A drafter that is silent or confused would keep its device.
        self._connection.kill()
        self._forget_questions()
        for followed in self._followed.values():
            followed.draft = followed.origin = None
        self._outbox = _Outbox()
        if self._revival is not None:
            self._revival.begin(self._connection)

    def _revive(self) -> None:
        connection = None if self._revival is None else self._revival.poll()
        if connection is None:
            return
        self._connection = connection
        self._is_connected = True
        self._last_heard = self._last_answer = time.monotonic()
        self._delays_in_a_row, self._ask_again_at = 0, 0.0
        self._followed.clear()
        self.counters.returns += 1
        logger.warning("minedraft: the drafter is back; lost %d times so far", self.counters.losses)
