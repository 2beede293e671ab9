"""The drafter's book: which requests it follows, what is asked of it, what to run next.

Owns the choice of every pass; it runs no model and reads no socket. One shape serves all
modes: a ticket (a group of requests) is drafted up to k tokens and answered when
complete, or at once with what is there; all other time goes into prompts and into guesses
beyond the drafts sent (the lead), which some requests have reported after every pass.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from minedraft.drafter.device import DraftDevice, Guess, Row
from minedraft.drafter.request import DraftedRequest
from minedraft.transport.messages import Add, Commit, Draft, Drafts, Guesses, Update, Want

logger = logging.getLogger(__name__)

_PROMPT_SHARE = 4
"""Beside drafts, prompts get one part in this many of a pass (of a ticket: its first)."""


@dataclass(slots=True, kw_only=True)
class _Ticket:
    want: Want
    members: list[DraftedRequest]
    declined: set[str] = field(default_factory=set)
    start_ns: int = 0
    num_passes: int = 0


@dataclass(slots=True)
class _Budget:
    """Tokens of a pass that some requests have left together."""

    tokens: int


class DraftBook:
    """Applies updates, plans passes, and turns finished tickets into answers.

    `device` is asked for room only. Drafts go with the confidence of each token if
    `sends_confidences`. Not thread-safe.
    """

    def __init__(self, device: DraftDevice, *, sends_confidences: bool = False) -> None:
        self._device = device
        self._sends_confidences = sends_confidences
        self._requests: dict[str, DraftedRequest] = {}
        self._tickets: deque[_Ticket] = deque()
        self._answers: list[Drafts | Guesses] = []
        self._num_added = 0
        self._pass_ticket: _Ticket | None = None
        self._pass_start_ns = 0
        self.has_missed_news = False
        """Whether a message was lost: the scheduler may believe in requests unknown here."""

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def is_expected_to_speak(self) -> bool:
        """Whether a ticket is open, or guesses are reported unasked."""
        is_racing = any(each.is_reported for each in self._requests.values())
        return bool(self._tickets) or is_racing or self.has_missed_news

    def apply(self, update: Update, now_ns: int) -> None:
        """Take in one update; tickets that need no wait are answered at once."""
        for request_id, version in update.releases:
            self._release(request_id, version)
        for add in update.adds:
            self._add(add)
        for commit in update.commits:
            self._commit(commit)
        for want in update.wants:
            self._want(want, now_ns)

    def next_pass(self, now_ns: int) -> list[Row]:
        """The rows of the next pass; empty if there is nothing to do.

        Tickets come first and in their order, then requests whose guesses are reported, with
        a share for prompts beside either, then all other prompts and leads. A request for
        which the KV pool has no room is declined for this ticket and asked again by the next.
        """
        self._pass_start_ns = now_ns
        self._take_in()
        while self._tickets:
            ticket = self._tickets[0]
            rows = self._ticket_rows(ticket)
            if rows:
                if not ticket.num_passes:
                    ticket.start_ns = now_ns
                    rows += self._prompt_rows(self._prompt_budget(rows), rows)
                self._pass_ticket = ticket
                return rows
            self._answer(self._tickets.popleft(), now_ns)
        self._pass_ticket = None
        budget = self._device.info.max_num_batched_tokens
        return self._racing_rows() or self._prompt_rows(budget, ()) or self._lead_rows(budget)

    def _take_in(self) -> None:
        """Let the device see what came for it, once for all of a pass."""
        gone = self._device.take_in()
        for request in self._requests.values() if gone else ():
            if request.key in gone:
                self._device.release(request)
                request.forget_kv()

    def record(
        self, rows: Sequence[Row], guesses: Mapping[str, Sequence[Guess]], now_ns: int
    ) -> None:
        """Note the outcome of a pass, and finish the ticket if it is complete."""
        for row in rows:
            for guess in guesses.get(row.request.key, ()):
                row.request.add_guess(
                    guess.token_id, guess.candidate_ids, guess.candidate_probs, guess.confidence
                )
            row.request.num_fed = row.end
            # The last token is fed again where it yielded none.
            row.request.num_computed = min(row.end, row.request.length - 1)
        self._report([row for row in rows if guesses.get(row.request.key)], now_ns)
        ticket = self._pass_ticket
        if ticket is None:
            return
        ticket.num_passes += 1
        if self._tickets and self._tickets[0] is ticket and not self._open_members(ticket):
            self._answer(self._tickets.popleft(), now_ns)

    def take_answers(self) -> list[Drafts | Guesses]:
        """Answers and reports that are ready to send, oldest first."""
        answers, self._answers = self._answers, []
        return answers

    # -- updates ---------------------------------------------------------------------

    def _release(self, request_id: str, version: int) -> None:
        request = self._requests.get(request_id)
        if request is not None and request.version <= version:
            self._drop(request)

    def _drop(self, request: DraftedRequest) -> None:
        del self._requests[request.request_id]
        request.is_over = True
        self._device.release(request)
        for ticket in self._tickets:
            ticket.declined.add(request.key)

    def _add(self, add: Add) -> None:
        if (known := self._requests.get(add.request_id)) is not None:
            self._drop(known)
        self._num_added += 1
        self._requests[add.request_id] = DraftedRequest(
            request_id=add.request_id,
            version=add.version,
            order=self._num_added,
            committed=list(add.token_ids),
            num_given=len(add.token_ids),
            limit=add.limit,
            sampling=add.sampling,
            lead=add.reported_lead,
            is_reported=add.reported_lead > 0,
            cache_salt=add.cache_salt,
            adapter=add.adapter,
            keeps_kv_of_guesses=not self._device.info.takes_hidden_states,
            renews_guesses=self._device.info.renews_guesses,
        )

    def _commit(self, commit: Commit) -> None:
        request = self._requests.get(commit.request_id)
        if request is None or request.version != commit.version:
            return
        if len(request.committed) != commit.committed_len:
            logger.error(
                "minedraft drafter: request %s has %d tokens here and %d there; it is dropped "
                "and runs without drafts until it is added again",
                commit.request_id,
                len(request.committed),
                commit.committed_len,
            )
            self._drop(request)
            self.has_missed_news = True
            return
        request.commit(commit.token_ids)
        if self._room(request) <= 0:
            # It can never be drafted again; its blocks are of use to others.
            self._device.release(request)
            request.forget_kv()

    def _want(self, want: Want, now_ns: int) -> None:
        known = (self._requests.get(request_id) for request_id in want.request_ids)
        ticket = _Ticket(want=want, members=[each for each in known if each is not None])
        for member in ticket.members:
            member.lead = want.lead if member.limit is None else min(want.lead, member.limit + 1)
        if want.may_wait:
            self._tickets.append(ticket)
        else:
            ticket.start_ns = now_ns
            self._answer(ticket, now_ns)

    # -- tickets ---------------------------------------------------------------------

    def _goal(self, ticket: _Ticket, member: DraftedRequest) -> int:
        """Guesses that complete a member: k, or fewer by its limit or the end of the context."""
        wanted = ticket.want.num_tokens
        limit = wanted if member.limit is None else member.limit
        return max(0, min(wanted, limit, self._room(member)))

    def _open_members(self, ticket: _Ticket) -> list[DraftedRequest]:
        return [
            each
            for each in ticket.members
            if each.key not in ticket.declined
            and not each.is_exhausted
            and len(each.guesses) < self._goal(ticket, each)
        ]

    def _ticket_rows(self, ticket: _Ticket) -> list[Row]:
        """Every open member's missing tokens, shortest first, as far as one pass holds them.

        A member that does not fit is declined (its prompt is still coming in), unless none
        fits: then the ticket is about prompts, which are fed in chunks.
        """
        info = self._device.info
        budget = info.max_num_batched_tokens
        rows: list[Row] = []
        for member in sorted(self._open_members(ticket), key=lambda each: each.num_missing):
            goal = self._goal(ticket, member)
            end = len(member.committed) + goal - 1
            is_ready = self._device.num_ready(member) >= member.length
            late = bool(rows) and member.num_missing > budget
            full = len(rows) == info.max_num_seqs
            if not is_ready or late or full or not self._reserve(member, end, budget, rows):
                ticket.declined.add(member.key)
                continue
            rows.append(_row(member, budget, goal))
            budget -= rows[-1].num_tokens
        return rows

    def _answer(self, ticket: _Ticket, now_ns: int) -> None:
        drafts = []
        for member in ticket.members:
            if self._requests.get(member.request_id) is not member:
                continue
            member.num_sent = min(len(member.guesses), self._goal(ticket, member))
            drafts.append(self._draft(member, member.num_sent))
        self._answers.append(
            Drafts(
                ticket=ticket.want.ticket,
                drafts=drafts,
                start_ns=ticket.start_ns or now_ns,
                end_ns=now_ns,
                num_passes=ticket.num_passes,
            )
        )

    def _draft(self, request: DraftedRequest, count: int) -> Draft:
        """The first `count` guesses of `request` as a draft."""
        return Draft(
            request.request_id,
            request.version,
            len(request.committed),
            request.guesses[:count],
            request.candidates(count),
            request.confidences[:count] if self._sends_confidences else None,
        )

    # -- work without a ticket -------------------------------------------------------

    def _report(self, rows: Sequence[Row], now_ns: int) -> None:
        """Tell what is guessed now for requests that are reported, of rows with new guesses."""
        drafts = [
            self._draft(row.request, len(row.request.guesses))
            for row in rows
            if row.request.is_reported
        ]
        if drafts:
            self._answers.append(
                Guesses(drafts=drafts, start_ns=self._pass_start_ns, end_ns=now_ns)
            )

    def _racing_rows(self) -> list[Row]:
        """One more guess for each reported request that is short of its lead, and a share of
        the pass for prompts; empty if nobody races.

        One that must first catch up with its prompt is no hurry: it would make the pass long
        for all. The oldest come first, so that the newest give way where there is no room.
        """
        limit = self._device.info.max_num_batched_tokens
        racers = {each.key for each in self._short_of_lead() if _is_racing(each)}
        if not racers:
            return []
        behind = {each.key for each in self._behind() if each.key not in racers}
        share = limit // _PROMPT_SHARE if behind else 0
        left = dict.fromkeys(racers, _Budget(limit - share)) | dict.fromkeys(behind, _Budget(share))
        known = (each for each in self._requests.values() if each.key in left)
        return self._fill(((each, left[each.key]) for each in known), ())

    def _prompt_budget(self, rows: Sequence[Row]) -> int:
        limit = self._device.info.max_num_batched_tokens
        return min(limit // _PROMPT_SHARE, limit - sum(row.num_tokens for row in rows))

    def _prompt_rows(self, budget: int, taken: Sequence[Row]) -> list[Row]:
        """Committed tokens whose KV is missing, oldest request first."""
        return self._fill(_sharing(budget, self._behind()), taken)

    def _behind(self) -> list[DraftedRequest]:
        """Requests with committed tokens that a pass could take in now."""
        return [
            each
            for each in self._requests.values()
            if each.num_computed < len(each.committed) - 1 and self._num_ready_new(each)
        ]

    def _num_ready_new(self, request: DraftedRequest) -> int:
        """Tokens that the next pass could take in."""
        return max(0, self._device.num_ready(request) - request.num_computed)

    def _lead_rows(self, budget: int) -> list[Row]:
        """One more guess for each request that is short of its lead, shortest first."""
        short = sorted(self._short_of_lead(), key=lambda each: len(each.guesses))
        return self._fill(_sharing(budget, short), ())

    def _short_of_lead(self) -> list[DraftedRequest]:
        return [
            each
            for each in self._requests.values()
            if not each.is_exhausted and len(each.guesses) < self._lead(each)
        ]

    def _lead(self, request: DraftedRequest) -> int:
        """Guesses to hold unasked, those sent included."""
        return min(request.num_sent + request.lead, self._room(request))

    def _fill(
        self, requests: Iterable[tuple[DraftedRequest, _Budget]], taken: Sequence[Row]
    ) -> list[Row]:
        """The next tokens of each request, as far as its budget reaches and there is room."""
        rows: list[Row] = []
        seen = {row.request.key for row in taken}
        has_room = True
        for request, budget in requests:
            if len(taken) + len(rows) >= self._device.info.max_num_seqs:
                break
            ready = self._num_ready_new(request)
            is_new = not self._device.num_held_blocks(request)
            is_out = request.key in seen or self._room(request) <= 0 or (is_new and not has_room)
            chunk = min(budget.tokens, ready)
            if is_out or chunk <= 0:
                continue
            end = request.num_computed + ready
            if self._reserve(request, end, chunk, [*taken, *rows]):
                size = min(chunk, end - request.num_computed)
                rows.append(_row(request, size, self._lead(request)))
                budget.tokens -= rows[-1].num_tokens
            elif is_new:
                # Those who have no room yet get it in their order; to ask for each of them
                # whenever there is none would cost more than a pass.
                has_room = False
        return rows

    # -- KV pool ---------------------------------------------------------------------

    def _room(self, request: DraftedRequest) -> int:
        return self._device.info.max_model_len - len(request.committed)

    def _reserve(
        self, request: DraftedRequest, num_tokens: int, chunk: int, rows: Sequence[Row]
    ) -> bool:
        """Room in the KV pool, taken from newer requests if that is enough; the oldest finish."""
        if self._device.reserve(request, num_tokens, chunk):
            return True
        victims = self._victims(request, num_tokens, {row.request.key for row in rows})
        for victim in victims:
            self._device.release(victim)
            victim.forget_kv()
        return bool(victims) and self._device.reserve(request, num_tokens, chunk)

    def _victims(
        self, request: DraftedRequest, num_tokens: int, in_pass: set[str]
    ) -> list[DraftedRequest]:
        """The newest requests whose blocks make room for `request`; none if they do not."""
        total = -(-max(num_tokens, len(request.committed)) // self._device.info.block_size)
        short = total - self._device.num_held_blocks(request) - self._device.num_free_blocks
        victims: list[DraftedRequest] = []
        for each in sorted(self._requests.values(), key=lambda each: -each.order):
            if short <= 0 or each.order <= request.order:
                break
            held = self._device.num_held_blocks(each)
            if held and each.key not in in_pass:
                victims.append(each)
                short -= held
        return victims if short <= 0 else []


def _sharing(
    tokens: int, requests: Iterable[DraftedRequest]
) -> Iterator[tuple[DraftedRequest, _Budget]]:
    """Each request with the one budget of them all."""
    budget = _Budget(tokens)
    return ((each, budget) for each in requests)


def _is_racing(request: DraftedRequest) -> bool:
    """Whether its guesses are reported and a pass needs few tokens for the next."""
    return request.is_reported and request.num_missing <= request.lead + 1


def _row(request: DraftedRequest, budget: int, goal: int) -> Row:
    """The next tokens of `request`, at most `budget` of them, towards `goal` guesses."""
    start = request.num_computed
    return Row(
        request=request,
        start=start,
        end=min(request.length, start + budget),
        num_wanted=max(0, goal - len(request.guesses)),
    )
