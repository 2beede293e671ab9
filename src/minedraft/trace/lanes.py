"""Turns steps into the boxes of two lanes, drafter and verifier.

Owns which box belongs where and what it stands for; it does not draw.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from minedraft.trace.records import StepRecord

BoxKind = Literal["batch 0", "batch 1", "unsplit", "prefill"]
"""Whose tokens a box worked on; ``unsplit`` where there are no two batches."""


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """One stretch of work in a lane, in nanoseconds of the trace's clock."""

    start_ns: int
    end_ns: int
    kind: BoxKind
    steps: tuple[StepRecord, ...]
    """The steps it served: several where passes of the target share one draft."""


def drafter_boxes(steps: list[StepRecord]) -> list[Box]:
    """Return one box per draft interval, in order of first use.

    An interval that serves both batches is ``unsplit``.
    """
    users: dict[tuple[int, int], list[StepRecord]] = {}
    for step in steps:
        if step.draft_start_ns is not None and step.draft_end_ns is not None:
            users.setdefault((step.draft_start_ns, step.draft_end_ns), []).append(step)
    return [
        Box(start_ns=start, end_ns=end, kind=_kind_of_draft(served), steps=tuple(served))
        for (start, end), served in users.items()
    ]


def verifier_boxes(steps: list[StepRecord]) -> list[Box]:
    """Return one box per pass of the target, in the order of the steps."""
    return [
        Box(
            start_ns=step.verify_start_ns,
            end_ns=step.verify_end_ns,
            kind="prefill" if step.mode == "prefill" else _kind_of_batch(step.batch),
            steps=(step,),
        )
        for step in steps
    ]


def trace_start_ns(steps: list[StepRecord]) -> int:
    """Return when the first work of a trace with steps began: its time zero."""
    verify_ns = min(step.verify_start_ns for step in steps)
    drafts_ns = [step.draft_start_ns for step in steps if step.draft_start_ns is not None]
    return min([verify_ns, *drafts_ns])


def _kind_of_draft(served: list[StepRecord]) -> BoxKind:
    batches = {step.batch for step in served}
    return _kind_of_batch(batches.pop()) if len(batches) == 1 else "unsplit"


def _kind_of_batch(batch: int | None) -> BoxKind:
    if batch is None:
        return "unsplit"
    return "batch 1" if batch else "batch 0"
