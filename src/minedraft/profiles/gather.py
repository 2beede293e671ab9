"""From the trace of an engine that ran one cell of a grid to times by size of pass.

Owns which passes count and what their sizes are; it runs no engine.

A cell's requests begin together, with prompts of one length, and none leaves before the last
token: so a trace, which knows no request, still tells how long each of them is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, median, quantiles

from minedraft.profiles.points import Point
from minedraft.trace import StepRecord
from minedraft.validation import check_int

_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Requests in flight, drafts of each (0: none), and tokens of each one's prompt."""

    num_requests: int
    num_draft_tokens: int
    prompt_tokens: int

    def __post_init__(self) -> None:
        check_int("num_requests", self.num_requests, 1)
        check_int("num_draft_tokens", self.num_draft_tokens, 0)
        check_int("prompt_tokens", self.prompt_tokens, 1)


@dataclass(frozen=True, slots=True)
class Sample:
    """One pass: its size (see Point) and its time."""

    num_requests: float
    num_tokens: float
    context: float
    ms: float


@dataclass(slots=True, kw_only=True)
class Samples:
    """What was seen of one cell; times between passes are in ms."""

    steps: list[Sample] = field(default_factory=list)
    """Target passes over all requests and no prompt."""
    prompts: list[Sample] = field(default_factory=list)
    """Target passes over whole prompts and nothing else."""
    drafts: list[Sample] = field(default_factory=list)
    """The mean pass of each draft."""
    gaps_ms: list[float] = field(default_factory=list)
    """Between two such steps, the draft passes in between left out."""

    def extend(self, other: Samples) -> None:
        """Add those of the same cell, run again."""
        self.steps += other.steps
        self.prompts += other.prompts
        self.drafts += other.drafts
        self.gaps_ms += other.gaps_ms


def gather(records: Sequence[StepRecord], cell: Cell) -> Samples:
    """The passes that count, of one run of the cell.

    The first step after the prompts is left out: what the drafter still does for the prompts
    is no part of a draft.
    """
    found = Samples(prompts=list(_prompts(records, cell)))
    num_output = 0
    for before, step in pairwise(records):
        num_output += before.num_output_tokens
        if not (_is_full(before, cell) and _is_full(step, cell)):
            continue
        held = cell.prompt_tokens + num_output / cell.num_requests
        per_request = step.num_decode_tokens / cell.num_requests
        found.steps.append(
            Sample(
                cell.num_requests, step.num_decode_tokens, held - 1 + per_request, _verify_ms(step)
            )
        )
        gap_ms = (step.verify_start_ns - before.verify_end_ns) / _NS_PER_MS
        if cell.num_draft_tokens:
            draft = _draft(before, step, cell, held)
            found.drafts.append(draft)
            gap_ms -= draft.ms * cell.num_draft_tokens
        found.gaps_ms.append(gap_ms)
    return found


def to_points(samples: Iterable[Sequence[Sample]]) -> list[Point]:
    """One point for each group of samples that is not empty, of means and quartiles."""
    return [_point(group) for group in samples if group]


def _point(group: Sequence[Sample]) -> Point:
    times_ms = [each.ms for each in group]
    low, _, high = quantiles(times_ms, method="inclusive") if len(group) > 1 else times_ms * 3
    middle = median(times_ms)
    return Point(
        num_requests=fmean(each.num_requests for each in group),
        num_tokens=fmean(each.num_tokens for each in group),
        context=fmean(each.context for each in group),
        median_ms=middle,
        # The three are computed apart, and may differ in the last digit.
        low_ms=min(low, middle),
        high_ms=max(high, middle),
        num_samples=len(group),
    )


def _prompts(records: Iterable[StepRecord], cell: Cell) -> Iterator[Sample]:
    """A chunk of a prompt is left out: how much of it was computed before is not recorded."""
    for step in records:
        whole = step.num_prefill_requests * cell.prompt_tokens
        if step.num_requests == 0 and step.num_prefill_tokens == whole:
            yield Sample(step.num_prefill_requests, whole, cell.prompt_tokens, _verify_ms(step))


def _is_full(step: StepRecord, cell: Cell) -> bool:
    """Whether all requests of the cell are in the step, each with all of its drafts."""
    drafts = [0] * len(step.proposed_per_position)
    drafts[: cell.num_draft_tokens] = [cell.num_requests] * cell.num_draft_tokens
    has_drafts = step.draft_passes == cell.num_draft_tokens
    is_decode = step.num_requests == cell.num_requests and not step.num_prefill_requests
    return is_decode and has_drafts and step.proposed_per_position == drafts


def _draft(before: StepRecord, step: StepRecord, cell: Cell, held: float) -> Sample:
    """The mean of k passes. The first one takes in a token more of every request whose drafts
    were all accepted: the last of them was not fed yet."""
    assert step.draft_start_ns is not None and step.draft_end_ns is not None
    k = cell.num_draft_tokens
    tokens = cell.num_requests * k + before.accepted_per_position[k - 1]
    ms = (step.draft_end_ns - step.draft_start_ns) / _NS_PER_MS / k
    return Sample(cell.num_requests, tokens / k, held + (k - 1) / 2, ms)


def _verify_ms(step: StepRecord) -> float:
    return (step.verify_end_ns - step.verify_start_ns) / _NS_PER_MS
