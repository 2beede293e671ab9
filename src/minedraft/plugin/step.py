"""One step from the moment it is scheduled until its output is back.

Owns what must be remembered meanwhile; decisions are the scheduler's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from minedraft.drafter.source import HeldDraft, PassTimes
from minedraft.policies import StepPlan


@dataclass(slots=True, kw_only=True)
class Step:
    """Times are ns by the scheduler's clock, and a Stopwatch sets them."""

    plan: StepPlan
    output: SchedulerOutput
    requests: dict[str, Request]
    lengths: dict[str, int]
    """Tokens of each request when the step was scheduled."""
    decodes: frozenset[str]
    """Requests whose prompt was over."""
    begin_ns: int = 0
    origins: list[PassTimes] = field(default_factory=list)
    """The drafter's passes that made the verified drafts."""
    wait_ns: int = 0
    """Idle time before this step, spent waiting for drafts."""
    verify_start_ns: int = 0
    verify_end_ns: int = 0
    sent_bytes: int = 0
    """Hidden states that the pass left for the drafter."""
    sent_ns: int = 0
    """What of the pass that took, by the machine's clock."""
    committed: dict[str, list[int]] = field(default_factory=dict)
    sampled: dict[str, int] = field(default_factory=dict)
    """Tokens that the target returned for each request, before stops cut them."""

    @classmethod
    def begin(
        cls,
        plan: StepPlan,
        output: SchedulerOutput,
        requests: dict[str, Request],
        decoding: Mapping[str, Request],
    ) -> Step:
        """Note a step that vLLM just scheduled."""
        return cls(
            plan=plan,
            output=output,
            requests=requests,
            lengths={each: request.num_tokens for each, request in requests.items()},
            decodes=frozenset(each for each in requests if each in decoding),
        )

    def note_drafts(self, held: Mapping[str, HeldDraft]) -> None:
        """Note in which passes the verified drafts were made; for the trace."""
        verified = (held[each] for each in self.output.scheduled_spec_decode_tokens if each in held)
        self.origins = list(dict.fromkeys(origin for each in verified for origin in each.origins))

    def note_output(self, output: Any) -> None:
        """Note how many tokens the target returned for each request, and what it sent besides."""
        if (sent := getattr(output, "sent", None)) is not None:
            self.sent_bytes, self.sent_ns = sent.num_bytes, sent.time_ns
        self.sampled = {
            request_id: len(output.sampled_token_ids[output.req_id_to_index[request_id]])
            for request_id, request in self.requests.items()
            # Of one that was aborted meanwhile, vLLM counts nothing.
            if output.sampled_token_ids and not request.is_finished()
        }

    @property
    def has_prompts(self) -> bool:
        """Whether the step held tokens of prompts."""
        return len(self.decodes) < len(self.requests)

    @property
    def verify_s(self) -> float:
        """Seconds that the target took."""
        return (self.verify_end_ns - self.verify_start_ns) / 1e9
