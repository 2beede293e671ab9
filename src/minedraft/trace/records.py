"""The trace format: one JSON line for the header, then one per step.

Owns the field names and their meaning; it neither writes nor reads files.
All times are nanoseconds of ``CLOCK_MONOTONIC``, which Linux shares between the processes of
one machine, or of an emulation's virtual clock: drafter and verifier times can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from minedraft.policies import Drafting

TRACE_VERSION = 1

Count = Annotated[int, msgspec.Meta(ge=0)]

StepMode = Literal["two-batch", "sequential", "pearl", "wait-free", "plain", "prefill"]
"""How a step ran: drafts of one of two batches verified, drafts of the only batch verified
(three ways to come by them), decoding without drafts, or prompts only."""

UNSPLIT_MODE: Mapping[Drafting, StepMode] = {
    Drafting.ON_DEMAND: "sequential",
    Drafting.AHEAD: "pearl",
    Drafting.UNASKED: "wait-free",
}
"""What a step is called that verifies drafts of the only batch."""


class TraceHeader(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="header"):
    """First line of a trace: what ran."""

    version: int = TRACE_VERSION
    mode: str
    """The mode asked for, by its name among the options."""
    num_speculative_tokens: Count
    target: str
    draft: str | None
    emulated: bool
    """True if device times are modelled, not measured."""
    versions: dict[str, str]
    """Versions of minedraft, vLLM and torch."""


class StepRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="step"):
    """One pass of the target."""

    step: Count
    mode: StepMode
    batch: int | None
    """The verified batch (0 or 1); None for one that is not split."""
    batch_sizes: tuple[Count, Count]
    """Decoding requests in batch 0 and batch 1 when the step was planned."""
    num_requests: Count
    """Decoding requests in this pass (with and without drafts)."""
    num_prefill_requests: Count
    num_prefill_tokens: Count
    num_decode_tokens: Count
    """Tokens of decoding requests fed to the target, drafts included."""
    num_output_tokens: Count
    """Tokens that the pass added to requests, first tokens of prompts included."""
    proposed_per_position: list[Count]
    """Draft tokens verified at position 1..k."""
    accepted_per_position: list[Count]
    draft_start_ns: Count | None
    """When the drafter began the drafts verified in this step; None without drafts."""
    draft_end_ns: Count | None
    draft_passes: Count
    """Passes of the draft model spent on them (the catch-up pass included)."""
    verify_start_ns: Count
    verify_end_ns: Count
    wait_ns: Count
    """How long the scheduler waited for drafts, with nothing else to run."""
    draft_busy_ns: Count | None = None
    """Time in passes between draft_start_ns and draft_end_ns; None: all of it."""
    drafter_losses: Count = 0
    """How often the drafter was lost (dead, hung or confused) so far."""
    hidden_state_bytes: Count = 0
    """Hidden states that the pass left for the drafter, which a head takes."""
    hidden_state_ns: Count = 0
    """What of the pass that took; 0 by a virtual clock."""
