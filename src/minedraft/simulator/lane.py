"""Requests that a drafter drafts in lockstep: each gets one guess in every pass.

Owns the arithmetic that makes such a pass cost the same however many requests take part, and
what an engine has been told of them by a given time. Who joins, and when, is the drafter's.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from minedraft.simulator.link import Link
from minedraft.simulator.request import DraftedSim, SimRequest


@dataclass(slots=True)
class Span:
    """What is reported of a request while its committed length stays the same.

    After turn t, first < t, it has min(t, until) - since guesses; the chain that they begin
    holds `num_right` right ones.
    """

    first: int
    length: int
    since: int
    until: int
    num_right: int


class Lane:
    """Members get a guess in every pass that the lane takes part in: a turn."""

    __slots__ = ("_leaving", "_sum_lengths", "_sum_since", "num_members", "turn")

    def __init__(self) -> None:
        self.turn = 0
        self.num_members = 0
        self._sum_lengths = 0
        """Of committed tokens less `since`."""
        self._sum_since = 0
        self._leaving: dict[int, list[DraftedSim]] = {}

    @property
    def num_kv_tokens(self) -> int:
        """Of all members together, after the pass of the next turn."""
        return self._sum_lengths + self.num_members * self.turn

    @property
    def num_turns_alike(self) -> int:
        """Turns until the next member leaves, if none does before."""
        return min(self._leaving) - self.turn

    def join(self, drafted: DraftedSim, goal: int) -> None:
        """Give it guesses from the next turn on, until it has `goal`; it needs one at least."""
        since = self.turn - drafted.num_guesses
        until = since + goal
        drafted.lane, drafted.since, drafted.until = self, since, until
        self.num_members += 1
        self._sum_lengths += drafted.num_committed - since
        self._sum_since += since
        leaving = self._leaving.get(until)
        if leaving is None:
            self._leaving[until] = [drafted]
        else:
            leaving.append(drafted)

    def leave(self, drafted: DraftedSim) -> None:
        """Take a member out; it keeps its guesses."""
        since = drafted.since
        drafted.lane = None
        self.num_members -= 1
        self._sum_lengths -= drafted.num_committed - since
        self._sum_since -= since
        drafted.num_guesses = num_guesses = self.turn - since
        drafted.num_computed = drafted.num_committed + num_guesses - 1

    def advance(self) -> list[DraftedSim]:
        """Note that the pass of a turn ended; returns the members that have what they wanted."""
        self.turn = turn = self.turn + 1
        listed = self._leaving.pop(turn, None)
        return [] if listed is None else self._leavers(listed)

    def _leavers(self, listed: list[DraftedSim]) -> list[DraftedSim]:
        # Those who left before, or came back for more, are still on the list.
        done = []
        for each in listed:
            if each.lane is self and each.until == self.turn:
                self.leave(each)
                done.append(each)
        return done

    def forget(self) -> None:
        """Note that the drafter died: nobody is a member."""
        self.num_members = self._sum_lengths = self._sum_since = 0
        self._leaving.clear()


class ReportedLane(Lane):
    """A lane whose members' guesses are told to their engine after every turn.

    Such a report wakes nobody, so that it is no event: when it arrives is noted, and `see` and
    `guesses` say what is known at the other end.
    """

    __slots__ = ("_reports", "_seen", "_under_way")

    def __init__(self, reports: Link) -> None:
        super().__init__()
        self._reports = reports
        self._under_way: deque[tuple[float, int]] = deque()
        self._seen = 0

    def join(self, drafted: DraftedSim, goal: int) -> None:
        """See Lane."""
        super().join(drafted, goal)
        spans, since = drafted.spans, drafted.since
        if spans:
            last = spans[-1]
            is_same = last.length == drafted.num_committed and last.num_right == drafted.num_right
            if is_same and last.since == since and last.until == self.turn:
                last.until = drafted.until
                return
        spans.append(
            Span(self.turn, drafted.num_committed, since, drafted.until, drafted.num_right)
        )

    def leave(self, drafted: DraftedSim) -> None:
        """See Lane."""
        super().leave(drafted)
        drafted.spans[-1].until = self.turn

    def advance(self) -> list[DraftedSim]:
        """See Lane."""
        self.turn = turn = self.turn + 1
        num_members = self.num_members
        num_tokens = num_members * turn - self._sum_since
        self._under_way.append((self._reports.arrival_ms(num_members, num_tokens), turn))
        listed = self._leaving.pop(turn, None)
        return [] if listed is None else self._leavers(listed)

    def forget(self) -> None:
        """See Lane; reports that are under way are lost."""
        super().forget()
        self._under_way.clear()

    def see(self, now_ms: float) -> None:
        """Take in the reports that arrived before `now_ms`."""
        under_way = self._under_way
        while under_way and under_way[0][0] < now_ms:
            self._seen = under_way.popleft()[1]

    def guesses(self, request: SimRequest) -> tuple[int, int]:
        """How many guesses continue all tokens of a request, and how many of them are right.

        Those of the last report seen; tokens that came since must be what was guessed.
        """
        drafted = request.drafted
        if drafted is None or drafted.version != request.version:
            return 0, 0
        spans, seen = drafted.spans, self._seen
        while len(spans) > 1 and spans[1].first < seen:
            del spans[0]
        if not spans or spans[0].first >= seen:
            return 0, 0
        span = spans[0]
        num_guesses = (seen if seen < span.until else span.until) - span.since
        num_right = num_guesses if num_guesses < span.num_right else span.num_right
        passed = request.num_tokens - span.length
        if num_right < passed or num_guesses <= passed:
            return 0, 0
        return num_guesses - passed, num_right - passed
