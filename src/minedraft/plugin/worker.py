"""The target's worker with a stopwatch, and with the modelled time of an emulated device.

Owns the times of verification; the pass itself is vLLM's. The target keeps no minedraft
state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from vllm.platforms import current_platform
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.sample.rejection_sampler import RejectionSampler

from minedraft.clock import VirtualClock
from minedraft.config import MineDraftConfig
from minedraft.emulation import make_clock
from minedraft.plugin.cpu_kernels import register_expand
from minedraft.plugin.draft_probs import CANDIDATES, dense_draft_probs
from minedraft.plugin.emulated_target import emulate_text
from minedraft.plugin.head_rows import HeadRows, RowSender, Sent, give_layers
from minedraft.plugin.partial_prompts import kept_seeds
from minedraft.plugin.stopwatch import target_pass_ns
from minedraft.transport.messages import Candidates

if TYPE_CHECKING or not current_platform.is_cpu():
    from vllm.v1.worker.gpu_worker import Worker
else:
    from vllm.v1.worker.cpu_worker import CPUWorker as Worker


@dataclass(kw_only=True)
class TimedOutput(ModelRunnerOutput):
    """vLLM's output of one pass, with when it ran (ns by the worker's clock)."""

    start_ns: int
    end_ns: int
    sent: Sent
    """Hidden states for the drafter."""


class MineDraftRejectionSampler(RejectionSampler):
    """vLLM's rejection sampler, told what drawn drafts were drawn from.

    It also leaves steps without any draft to the plain sampler: with a speculative method
    configured vLLM 0.32 sends every step through rejection sampling; one without drafts,
    with top_k and no top_p, then takes the maximum of an empty tensor and ends the engine.
    That can go when vLLM samples such steps plainly.
    """

    draft_probs_of: Callable[[Any, int], torch.Tensor | None]
    """Set by the worker: from metadata and vocabulary size to draft probabilities."""

    def forward(self, metadata: Any, draft_probs: Any, logits: Any, sampling_metadata: Any) -> Any:
        """As the base class; its result for a step without drafts, by the plain sampler."""
        if metadata.max_spec_len > 0:
            if draft_probs is None and not sampling_metadata.all_greedy:
                draft_probs = self.draft_probs_of(metadata, logits.shape[-1])
            return super().forward(metadata, draft_probs, logits, sampling_metadata)
        rows = logits[metadata.bonus_logits_indices]
        # Each row is one after all drafts; as such a thinking budget looks for it.
        return self.sampler(
            logits=rows, sampling_metadata=sampling_metadata, predict_bonus_token=True
        )


class MineDraftWorker(Worker):
    """The platform's worker; each pass is timed on the device's own side.

    The scheduler cannot time passes itself once two of them are queued.
    """

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(vllm_config, *args, **kwargs)
        options = vllm_config.additional_config["minedraft"]
        self._emulation = MineDraftConfig.from_mapping(options).emulate
        # A virtual one is put forward here too, and nobody reads it.
        self._clock = make_clock(self._emulation)
        self._candidates: Mapping[str, Candidates] = {}
        self._head_rows: HeadRows | None = getattr(vllm_config, "head_rows", None)
        self._row_path: str | None = getattr(vllm_config, "row_path", None)
        self._sender: RowSender | None = None
        self._start_ns = 0
        self._deadline_ns = 0

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """As vLLM; then steps without drafts get the plain sampler, and a CPU a right kernel."""
        super().load_model(*args, **kwargs)
        register_expand()
        sampler: Any = getattr(self.model_runner, "rejection_sampler", None)
        if type(sampler) is RejectionSampler:
            sampler.__class__ = MineDraftRejectionSampler
            sampler.draft_probs_of = self._draft_probs
        if self._emulation is not None and self._emulation.acceptance:
            emulate_text(self.model_runner)
        self._open_rows()

    def _open_rows(self) -> None:
        """Send hidden states to a drafter that takes them; of replicated ones, one worker does."""
        rows, path = self._head_rows, self._row_path
        if rows is None or path is None:
            return
        give_layers(rows, self.model_runner)
        if self.is_driver_worker:
            self._sender = RowSender(rows, path, self.model_runner)

    def execute_model(self, scheduler_output: SchedulerOutput) -> Any:
        """As vLLM; notes when the pass began."""
        self._start_ns = self._deadline_ns = self._clock.now_ns()
        self._candidates = getattr(scheduler_output, CANDIDATES, {})
        if self._emulation is not None:
            self._deadline_ns += target_pass_ns(self._emulation.target, scheduler_output)
        return super().execute_model(scheduler_output)

    def _draft_probs(self, metadata: Any, vocab_size: int) -> torch.Tensor | None:
        """For the step that runs; None if every draft in it was certain."""
        if not self._candidates:
            return None
        return dense_draft_probs(
            self._candidates,
            self.model_runner.input_batch.req_ids,
            metadata.num_draft_tokens,
            metadata.draft_token_ids,
            vocab_size,
        )

    def sample_tokens(self, grammar_output: Any) -> Any:
        """As vLLM, with seeds kept; the pass is not over before its modelled time."""
        sender, state = self._sender, self.model_runner.execute_model_state
        if sender is not None and state is not None:
            sender.note_starts()
        with kept_seeds(self.model_runner):
            output = super().sample_tokens(grammar_output)
        sent = Sent() if sender is None or state is None else sender.send(state, output)
        if isinstance(self._clock, VirtualClock):
            sent = Sent(sent.num_bytes)  # a real time among virtual ones would tell nothing
        self._clock.sleep_until_ns(self._deadline_ns)
        if type(output) is not ModelRunnerOutput:
            return output
        values = {each.name: getattr(output, each.name) for each in fields(ModelRunnerOutput)}
        end_ns = self._clock.now_ns()
        return TimedOutput(**values, start_ns=self._start_ns, end_ns=end_ns, sent=sent)
