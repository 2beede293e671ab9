"""The plan: all modes by both conventions, which one is recommended, and by how much.

Owns the choice; figures are `rows`', the wording is `words`'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minedraft.config import MODES
from minedraft.errors import ConfigError
from minedraft.planner.question import Question
from minedraft.planner.row import GOALS, Row
from minedraft.planner.rows import are_replicas_whole, mode_row, replicas_row
from minedraft.validation import check_number

_PAPER_BATCHES = {"two-batch": 2}
"""How many batches the paper's convention gives a mode; one if it is not here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Throughput of two-batch over sequential, each at its own best k."""

    paper: float
    """Two batches of as many requests as the one of sequential: twice as many in flight."""
    fair: float
    """At equal requests in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """See the module. Rows are in the order of `config.MODES`."""

    question: Question
    rows: tuple[Row, ...]
    """Each mode at equal requests in flight; one without a closed form here is missing."""
    paper_rows: tuple[Row, ...]
    """The same by the paper's convention: two-batch with twice the requests in flight."""
    replicas: Row
    """Plain decoding on all devices, the requests spread over them."""
    missing: tuple[tuple[str, str], ...]
    """Modes without a row, and why."""
    paper_missing: tuple[tuple[str, str], ...] = ()
    """The same of the paper's convention."""

    @property
    def candidates(self) -> tuple[Row, ...]:
        """What may be recommended: the rows, and replicas if they are whole engines."""
        whole = (self.replicas,) if are_replicas_whole(self.question) else ()
        return (*self.rows, *whole)

    @property
    def recommended(self) -> Row:
        """The candidate with the most of the goal among those that keep the SLO, or the nearest
        to it if none does; of equal ones the first."""
        return self.best_of(self.candidates)

    @property
    def next_best(self) -> Row | None:
        """The best of the other candidates; None if only the recommended one keeps the SLO."""
        best = self.recommended
        others = [row for row in self.candidates if row is not best]
        others = [row for row in others if row.keeps_slo or not best.keeps_slo]
        return self.best_of(others) if others else None

    @property
    def margin(self) -> float | None:
        """The goal of the recommended row over that of the next best, or None without one.

        Below 1 where nothing keeps the SLO, and the nearest to it is not the fastest.
        """
        other, value = self.next_best, GOALS[self.question.goal]
        return None if other is None else value(self.recommended) / value(other)

    def best_of(self, rows: Sequence[Row]) -> Row:
        """The first of the best of some rows, at least one."""
        return max(rows, key=lambda row: row.rank(self.question.goal))

    @property
    def gain(self) -> Gain | None:
        """Two-batch against sequential, by both conventions; None if a row of them is missing."""
        fair, paper = _by_mode(self.rows), _by_mode(self.paper_rows)
        if not {"two-batch", "sequential"} <= fair.keys() & paper.keys():
            return None
        return Gain(
            paper=paper["two-batch"].tokens_per_s / paper["sequential"].tokens_per_s,
            fair=fair["two-batch"].tokens_per_s / fair["sequential"].tokens_per_s,
        )

    @property
    def paper_winner(self) -> Row:
        """The fastest row by the paper's convention."""
        return max(self.paper_rows, key=lambda row: row.tokens_per_s)


def make_plan(question: Question) -> Plan:
    """All rows of a plan.

    Raises:
        ConfigError: a step of plain decoding takes no time.
    """
    plain_ms = question.load(question.in_flight).step_ms(question.in_flight, 0)
    check_number("verification time in ms", plain_ms, 0.0, low_open=True)
    rows, missing = _rows(question, {})
    paper_rows, paper_missing = _rows(question, _PAPER_BATCHES)
    return Plan(
        question=question,
        rows=rows,
        paper_rows=paper_rows,
        replicas=replicas_row(question),
        missing=missing,
        paper_missing=paper_missing,
    )


def _rows(
    question: Question, batches: dict[str, int]
) -> tuple[tuple[Row, ...], tuple[tuple[str, str], ...]]:
    found: list[Row] = []
    missing: list[tuple[str, str]] = []
    for mode in MODES:
        try:
            found.append(mode_row(question, mode, question.in_flight * batches.get(mode, 1)))
        except ConfigError as error:
            missing.append((mode, str(error).removeprefix("minedraft: ")))
    return tuple(found), tuple(missing)


def _by_mode(rows: Sequence[Row]) -> dict[str, Row]:
    return {row.mode: row for row in rows}
