"""A plan in words: the recommendation, what it rests on, and the table.

Owns sentences and columns; it decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from minedraft.bench.metrics import Slo
from minedraft.planner.plan import Plan
from minedraft.planner.row import Row

_HEAD = (
    "mode",
    "on",
    "k",
    "tokens/s",
    "per device",
    "ms/token",
    "TTFT ms",
    "SLO",
    "drafter busy",
    "in flight",
    "k",
    "tokens/s",
)

_SURE = 1.05
"""A margin below is within what simulations of the modes differ from their forms."""


def text_of(plan: Plan) -> str:
    """The whole answer of `minedraft plan`."""
    return "\n".join([*_recommendation(plan), "", *_table(plan), "", *_remarks(plan)])


def gain_sentence(plan: Plan) -> str:
    """Whether two-batch beats sequential by each convention, and if only one says so, that."""
    n, gain = plan.question.in_flight, plan.gain
    if gain is None:
        return f"Two-batch and sequential cannot be compared: {_why_missing(plan)}."
    paper = f"by the paper's convention ({2 * n} requests in flight against {n}): {gain.paper:.2f}"
    fair = f"at equal requests in flight ({n}): {gain.fair:.2f}"
    if gain.paper > 1 >= gain.fair:
        return (
            f"Two-batch wins over sequential {paper} times its tokens/s; but would not {fair} "
            "times. The gain is that of more requests in flight."
        )
    verdict = {(True, True): "wins", (False, False): "does not win"}
    words = verdict.get((gain.paper > 1, gain.fair > 1), "wins only at equal requests in flight")
    return f"Two-batch {words} over sequential, {paper} times its tokens/s, and {fair} times."


def _why_missing(plan: Plan) -> str:
    """Why two-batch or sequential has no row by one of the conventions."""
    n = plan.question.in_flight
    fair = ((f"at {n} in flight", *each) for each in plan.missing)
    paper = ((f"by the paper's convention ({n} a batch)", *each) for each in plan.paper_missing)
    compared = ("two-batch", "sequential")
    return next(
        f"{mode} has no row {at}, {why}" for at, mode, why in chain(fair, paper) if mode in compared
    )


def _recommendation(plan: Plan) -> Iterator[str]:
    best, question = plan.recommended, plan.question
    draft = f", k = {best.k}" if best.k else ""
    yield (
        f"Recommended for {question.goal}: {best.mode}{draft}, on {best.placement} "
        f"({_devices(best.num_devices)})"
    )
    yield f"  {question.source.title}"
    yield (
        f"  {best.tokens_per_s:.1f} tokens/s, {best.tokens_per_s_per_device:.1f} per device, "
        f"{best.ms_per_token:.2f} ms per token, TTFT about {best.ttft_ms:.0f} ms"
    )
    if question.slo is not None:
        yield f"  {_slo_words(plan, question.slo)}"
    yield f"  {_margin_words(plan)}"


def _slo_words(plan: Plan, slo: Slo) -> str:
    bounds = ", ".join(
        f"{name} {bound:g} ms"
        for name, bound in (("TTFT", slo.ttft_ms), ("TPOT", slo.tpot_ms))
        if bound is not None
    )
    if plan.recommended.keeps_slo:
        return f"keeps the SLO ({bounds})"
    return (
        f"NOTHING keeps the SLO ({bounds}): this comes nearest, "
        f"{plan.recommended.slo_excess:.2f} times a bound; fewer requests in flight may do"
    )


def _margin_words(plan: Plan) -> str:
    other = plan.next_best
    if other is None or plan.margin is None:
        rivals = len(plan.candidates) > 1
        return "no other mode keeps the SLO" if rivals else "there is no other row to compare it to"
    draft = f", k = {other.k}" if other.k else ""
    doubt = "; too close to tell by closed forms" if 1 / _SURE < plan.margin < _SURE else ""
    return (
        f"{plan.margin:.3f} times the next best, {other.mode}{draft}, on {other.placement}{doubt}"
    )


def _table(plan: Plan) -> list[str]:
    by_mode = {row.mode: row for row in plan.paper_rows}
    lines = [_cells(row, by_mode.get(row.mode)) for row in plan.rows]
    lines.append(_cells(plan.replicas, None))
    widths = [max(map(len, column)) for column in zip(_HEAD, *lines, strict=True)]
    left = sum(widths[:9]) + 2 * 8
    fair, paper = f"at {plan.question.in_flight} in flight", "| the paper's convention"
    return [
        f"{fair:<{left}}  {paper}",
        *(_line(line, widths) for line in (_HEAD, *lines)),
    ]


def _line(line: tuple[str, ...], widths: list[int]) -> str:
    cells = [
        cell.ljust(width) if at < 2 else cell.rjust(width)
        for at, (cell, width) in enumerate(zip(line, widths, strict=True))
    ]
    return "  ".join([*cells[:9], f"| {cells[9]}", *cells[10:]]).rstrip()


def _cells(row: Row, paper: Row | None) -> tuple[str, ...]:
    slo = "-" if row.slo is None else ("kept" if row.keeps_slo else "missed")
    own = (
        row.mode,
        row.placement,
        str(row.k) if row.k else "-",
        f"{row.tokens_per_s:.1f}",
        f"{row.tokens_per_s_per_device:.1f}",
        f"{row.ms_per_token:.2f}",
        f"{row.ttft_ms:.0f}",
        slo,
        f"{row.steady.drafter_share:.0%}" if row.k else "-",
    )
    if paper is None:
        return (*own, "-", "-", "-")
    k = str(paper.k) if paper.k else "-"
    return (*own, str(paper.steady.in_flight), k, f"{paper.tokens_per_s:.1f}")


def _remarks(plan: Plan) -> Iterator[str]:
    yield gain_sentence(plan)
    top = plan.paper_winner
    if top.mode == "two-batch" != plan.recommended.mode:
        yield (
            "By the paper's convention two-batch is the fastest of all; at equal requests in "
            f"flight it is {plan.recommended.mode}."
        )
    yield from _device_sentence(plan)
    yield from _drafter_sentence(plan.recommended)
    yield from (f"No row for {mode}: {why}." for mode, why in plan.missing)
    yield "All figures are of closed forms (docs/planner.md), prompts included; none is measured."


def _device_sentence(plan: Plan) -> Iterator[str]:
    with_drafts = [row for row in plan.rows if row.k]
    if not with_drafts:
        return
    drafted = plan.best_of(with_drafts)
    mine, plain = drafted.tokens_per_s_per_device, plan.replicas.tokens_per_s_per_device
    verdict = "the drafter's device pays" if mine > plain else "the drafter's device does not pay"
    yield (
        f"Per device: {mine:.1f} tokens/s with {drafted.mode}, {plain:.1f} if the "
        f"{_devices(plan.question.num_devices)} all decoded plainly ({plan.replicas.placement}, "
        f"the same requests spread over them): {verdict}."
    )


def _drafter_sentence(row: Row) -> Iterator[str]:
    engines = row.engines_per_drafter
    if engines is not None:
        whole = max(1, int(engines + 1e-9))
        yield (
            f"Drafters: one is busy for {row.steady.drafter_share:.0%} of the time, so it keeps up "
            f"with {whole} such target{'s' if whole > 1 else ''} ({engines:.2f}) before it is the "
            f"bottleneck: 1:{whole}."
        )


def _devices(number: int) -> str:
    return f"{number} device{'s' if number > 1 else ''}"
