"""Simulated steps as trace records, so that the tools for real runs' traces read them.

Owns the derivation of a record from a step; the file is TraceWriter's.
"""

from __future__ import annotations

from minedraft._version import __version__
from minedraft.policies import Drafting, make_policy
from minedraft.simulator.drafter import SimDrafter
from minedraft.simulator.engine import SimStep
from minedraft.simulator.request import Draft
from minedraft.simulator.scenario import Scenario
from minedraft.trace.records import UNSPLIT_MODE, StepMode, StepRecord, TraceHeader
from minedraft.trace.writer import TraceSink

_NS_PER_MS = 1e6


def header_of(scenario: Scenario) -> TraceHeader:
    """The first line of a scenario's trace; times are emulated in the strictest sense."""
    return TraceHeader(
        mode=scenario.mode,
        num_speculative_tokens=scenario.num_speculative_tokens,
        target="simulated",
        draft=None if scenario.mode == "none" else "simulated",
        emulated=True,
        versions={"minedraft": __version__},
    )


class StepRecorder:
    """Writes one record for each step of an engine."""

    def __init__(self, scenario: Scenario, sink: TraceSink) -> None:
        self._sink = sink
        self._k = scenario.num_speculative_tokens
        self._drafting = make_policy(scenario.mode).drafting
        self._drafter: SimDrafter | None = None
        self._num_steps = 0

    def watch(self, drafter: SimDrafter | None) -> None:
        """Note the engine's drafter: in wait-free no answer says which passes made a draft."""
        self._drafter = drafter
        if drafter is not None and self._drafting is Drafting.UNASKED:
            drafter.passes = []

    def take(self, step: SimStep) -> None:
        """Write the record of a step whose output is back."""
        self._num_steps += 1
        decodes = [size for _, size, is_decode, _, _ in step.rows if is_decode]
        prompts = [size for _, size, is_decode, _, _ in step.rows if not is_decode]
        proposed, accepted = self._positions(step)
        passes = self._passes(step)
        self._sink.write(
            StepRecord(
                step=self._num_steps,
                mode=self._mode(step, any(proposed)),
                batch=None if step.plan.batch is None else step.plan.batch.value,
                batch_sizes=step.plan.batch_sizes,
                num_requests=len(decodes),
                num_prefill_requests=len(prompts),
                num_prefill_tokens=sum(prompts),
                num_decode_tokens=sum(decodes),
                num_output_tokens=sum(step.committed),
                proposed_per_position=proposed,
                accepted_per_position=accepted,
                draft_start_ns=_ns(min((begin for begin, _, _ in passes), default=None)),
                draft_end_ns=_ns(max((end for _, end, _ in passes), default=None)),
                draft_passes=sum(count for _, _, count in passes),
                verify_start_ns=round(step.start_ms * _NS_PER_MS),
                verify_end_ns=round(step.end_ms * _NS_PER_MS),
                wait_ns=round(step.wait_ms * _NS_PER_MS),
                draft_busy_ns=self._busy_ns(passes),
            )
        )

    def _passes(self, step: SimStep) -> list[tuple[float, float, int]]:
        """Begin, end and number of the passes behind a step's drafts, each once."""
        drafted = [draft for _, size, is_decode, _, draft in step.rows if is_decode and size > 1]
        if self._drafter is None or self._drafter.passes is None:
            return sorted({_origin(each) for each in drafted if each is not None})
        if not drafted:
            return []
        made = [each for each in self._drafter.passes if each[1] <= step.start_ms]
        self._drafter.passes = self._drafter.passes[len(made) :]
        return [(begin, end, 1) for begin, end in made]

    def _busy_ns(self, passes: list[tuple[float, float, int]]) -> int | None:
        if self._drafting is not Drafting.UNASKED or not passes:
            return None
        return round(sum(end - begin for begin, end, _ in passes) * _NS_PER_MS)

    def _mode(self, step: SimStep, has_drafts: bool) -> StepMode:
        if has_drafts:
            split = step.plan.batch is not None and all(step.plan.batch_sizes)
            return "two-batch" if split else UNSPLIT_MODE[self._drafting]
        return "plain" if any(is_decode for _, _, is_decode, _, _ in step.rows) else "prefill"

    def _positions(self, step: SimStep) -> tuple[list[int], list[int]]:
        proposed, accepted = [0] * self._k, [0] * self._k
        for _, size, is_decode, num_right, _ in step.rows:
            for position in range(size - 1 if is_decode else 0):
                proposed[position] += 1
                accepted[position] += position < num_right
        return proposed, accepted


def _origin(draft: Draft) -> tuple[float, float, int]:
    return draft.start_ms, draft.end_ms, draft.num_passes


def _ns(time_ms: float | None) -> int | None:
    return None if time_ms is None else round(time_ms * _NS_PER_MS)
