"""A simulated drafter: what it runs next, and what it tells whom.

Owns the order of passes, which is that of `drafter.book`: tickets first, then requests whose
guesses are reported, then prompts, then leads, with a quarter of a pass for prompts beside the
first two. It may serve several engines; a message is taken in between two passes. What a pass
does to its rows is noted when it begins, since nobody looks at them before it ends.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import deque
from collections.abc import Collection
from dataclasses import replace
from operator import attrgetter

from minedraft.simulator.chains import ChainModel
from minedraft.simulator.clock import Clock
from minedraft.simulator.drafter_room import DrafterLimits, DrafterRoom, Rows
from minedraft.simulator.drafter_work import Pass, Ticket
from minedraft.simulator.kv_pool import KvPool
from minedraft.simulator.lane import Lane, ReportedLane
from minedraft.simulator.link import Link
from minedraft.simulator.messages import Answer, Reply, Update
from minedraft.simulator.request import Draft, DraftedSim, SimRequest

_PROMPT_SHARE = 4
_ORDER = attrgetter("order")
_MISSING = attrgetter("num_missing")


class SimDrafter:
    """See the module. `k`, leads and reporting are the same for all requests."""

    def __init__(
        self,
        clock: Clock,
        limits: DrafterLimits,
        pool: KvPool,
        chains: ChainModel,
        rng: random.Random,
        *,
        k: int,
        lead: int,
        is_reported: bool,
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._chains = chains
        self._rng = rng
        self._k = k
        self._lead = lead
        self._is_reported = is_reported
        self._guesses_ahead = is_reported or lead > 0
        self._known: dict[SimRequest, DraftedSim] = {}
        self._room = DrafterRoom(limits, pool, self._known)
        self._lanes: list[Lane] = []
        self._behind: set[DraftedSim] = set()
        """Those with committed tokens that are not computed."""
        self._changed: set[DraftedSim] = set()
        """Those that may be short of their lead, and are in no lane."""
        self._tickets: deque[Ticket] = deque()
        self._inbox: list[tuple[Update, Lane, Reply]] = []
        self._num_added = 0
        self._running: Pass | None = None
        self.is_up = True
        self.busy_ms = 0.0
        self.num_passes = 0
        self.passes: list[tuple[float, float]] | None = None
        """Begin and end of each pass, if somebody set a list to keep them in."""

    # -- messages ----------------------------------------------------------------------

    def attach(self, reports: Link) -> Lane:
        """Serve an engine: its requests' lane, which reports by this link if any are made."""
        self._lanes.append(ReportedLane(reports) if self._is_reported else Lane())
        return self._lanes[-1]

    def receive(self, update: Update, home: Lane, reply: Reply) -> None:
        """Take a message in, now or after the pass that runs; one to a dead drafter is lost."""
        if not self.is_up:
            return
        self._inbox.append((update, home, reply))
        if self._running is None:
            self._go_on()
        elif update.releases and len(self._running.ends_ms) > 1:
            self._cut_short(self._running, update)

    def fail(self) -> None:
        """Die: everything known is forgotten, and the pass that runs comes to nothing."""
        self.is_up = False
        if self._running is not None:
            self._count_passes(self._running, self._clock.now_ms)
        self._running = None
        self._inbox.clear()
        self._tickets.clear()
        for each in self._known.values():
            self._room.release(each)
            each.request.drafted = None
        for lane in self._lanes:
            lane.forget()
        self._known.clear()
        self._behind.clear()
        self._changed.clear()

    def restart(self) -> None:
        """Come back, knowing nobody."""
        self.is_up = True

    def _apply(self, update: Update, home: Lane, reply: Reply) -> None:
        for request, version in update.releases:
            self._release(request, version)
        for request, version, length in update.adds:
            self._release(request, version)
            self._add(request, version, length, home)
        for request, version, num_tokens in update.commits:
            known = request.drafted
            if known is not None and known.version == version:
                if known.lane is not None:
                    known.lane.leave(known)
                known.commit(num_tokens)
                self._note(known)
        for group in update.wants:
            members = [
                known
                for request, version in group
                if (known := request.drafted) is not None and known.version == version
            ]
            for member in members:
                member.lead = self._lead
                if member.lane is not None:
                    member.lane.leave(member)
                    self._note(member)
            self._tickets.append(Ticket(group, members, reply, Lane(), set()))

    def _add(self, request: SimRequest, version: int, length: int, home: Lane) -> None:
        self._num_added += 1
        known = DraftedSim(
            request=request,
            version=version,
            order=self._num_added,
            num_committed=length,
            home=home,
            lead=2 * self._k + 1 if self._is_reported else 0,
        )
        self._known[request] = request.drafted = known
        self._note(known)

    def _release(self, request: SimRequest, version: int) -> None:
        known = request.drafted
        if known is None or known.version > version:
            return
        if known.lane is not None:
            known.lane.leave(known)
        del self._known[request]
        request.drafted = None
        self._behind.discard(known)
        self._changed.discard(known)
        self._room.release(known)
        for ticket in self._tickets:
            ticket.declined.add(known)

    def _note(self, drafted: DraftedSim) -> None:
        """Look at a request that is in no lane when the next pass is planned."""
        if self._guesses_ahead:
            self._changed.add(drafted)
        if drafted.num_computed < drafted.num_committed - 1:
            self._behind.add(drafted)
        else:
            self._behind.discard(drafted)

    # -- passes ------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Take in what came, and start the next pass if there is one."""
        if self._inbox:
            inbox, self._inbox = self._inbox, []
            for update, home, reply in inbox:
                self._apply(update, home, reply)
        work = self._next_pass()
        num_rows, num_tokens, kv = work.num_rows, work.num_tokens, work.num_kv_tokens
        for lane in work.lanes:
            if num_members := lane.num_members:
                num_rows += num_members
                num_tokens += num_members
                kv += lane.num_kv_tokens
        if not num_rows:
            return
        now_ms = self._clock.now_ms
        end_ms = now_ms + self._limits.latency.pass_ms(num_tokens, num_rows, kv)
        work.start_ms, work.ends_ms = now_ms, (end_ms,)
        if work.ticket is not None and work.ticket.lane.num_members:
            work.ends_ms = self._with_those_alike(end_ms, work.ticket.lane)
        self._start(work)

    def _with_those_alike(self, end_ms: float, lane: Lane) -> list[float]:
        """The end of a ticket's pass, and of those like it, up to that of the next complete draft.

        No message changes these passes, save one that takes a member away.
        """
        ends_ms, num_members = [end_ms], lane.num_members
        kv, pass_ms = lane.num_kv_tokens, self._limits.latency.pass_ms
        for _ in range(lane.num_turns_alike - 1):
            kv += num_members
            end_ms += pass_ms(num_members, num_members, kv)
            ends_ms.append(end_ms)
        return ends_ms

    def _start(self, work: Pass) -> None:
        self._running = work

        def end() -> None:
            if self._running is work:
                self._end(work)

        self._clock.at(work.ends_ms[-1], end)

    def _cut_short(self, work: Pass, update: Update) -> None:
        """End a ticket's passes with the one that runs, if it loses a member."""
        lane = None if work.ticket is None else work.ticket.lane
        lives = (each.drafted for each, _ in update.releases)
        if any(each is not None and each.lane is lane for each in lives):
            at = bisect_left(work.ends_ms, self._clock.now_ms)
            self._start(replace(work, ends_ms=work.ends_ms[: at + 1]))

    def _count_passes(self, work: Pass, now_ms: float) -> None:
        start_ms = work.start_ms
        for end_ms in work.ends_ms:
            if end_ms > now_ms:
                return
            self.busy_ms += end_ms - start_ms
            self.num_passes += 1
            if self.passes is not None:
                self.passes.append((start_ms, end_ms))
            start_ms = end_ms

    def _end(self, work: Pass) -> None:
        self._running = None
        self._count_passes(work, self._clock.now_ms)
        num_more = len(work.ends_ms) - 1
        for lane in work.lanes:
            if lane.num_members:
                lane.turn += num_more
                done = lane.advance()
                if done and self._guesses_ahead:
                    self._changed.update(done)
        ticket = work.ticket
        if ticket is not None:
            ticket.num_passes += 1 + num_more
            if not ticket.lane.num_members and not self._open(ticket):
                self._tickets.popleft()
                self._answer(ticket)
        self._go_on()

    def _next_pass(self) -> Pass:
        while self._tickets:
            ticket = self._tickets[0]
            work = self._ticket_pass(ticket)
            if work.num_rows or ticket.lane.num_members:
                return work
            self._answer(self._tickets.popleft())
        return self._racing_pass() if self._is_reported else self._idle_pass()

    def _take_in(
        self, work: Pass, drafted: DraftedSim, size: int, lane: Lane | None = None, goal: int = 0
    ) -> None:
        """Note a row: a request that takes in all it misses gets a guess, or `goal` in a lane."""
        drafted.num_computed += size
        is_whole = drafted.num_computed == drafted.num_committed + drafted.num_guesses
        work.num_tokens += size
        if is_whole and drafted.num_right < 0:
            drafted.num_right = self._chains.draw(self._rng, self._k)
        if is_whole and lane is not None:
            self._behind.discard(drafted)
            self._changed.discard(drafted)
            lane.join(drafted, goal)
            work.num_tokens -= 1  # the lane counts it
            return
        work.num_rows += 1
        work.num_kv_tokens += drafted.num_computed
        drafted.num_guesses += is_whole
        self._note(drafted)

    # -- tickets -----------------------------------------------------------------------

    def _ticket_pass(self, ticket: Ticket) -> Pass:
        """All open members, and with the first pass a share of prompts."""
        work = Pass((ticket.lane,), ticket)
        if ticket.lane.num_members:
            return work
        rows = self._ticket_rows(ticket)
        if not rows:
            return work
        prompts: Rows = []
        if not ticket.num_passes:
            ticket.start_ms = self._clock.now_ms
            if self._behind:
                budget = self._limits.max_num_batched_tokens
                share = min(budget // _PROMPT_SHARE, budget - sum([size for _, size in rows]))
                prompts = self._room.fill(self._in_order(self._behind), share, dict(rows))
        self._note_victims()
        for member, size in rows:
            self._take_in(work, member, size, ticket.lane, self._goal(member))
        for each, size in prompts:
            self._take_in(work, each, size)
        return work

    def _ticket_rows(self, ticket: Ticket) -> Rows:
        budget = self._limits.max_num_batched_tokens
        rows: Rows = []
        is_endless, max_num_seqs = self._room.is_endless, self._limits.max_num_seqs
        for member in sorted(self._open(ticket), key=_MISSING):
            size = member.num_missing
            late = size > budget and bool(rows)
            if (
                late
                or len(rows) == max_num_seqs
                or not (
                    is_endless
                    or self._room.reserve(
                        member, member.num_committed + self._goal(member) - 1, rows
                    )
                )
            ):
                ticket.declined.add(member)
                continue
            if size > budget:
                size = budget
            rows.append((member, size))
            budget -= size
        return rows

    def _goal(self, member: DraftedSim) -> int:
        left = self._limits.max_model_len - member.num_committed
        return self._k if left >= self._k else max(0, left)

    def _open(self, ticket: Ticket) -> list[DraftedSim]:
        k, declined = self._k, ticket.declined
        return [
            each
            for each in ticket.members
            if each.num_guesses < k and each.num_guesses < self._goal(each) and each not in declined
        ]

    def _answer(self, ticket: Ticket) -> None:
        answer: Answer = []
        end_ms = self._clock.now_ms
        start_ms = end_ms if ticket.start_ms is None else ticket.start_ms
        for member in ticket.members:
            if member.request.drafted is not member:
                continue
            count = member.num_sent = min(member.num_guesses, self._goal(member))
            # Without guesses there may be no chain, whose -1 would not do.
            right = min(count, member.num_right) if count else 0
            draft = Draft(member.num_committed, count, right, start_ms, end_ms, ticket.num_passes)
            answer.append((member.request, member.version, draft))
            if self._guesses_ahead:
                self._changed.add(member)
        ticket.reply(answer, ticket.asked)

    # -- work without a ticket -----------------------------------------------------------

    def _racing_pass(self) -> Pass:
        """A guess for each that is short of its lead, and a share for prompts.

        One that must first catch up with its prompt is no hurry: it is one of the prompts.
        """
        if not self._changed and not self._behind:
            return Pass(self._lanes)  # whose members fitted into the last one
        budget = self._limits.max_num_batched_tokens
        racers = self._short(racing=True) if self._changed else []
        behind = self._in_order(self._behind.difference(racers)) if self._behind else []
        share = budget // _PROMPT_SHARE if behind else 0
        is_roomy, racers = self._make_room(racers, budget - share, racing=True)
        if is_roomy and not behind:
            return self._advancing([(each, each.num_missing) for each in racers], True)
        num_racing = sum([lane.num_members for lane in self._lanes])
        if is_roomy:
            rows = [(each, each.num_missing) for each in racers]
        else:
            rows = self._room.fill(racers, budget - share)
        if racers or num_racing:
            rows += self._room.fill(behind, share, dict(rows), num_racing)
        if not rows and not num_racing:
            rows = self._room.fill(behind, budget) or self._room.fill(racers, budget)
        return self._advancing(rows, is_roomy)

    def _idle_pass(self) -> Pass:
        """Prompts, or if there are none, a guess for each that is short of its lead."""
        budget = self._limits.max_num_batched_tokens
        if self._behind:
            rows = self._room.fill(self._in_order(self._behind), budget)
            self._note_victims()
            if rows:
                work = Pass(())
                for each, size in rows:
                    self._take_in(work, each, size)
                return work
        is_roomy, short = self._make_room(self._short(), budget)
        if is_roomy:
            return self._advancing([(each, each.num_missing) for each in short], True)
        return self._advancing(self._room.fill(short, budget), False)

    def _advancing(self, rows: Rows, is_roomy: bool) -> Pass:
        """A pass of all lanes and these rows, which join them: for one pass, or where there is
        room for everyone, until they have their lead."""
        self._note_victims()
        work, longest = Pass(self._lanes), self._limits.max_model_len
        for each, size in rows:
            goal = each.num_guesses + 1
            if is_roomy:
                goal = max(goal, min(each.num_sent + each.lead, longest - each.num_committed))
            self._take_in(work, each, size, each.home, goal)
        return work

    def _short(self, *, racing: bool = False) -> list[DraftedSim]:
        """Those outside the lanes that are short of their lead, oldest first; or of these
        only the racers, who need few tokens for their next guess."""
        longest = self._limits.max_model_len
        short = [
            each
            for each in self._changed
            if each.num_guesses < each.num_sent + each.lead
            and each.num_committed + each.num_guesses < longest
            and not (racing and each.num_missing > each.lead + 1)
        ]
        if len(short) < len(self._changed):
            self._changed = set(short)
        return self._in_order(short)

    def _make_room(
        self, short: list[DraftedSim], budget: int, *, racing: bool = False
    ) -> tuple[bool, list[DraftedSim]]:
        """Whether a pass holds all lanes and all these; if not, the lanes are empty now, and
        their members are among those who want a row."""
        num_members = sum([lane.num_members for lane in self._lanes])
        num_tokens = num_members + sum([each.num_missing for each in short])
        is_within = num_tokens <= budget and num_members + len(short) <= self._limits.max_num_seqs
        if is_within and self._room.is_endless:
            return True, short
        if not num_members:
            return False, short
        for each in self._known.values():
            if each.lane is not None:
                each.lane.leave(each)
                self._note(each)
        return False, self._short(racing=racing)

    def _in_order(self, drafted: Collection[DraftedSim]) -> list[DraftedSim]:
        return sorted(drafted, key=_ORDER) if drafted else []

    def _note_victims(self) -> None:
        if self._room.victims:
            for each in self._room.victims:
                self._note(each)
            self._room.victims.clear()
