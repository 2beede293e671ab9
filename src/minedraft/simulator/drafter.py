"""A simulated drafter: what it runs next, and what it tells whom.

Owns the order of passes, which is that of `drafter.book`: tickets first, then requests whose
guesses are reported, then prompts, then leads, with a quarter of a pass for prompts beside the
first two. It may serve several engines; a message is taken in between two passes.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from minedraft.emulation import LatencyModel
from minedraft.simulator.chains import ChainModel
from minedraft.simulator.clock import Clock
from minedraft.simulator.kv_pool import KvPool
from minedraft.simulator.request import Draft, DraftedSim, SimRequest

_PROMPT_SHARE = 4

Answer = list[tuple[SimRequest, int, Draft]]
"""Drafts by request and version."""
Lives = tuple[tuple[SimRequest, int], ...]
"""Requests with the version that is meant."""
Reply = Callable[[Answer, Lives], None]
"""Takes an answer to the engine that follows the requests, with all for which it was asked."""


@dataclass(slots=True, kw_only=True)
class Update:
    """What an engine tells its drafter in one message; requests go with their version."""

    releases: list[tuple[SimRequest, int]] = field(default_factory=list)
    adds: list[tuple[SimRequest, int, int]] = field(default_factory=list)
    """With their length."""
    commits: list[tuple[SimRequest, int, int]] = field(default_factory=list)
    """With the number of new tokens."""
    wants: list[Lives] = field(default_factory=list)

    @property
    def num_requests(self) -> int:
        """Requests named."""
        wanted = sum(map(len, self.wants))
        return len(self.releases) + len(self.adds) + len(self.commits) + wanted

    @property
    def num_tokens(self) -> int:
        """Token ids that travel."""
        return sum(each[2] for each in self.adds) + sum(each[2] for each in self.commits)


@dataclass(slots=True, kw_only=True)
class _Ticket:
    asked: Lives
    members: list[DraftedSim]
    reply: Reply
    declined: set[DraftedSim] = field(default_factory=set)
    start_ms: float | None = None
    num_passes: int = 0


@dataclass(slots=True, kw_only=True)
class DrafterLimits:
    """What the device holds and takes."""

    latency: LatencyModel
    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int


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
        self._pool = pool
        self._chains = chains
        self._rng = rng
        self._k = k
        self._lead = lead
        self._is_reported = is_reported
        self._known: dict[SimRequest, DraftedSim] = {}
        self._reply_of: dict[SimRequest, Reply] = {}
        self._tickets: deque[_Ticket] = deque()
        self._inbox: list[tuple[Update, Reply]] = []
        self._num_added = 0
        self._life = 0
        self._is_running = False
        self.is_up = True
        self.busy_ms = 0.0
        self.num_passes = 0
        self.passes: list[tuple[float, float]] | None = None
        """Begin and end of each pass, if somebody set a list to keep them in."""

    # -- messages ----------------------------------------------------------------------

    def receive(self, update: Update, reply: Reply) -> None:
        """Take a message in, now or after the pass that runs; one to a dead drafter is lost."""
        if not self.is_up:
            return
        self._inbox.append((update, reply))
        if not self._is_running:
            self._go_on()

    def fail(self) -> None:
        """Die: everything known is forgotten, and the pass that runs comes to nothing."""
        self.is_up = False
        self._life += 1
        self._is_running = False
        self._inbox.clear()
        self._tickets.clear()
        for each in self._known.values():
            self._pool.release(each)
        self._known.clear()
        self._reply_of.clear()

    def restart(self) -> None:
        """Come back, knowing nobody."""
        self.is_up = True

    def _apply(self, update: Update, reply: Reply) -> None:
        for request, version in update.releases:
            self._release(request, version)
        for request, version, length in update.adds:
            self._release(request, version)
            self._num_added += 1
            self._reply_of[request] = reply
            self._known[request] = DraftedSim(
                request=request,
                version=version,
                order=self._num_added,
                num_committed=length,
                lead=2 * self._k + 1 if self._is_reported else 0,
                is_reported=self._is_reported,
            )
        for request, version, num_tokens in update.commits:
            known = self._known.get(request)
            if known is not None and known.version == version:
                known.commit(num_tokens)
        for group in update.wants:
            members = [
                known
                for request, version in group
                if (known := self._known.get(request)) is not None and known.version == version
            ]
            for member in members:
                member.lead = self._lead
            self._tickets.append(_Ticket(asked=group, members=members, reply=reply))

    def _release(self, request: SimRequest, version: int) -> None:
        known = self._known.get(request)
        if known is None or known.version > version:
            return
        del self._known[request], self._reply_of[request]
        self._pool.release(known)
        for ticket in self._tickets:
            ticket.declined.add(known)

    # -- passes ------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Take in what came, and start the next pass if there is one."""
        inbox, self._inbox = self._inbox, []
        for update, reply in inbox:
            self._apply(update, reply)
        ticket, rows = self._next_pass()
        if not rows:
            return
        self._is_running = True
        num_tokens = sum(size for _, size in rows)
        kv = sum(each.num_computed + size for each, size in rows)
        pass_ms = self._limits.latency.pass_ms(num_tokens, len(rows), kv)
        start_ms, life = self._clock.now_ms, self._life

        def end() -> None:
            if life == self._life:
                self._end_pass(ticket, rows, start_ms)

        self._clock.at(start_ms + pass_ms, end)

    def _end_pass(
        self, ticket: _Ticket | None, rows: list[tuple[DraftedSim, int]], start_ms: float
    ) -> None:
        self._is_running = False
        self.busy_ms += self._clock.now_ms - start_ms
        self.num_passes += 1
        if self.passes is not None:
            self.passes.append((start_ms, self._clock.now_ms))
        for drafted, size in rows:
            if self._known.get(drafted.request) is not drafted:
                continue
            drafted.num_computed += size
            if drafted.num_computed == drafted.length:
                if drafted.num_right < 0:
                    drafted.num_right = self._chains.draw(self._rng, self._k)
                drafted.num_guesses += 1
        self._report(rows, start_ms)
        if ticket is not None:
            ticket.num_passes += 1
            if self._tickets and self._tickets[0] is ticket and not self._open(ticket):
                self._answer(self._tickets.popleft())
        self._go_on()

    def _next_pass(self) -> tuple[_Ticket | None, list[tuple[DraftedSim, int]]]:
        budget = self._limits.max_num_batched_tokens
        while self._tickets:
            ticket = self._tickets[0]
            rows = self._ticket_rows(ticket)
            if rows:
                if not ticket.num_passes:
                    ticket.start_ms = self._clock.now_ms
                    left = budget - sum(size for _, size in rows)
                    taken = {each for each, _ in rows}
                    share = min(budget // _PROMPT_SHARE, left)
                    rows += self._fill(self._behind(), share, taken)
                return ticket, rows
            self._answer(self._tickets.popleft())
        rows = self._racing_rows(budget) if self._is_reported else []
        rows = rows or self._fill(self._behind(), budget, set())
        return None, rows or self._fill(self._short(), budget, set())

    def _racing_rows(self, budget: int) -> list[tuple[DraftedSim, int]]:
        racers = [each for each in self._short() if each.num_missing <= each.lead + 1]
        if not racers:
            return []
        racing = set(racers)
        behind = [each for each in self._behind() if each not in racing]
        share = budget // _PROMPT_SHARE if behind else 0
        rows = self._fill(racers, budget - share, set())
        return rows + self._fill(behind, share, set(), len(rows))

    def _behind(self) -> Iterator[DraftedSim]:
        """Those with committed tokens that are not computed, oldest first."""
        return (each for each in self._known.values() if each.num_computed < each.num_committed - 1)

    def _short(self) -> list[DraftedSim]:
        longest = self._limits.max_model_len
        return [
            each
            for each in self._known.values()
            if each.num_guesses < each.num_sent + each.lead
            and each.num_committed + each.num_guesses < longest
        ]

    def _goal(self, member: DraftedSim) -> int:
        return max(0, min(self._k, self._room(member)))

    def _room(self, drafted: DraftedSim) -> int:
        return self._limits.max_model_len - drafted.num_committed

    def _open(self, ticket: _Ticket) -> list[DraftedSim]:
        return [
            each
            for each in ticket.members
            if each not in ticket.declined and each.num_guesses < self._goal(each)
        ]

    def _ticket_rows(self, ticket: _Ticket) -> list[tuple[DraftedSim, int]]:
        budget = self._limits.max_num_batched_tokens
        rows: list[tuple[DraftedSim, int]] = []
        for member in sorted(self._open(ticket), key=lambda each: each.num_missing):
            late = bool(rows) and member.num_missing > budget
            full = len(rows) == self._limits.max_num_seqs
            end = member.num_committed + self._goal(member) - 1
            if late or full or not self._reserve(member, end, rows):
                ticket.declined.add(member)
                continue
            size = min(member.num_missing, budget)
            rows.append((member, size))
            budget -= size
        return rows

    def _fill(
        self,
        wanting: Iterable[DraftedSim],
        budget: int,
        taken: set[DraftedSim],
        num_others: int = 0,
    ) -> list[tuple[DraftedSim, int]]:
        """The next tokens of each, as far as the budget and the KV pool reach."""
        rows: list[tuple[DraftedSim, int]] = []
        num_others = max(num_others, len(taken))
        for each in wanting:
            if budget <= 0 or num_others + len(rows) >= self._limits.max_num_seqs:
                break
            if each in taken or self._room(each) <= 0:
                continue
            if self._reserve(each, each.length, rows):
                size = min(each.num_missing, budget)
                rows.append((each, size))
                budget -= size
        return rows

    def _reserve(
        self, drafted: DraftedSim, num_tokens: int, rows: Sequence[tuple[DraftedSim, int]]
    ) -> bool:
        """Room in the pool, taken from newer requests if need be."""
        num_tokens = max(num_tokens, drafted.num_committed)
        if self._pool.reserve(drafted, num_tokens):
            return True
        in_pass = {each for each, _ in rows}
        newer = [
            each
            for each in sorted(self._known.values(), key=lambda each: -each.order)
            if each.order > drafted.order and each.num_blocks and each not in in_pass
        ]
        # Nobody gives way for nothing: two that never fit would take turns for ever.
        if not self._pool.has(drafted, num_tokens, sum(each.num_blocks for each in newer)):
            return False
        for victim in newer:
            self._pool.release(victim)
            victim.forget_kv()
            if self._pool.reserve(drafted, num_tokens):
                return True
        return False

    # -- answers -----------------------------------------------------------------------

    def _answer(self, ticket: _Ticket) -> None:
        answer: Answer = []
        start_ms = self._clock.now_ms if ticket.start_ms is None else ticket.start_ms
        for member in ticket.members:
            if self._known.get(member.request) is not member:
                continue
            member.num_sent = min(member.num_guesses, self._goal(member))
            draft = self._draft(member, member.num_sent, start_ms, ticket.num_passes)
            answer.append((member.request, member.version, draft))
        ticket.reply(answer, ticket.asked)

    def _report(self, rows: Sequence[tuple[DraftedSim, int]], start_ms: float) -> None:
        if not self._is_reported:
            return
        reports: dict[Reply, Answer] = {}
        end_ms = self._clock.now_ms
        for drafted, _ in rows:
            guesses, request = drafted.num_guesses, drafted.request
            if guesses and self._known.get(request) is drafted:
                right = drafted.num_right if drafted.num_right < guesses else guesses
                draft = Draft(drafted.num_committed, guesses, right, start_ms, end_ms, 1)
                answer = reports.setdefault(self._reply_of[request], [])
                answer.append((request, drafted.version, draft))
        for reply, answer in reports.items():
            reply(answer, ())

    def _draft(self, drafted: DraftedSim, count: int, start_ms: float, num_passes: int) -> Draft:
        return Draft(
            length=drafted.num_committed,
            num_guesses=count,
            num_right=min(count, max(0, drafted.num_right)),
            start_ms=start_ms,
            end_ms=self._clock.now_ms,
            num_passes=num_passes,
        )
