"""Boils a trace down to the numbers that tell whether drafting was hidden.

Owns the definitions of those numbers; it neither reads files nor prints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

import msgspec

from minedraft.trace.intervals import Interval, covered_fraction
from minedraft.trace.records import StepRecord, TraceHeader

NS_PER_MS = 1e6
NS_PER_S = 1e9
MIN_STEPS_TO_TRIM = 20
"""With fewer steady steps, none are cut off at the ends."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of one trace; None where there was nothing to average."""

    mode: str
    num_speculative_tokens: int
    emulated: bool
    num_steps: int
    steps_by_mode: dict[str, int]
    """Modes that occur, in order of first use."""
    num_drafts: int
    """Drafts verified: one per request and step with at least one draft token."""
    num_proposed_tokens: int
    num_accepted_tokens: int
    acceptance_rate: float | None
    """Accepted over proposed tokens."""
    acceptance_per_position: list[float | None]
    """The same for position 1, 2, ... of a draft."""
    num_output_tokens: int
    tokens_per_step: float | None
    """Output tokens over all steps, prompts-only ones included."""
    tokens_per_request_step: float | None
    """Output tokens per decoding request and step, over steps without prompts
    (elsewhere the first tokens of prompts cannot be told apart)."""
    draft_ms: float | None
    """Mean t: draft time of a step that verified drafts."""
    verify_ms: float | None
    """Mean V: time of a target pass, over all steps."""
    two_batch_verify_ms: float | None
    """Mean V of two-batch steps."""
    num_steady_steps: int
    steady_interval_ms: float | None
    """Mean time from the end of the pass before to the end of a steady step."""
    steady_max_ms: float | None
    """Mean of max(t, V) over the same steps."""
    steady_ratio: float | None
    """``steady_interval_ms`` over ``steady_max_ms``; 1 if drafting hides fully."""
    overlap_fraction: float | None
    """Share of the draft time during which the target was in a pass."""
    steady_overlap_fraction: float | None
    """The same for the drafts of steady steps (against all passes)."""
    hidden_state_bytes: float | None
    """Mean bytes of hidden states for the drafter, over passes that left any."""
    hidden_state_share: float | None
    """Time that this took, over the time of the same passes; None by a virtual clock. An emulated
    pass hides it: it is over when its modelled time is."""
    drafter_losses: int
    """How often the drafter was lost."""
    wait_ms: float
    """Total time the scheduler waited for drafts."""
    wall_s: float | None
    """From the start of the first pass to the end of the last."""


def steady_pairs(steps: list[StepRecord]) -> list[tuple[StepRecord, StepRecord]]:
    """Return each steady step with the step before it, in order.

    A step is steady if it and the record before it are two-batch steps without
    prompt tokens. Of 20 or more, the first and last tenth are left out.
    """
    pairs = [(a, b) for a, b in pairwise(steps) if _is_pure_two_batch(a) and _is_pure_two_batch(b)]
    cut = len(pairs) // 10 if len(pairs) >= MIN_STEPS_TO_TRIM else 0
    return pairs[cut : len(pairs) - cut]


def summarize(header: TraceHeader, steps: list[StepRecord]) -> Summary:
    """Return the summary of a trace whose steps are in order of completion."""
    pairs = steady_pairs(steps)
    steady = [step for _, step in pairs]
    interval_ms = _mean((b.verify_end_ns - a.verify_end_ns) / NS_PER_MS for a, b in pairs)
    max_ms = _mean(max(_draft_ns(step), _verify_ns(step)) / NS_PER_MS for step in steady)
    passes = [(step.verify_start_ns, step.verify_end_ns) for step in steps]
    proposed = _per_position([step.proposed_per_position for step in steps])
    accepted = _per_position([step.accepted_per_position for step in steps])
    output_tokens = sum(step.num_output_tokens for step in steps)
    sending = [step for step in steps if step.hidden_state_bytes]
    return Summary(
        mode=header.mode,
        num_speculative_tokens=header.num_speculative_tokens,
        emulated=header.emulated,
        num_steps=len(steps),
        steps_by_mode=dict(Counter(step.mode for step in steps)),
        num_drafts=proposed[0] if proposed else 0,
        num_proposed_tokens=sum(proposed),
        num_accepted_tokens=sum(accepted),
        acceptance_rate=_ratio(sum(accepted), sum(proposed)),
        acceptance_per_position=[_ratio(a, p) for a, p in zip(accepted, proposed, strict=True)],
        num_output_tokens=output_tokens,
        tokens_per_step=_ratio(output_tokens, len(steps)),
        tokens_per_request_step=_tokens_per_request_step(steps),
        draft_ms=_mean(
            _draft_ns(step) / NS_PER_MS for step in steps if step.draft_start_ns is not None
        ),
        verify_ms=_mean(_verify_ns(step) / NS_PER_MS for step in steps),
        two_batch_verify_ms=_mean(
            _verify_ns(step) / NS_PER_MS for step in steps if step.mode == "two-batch"
        ),
        num_steady_steps=len(steady),
        steady_interval_ms=interval_ms,
        steady_max_ms=max_ms,
        steady_ratio=_ratio(interval_ms, max_ms),
        overlap_fraction=covered_fraction(_drafts(steps), passes),
        steady_overlap_fraction=covered_fraction(_drafts(steady), passes),
        hidden_state_bytes=_mean(float(step.hidden_state_bytes) for step in sending),
        hidden_state_share=_ratio(
            sum(step.hidden_state_ns for step in sending) or None,
            sum(_verify_ns(step) for step in sending),
        ),
        drafter_losses=max((step.drafter_losses for step in steps), default=0),
        wait_ms=sum(step.wait_ns for step in steps) / NS_PER_MS,
        wall_s=_wall_s(passes),
    )


def _is_pure_two_batch(step: StepRecord) -> bool:
    return step.mode == "two-batch" and step.num_prefill_tokens == 0


def _verify_ns(step: StepRecord) -> int:
    return step.verify_end_ns - step.verify_start_ns


def _draft_ns(step: StepRecord) -> int:
    if step.draft_start_ns is None or step.draft_end_ns is None:
        return 0
    if step.draft_busy_ns is not None:
        return step.draft_busy_ns
    return step.draft_end_ns - step.draft_start_ns


def _drafts(steps: list[StepRecord]) -> list[Interval]:
    return [
        (step.draft_start_ns, step.draft_end_ns)
        for step in steps
        if step.draft_start_ns is not None and step.draft_end_ns is not None
    ]


def _per_position(counts: list[list[int]]) -> list[int]:
    """Add lists position by position; shorter ones count as zero at the end."""
    longest = max(map(len, counts), default=0)
    return [sum(row[i] for row in counts if i < len(row)) for i in range(longest)]


def _tokens_per_request_step(steps: list[StepRecord]) -> float | None:
    decode = [step for step in steps if step.num_requests and not step.num_prefill_requests]
    tokens = sum(step.num_output_tokens for step in decode)
    return _ratio(tokens, sum(step.num_requests for step in decode))


def _wall_s(passes: list[Interval]) -> float | None:
    if not passes:
        return None
    return (max(end for _, end in passes) - min(start for start, _ in passes)) / NS_PER_S


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return sum(known) / len(known) if known else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
