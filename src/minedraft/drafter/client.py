"""The scheduler's view of a drafter that is asked: what was asked, what came back, what holds.

Owns the bookkeeping of tickets and drafts by request id, version and committed length; it
neither plans steps nor knows vLLM.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from minedraft.clock import Clock, RealClock
from minedraft.drafter.link import DrafterLink
from minedraft.drafter.process import Connection
from minedraft.drafter.revival import Revival
from minedraft.drafter.source import (
    PLAIN_TERMS,
    DraftCounters,
    HeldDraft,
    PassTimes,
    RequestTerms,
)
from minedraft.policies.base import DraftState
from minedraft.transport.candidates import has_all_confidences, is_sound
from minedraft.transport.messages import Add, Commit, Draft, Drafts, Sampling, Want

logger = logging.getLogger(__name__)

_ALIVE_POLL_S = 0.25
_LONGEST_PAUSE_S = 60.0


@dataclass(slots=True, kw_only=True)
class _Followed:
    version: int
    committed_len: int
    sampling: Sampling | None = None
    ticket: int | None = None
    held: HeldDraft | None = None


class DrafterClient:
    """Follows requests on behalf of the scheduler. Not thread-safe.

    A drafter that gives none of the answers it owes for `reply_timeout_s` is late: every
    awaited draft counts as absent and nothing is asked until it answers, and for a pause
    after that, which doubles with every delay in a row. One that says nothing at all for
    `hang_timeout_s`, dies or breaks the protocol is lost: it is killed, and started again
    by `revival` if there is one. In both cases `available` is False, and requests go on
    without drafts. Drawn drafts whose candidates reach beyond `vocab_size`, the target's,
    are no drafts. With `drafts_ahead` the drafter guesses on beyond the drafts it sent: the
    token that the target adds, and k more.
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
        drafts_ahead: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._clock = RealClock() if clock is None else clock
        self._link = DrafterLink(
            connection,
            hang_timeout_s=hang_timeout_s,
            revival=revival,
            on_loss=self._forget_drafts,
            clock=self._clock,
        )
        self._k = k
        self._lead = k + 1 if drafts_ahead else 0
        self._reply_timeout_s = reply_timeout_s
        self._vocab_size = vocab_size
        self._followed: dict[str, _Followed] = {}
        self._asked: dict[int, tuple[str, ...]] = {}
        self._last_version = 0
        self._last_ticket = 0
        self._sent_at: dict[int, float] = {}
        self._last_answer = self._now_s()
        self._late_since: float | None = None
        self._last_late_ticket = 0
        self._delays_in_a_row = 0
        self._ask_again_at = 0.0
        self._longest_pause_s = max(_LONGEST_PAUSE_S, reply_timeout_s)

    @property
    def counters(self) -> DraftCounters:
        """What the drafter did so far."""
        return self._link.counters

    @property
    def available(self) -> bool:
        """Whether drafts can be asked for: the drafter is there and answers in time."""
        return self.is_answering and self._now_s() >= self._ask_again_at

    @property
    def is_answering(self) -> bool:
        """Whether the drafter is there and is not late with an answer."""
        return self._link.is_connected and self._late_since is None

    # -- what happened ---------------------------------------------------------------

    def follow(
        self, request_id: str, token_ids: Sequence[int], terms: RequestTerms = PLAIN_TERMS
    ) -> None:
        """Tell the drafter of a request with all of its tokens, prompt first.

        A drafter that came back knows nobody: whoever sees `counters.returns` grow tells it
        of every request again.
        """
        self.release(request_id)
        self._last_version += 1
        self._followed[request_id] = _Followed(
            version=self._last_version, committed_len=len(token_ids), sampling=terms.sampling
        )
        self._link.add(
            Add(
                request_id,
                self._last_version,
                list(token_ids),
                terms.limit,
                terms.sampling,
                cache_salt=terms.cache_salt,
                adapter=terms.adapter,
            )
        )

    def commit(self, request_id: str, token_ids: Sequence[int]) -> None:
        """Report tokens that the target decided; drafts made before are void."""
        followed = self._followed.get(request_id)
        if followed is None or not token_ids:
            return
        self._link.commit(
            Commit(request_id, followed.version, followed.committed_len, list(token_ids))
        )
        followed.committed_len += len(token_ids)
        followed.held = None

    def release(self, request_id: str) -> None:
        """Forget a request that finished, was aborted or preempted; unknown ids are ignored."""
        followed = self._followed.pop(request_id, None)
        if followed is not None:
            self._link.release(request_id, followed.version)

    def ask(self, request_ids: Sequence[str]) -> None:
        """Ask for k drafts for each of a group, under one ticket; those not followed get none."""
        known = [each for each in request_ids if each in self._followed]
        if not self.available or not known:
            return
        self._last_ticket += 1
        self._asked[self._last_ticket] = tuple(known)
        for request_id in known:
            followed = self._followed[request_id]
            followed.ticket, followed.held = self._last_ticket, None
        self._link.want(
            Want(
                ticket=self._last_ticket,
                request_ids=known,
                num_tokens=self._k,
                lead=self._lead,
            )
        )
        self.counters.tickets += 1

    def flush(self) -> None:
        """Send what was collected."""
        for want in self._link.flush():
            self._sent_at[want.ticket] = self._now_s()

    # -- what is known ---------------------------------------------------------------

    def version(self, request_id: str) -> int | None:
        """Under which the drafter knows this life of a request; None if it does not."""
        followed = self._followed.get(request_id)
        return followed.version if followed is not None and self._link.is_connected else None

    def follows(self, request_id: str) -> bool:
        """Whether drafts can be asked for this request."""
        return request_id in self._followed

    def state(self, request_id: str) -> DraftState:
        """NONE, PENDING or READY; a request that is not followed has NONE."""
        followed = self._followed.get(request_id)
        if followed is None:
            return DraftState.NONE
        if followed.held is not None:
            return DraftState.READY
        if followed.ticket is not None and followed.ticket in self._asked:
            return DraftState.PENDING
        return DraftState.NONE

    def draft_of(self, request_id: str, committed_len: int) -> HeldDraft | None:
        """The draft that continues the request from `committed_len`, and when it was made.

        A draft for another length or another life of the id is never returned.
        """
        followed = self._followed.get(request_id)
        if followed is None or followed.held is None:
            return None
        return followed.held if followed.held.draft.committed_len == committed_len else None

    # -- what comes back -------------------------------------------------------------

    def collect(self) -> None:
        """Take in every answer that is here, and a drafter that came back."""
        if not self._link.is_connected and self._link.revive():
            self._last_answer = self._now_s()
            self._delays_in_a_row, self._ask_again_at = 0, 0.0
            self._followed.clear()
        while self._link.is_connected and (answer := self._receive(0.0)) is not None:
            self._accept(answer)

    def wait(self, request_ids: Collection[str], timeout_s: float) -> bool:
        """Wait until none of these requests is PENDING; False if `timeout_s` passes first."""
        deadline = self._now_s() + timeout_s
        while self._any_pending(request_ids):
            left = deadline - self._now_s()
            if left <= 0:
                break
            answer = self._receive(min(left, _ALIVE_POLL_S))
            if answer is not None:
                self._accept(answer)
        return not self._any_pending(request_ids)

    def close(self) -> None:
        """End the drafter, for good."""
        self._link.close()

    def _now_s(self) -> float:
        return self._clock.now_ns() / 1e9

    def _any_pending(self, request_ids: Collection[str]) -> bool:
        return any(self.state(each) is DraftState.PENDING for each in request_ids)

    def _receive(self, timeout_s: float) -> Drafts | None:
        message = self._link.receive(timeout_s)
        if isinstance(message, Drafts):
            self._note_answer()
            return message
        if message is not None:
            self._link.lose(f"it sent {message!r} when drafts were expected")
        elif self._link.is_connected and (since := self._owing_since()) is not None:
            self._check_delay(since)
        return None

    def _owing_since(self) -> float | None:
        """Since when it owes an answer and gives none; None if it owes none."""
        if self._late_since is not None:
            return self._late_since
        return max(self._last_answer, min(self._sent_at.values())) if self._sent_at else None

    def _check_delay(self, since: float) -> None:
        is_late = self._now_s() - since > self._reply_timeout_s
        if not self._link.lose_if_silent(since) and is_late and self._late_since is None:
            self._note_late(since)

    def _note_answer(self) -> None:
        now = self._last_answer = self._now_s()
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
        self._link.drop_wants()
        for followed in self._followed.values():
            followed.ticket = None

    def _forget_drafts(self) -> None:
        """What a lost drafter made and owed is gone."""
        self._late_since = None
        self._forget_questions()
        for followed in self._followed.values():
            followed.held = None

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
            and has_all_confidences(draft)
        )
        self.counters.stale_drafts += draft is not None and not fits
        kept = draft if fits and draft is not None else empty
        times = PassTimes(answer.start_ns, answer.end_ns, answer.num_passes)
        followed.held = HeldDraft(draft=kept, origins=(times,))
        self.counters.drafts += 1
        self.counters.draft_tokens += len(kept.token_ids)
        if kept.token_ids:
            self._link.proven()
