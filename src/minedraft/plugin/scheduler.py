"""vLLM's scheduler with drafts from the drafter, and one batch held back while the other
is verified.

Owns the meeting of policy, drafter and vLLM; who is verified is the policy's decision,
and everything about tokens, KV blocks and queues is vLLM's. Nothing of vLLM's scheduler is
copied: a request is held back by `Request.next_decode_eligible_step`, which the stock loop
reads before it allocates blocks (the paper's deferred allocation), so that preemption
still sees it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from minedraft.batching import Batch
from minedraft.clock import Clock
from minedraft.drafter.source import DraftSource, HeldDraft
from minedraft.plugin.draft_probs import CANDIDATES
from minedraft.plugin.engine_config import replica_options
from minedraft.plugin.head_rows import LIVES
from minedraft.plugin.lifecycle import open_draft_source
from minedraft.plugin.request_terms import read_terms
from minedraft.plugin.step import Step
from minedraft.plugin.stopwatch import make_stopwatch
from minedraft.plugin.tracing import StepTracer, open_tracer
from minedraft.policies import DraftState, NonePolicy, Policy, States, StepPlan, make_policy
from minedraft.selection import make_selection
from minedraft.transport.messages import Draft

_WAIT_SLICE_S = 0.01
"""Longest wait for drafts with an idle target: new requests are seen in between."""


class MineDraftScheduler(Scheduler):
    """See the module. Public behaviour, queues and statistics are those of the base class."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._config = replica_options(self.vllm_config)
        self._stop_padding()
        self._policy: Policy = make_policy(self._config.mode)
        self._undrafted: Policy = NonePolicy()
        self._selection = make_selection(
            k=self._config.num_speculative_tokens,
            extra_tokens=self._config.tetris_extra_tokens,
            capacity=self._config.tetris_capacity,
            min_requests=self._config.tetris_min_requests,
        )
        self._known: dict[str, Request] = {}
        self._decoding: dict[str, Request] = {}
        self._in_flight: dict[str, Request] = {}
        self._loose: set[str] = set()
        self._held: dict[str, HeldDraft] = {}
        self._steps: deque[Step] = deque()
        self._prompts_blocked = False
        self._last_verify_s = 0.0
        self._last_landed_ns = 0
        self._idle_wait_ns = 0
        self._stopwatch = make_stopwatch(self._config)
        self._vocab_size = self.vllm_config.model_config.get_vocab_size()
        self._source: DraftSource = open_draft_source(self.vllm_config, self.clock)
        self._num_returns = 0
        self._takes_rows = getattr(self.vllm_config, "head_rows", None) is not None
        self._tracer: StepTracer | None = open_tracer(self._config, self.vllm_config)

    def _stop_padding(self) -> None:
        """Let no request be verified with placeholders instead of drafts.

        vLLM 0.32 gives k of them to one that begins with a single token left to compute, as
        after a hit in the prefix cache: it counts them as rejected drafts, and a seeded
        request draws random numbers for them, so that its tokens depend on the cache. It
        does not where the number of drafts goes by the size of the batch; this is a table
        that says k for every size. It can go when vLLM pads in the worker.
        """
        if self.num_spec_tokens:
            self.dynamic_sd_lookup = [self.num_spec_tokens] * (self.max_num_running_reqs + 1)

    @property
    def clock(self) -> Clock:
        """By which this engine's steps and drafts are timed."""
        return self._stopwatch.clock

    # -- vLLM's entry points ---------------------------------------------------------

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """Plan with the policy, then let vLLM schedule what is not held back."""
        self._forget_gone()
        plan = self._plan()
        self._attach_drafts(plan)
        self._hold_back(plan)
        # vLLM sends all tokens of a request that the step before did not hold, for KV
        # connectors and async scheduling: with two batches that were everyone's, every step.
        self.prev_step_scheduled_req_ids.update(self._known)
        output = super().schedule(*args, **kwargs)
        self._note_scheduled(plan, output)
        return output

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> Any:
        """Let vLLM take the tokens in, tell the drafter, and ask for the next drafts."""
        if scheduler_output.total_num_scheduled_tokens == 0:
            return super().update_from_output(scheduler_output, model_runner_output)
        step = self._steps.popleft()
        assert step.output is scheduler_output, "vLLM returns steps in the order of scheduling"
        # vLLM cuts the lists of sampled tokens where a request stops.
        step.note_output(model_runner_output)
        self._stopwatch.stop(step, model_runner_output)
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        step.committed = self._committed(step)
        self._last_landed_ns = step.verify_end_ns
        if not step.has_prompts:
            self._last_verify_s = step.verify_s
        self._prompts_blocked = False
        self._forget_gone()
        self._land(step)
        for group in self._acting_policy.next_drafts(self._states()):
            self._source.ask(group)
        self._source.flush()
        if self._tracer is not None:
            self._tracer.write(step, self._source.counters, is_last=not self.requests)
        return outputs

    def update_draft_token_ids(self, draft_token_ids: DraftTokenIds) -> None:
        """Nothing: drafts come from the drafter, not from the target's workers."""

    def finish_requests(self, request_ids: Any, finished_status: RequestStatus) -> list[Request]:
        """As vLLM; the drafter forgets the requests too."""
        finished: list[Request] = super().finish_requests(request_ids, finished_status)
        self._forget_gone()
        self._source.flush()
        return finished

    def shutdown(self) -> None:
        """As vLLM; the drafter ends with the engine."""
        super().shutdown()
        self._source.close()
        if self._tracer is not None:
            self._tracer.close()

    # -- planning --------------------------------------------------------------------

    @property
    def _acting_policy(self) -> Policy:
        return self._policy if self._source.available else self._undrafted

    def _states(self) -> States:
        return {
            request_id: DraftState.IN_FLIGHT
            if request_id in self._in_flight
            else self._source.state(request_id)
            for request_id in self._decoding
            if request_id not in self._loose
        }

    def _plan(self) -> StepPlan:
        """The policy's plan, after a wait for drafts if the target has nothing else to run."""
        self._source.collect()
        self._tell_again()
        plan = self._select()
        if plan.verify or not plan.wait_for or self.pause_state is PauseState.PAUSED_ALL:
            return plan
        if self._steps:
            limit_s = _WAIT_SLICE_S + max(0.0, self._running_step_left_s())
        elif self._prompts_can_run():
            return plan
        else:
            limit_s = _WAIT_SLICE_S
        self._wait_for(plan, limit_s)
        return self._select()

    def _running_step_left_s(self) -> float:
        """Seconds until the running step should be back, by the length of the last one.

        A step that was queued behind another began when that one ended.
        """
        begin_ns = max(self._steps[0].begin_ns, self._last_landed_ns)
        return self._last_verify_s - (self.clock.now_ns() - begin_ns) / 1e9

    def _wait_for(self, plan: StepPlan, limit_s: float) -> None:
        begin_ns = self.clock.now_ns()
        self._source.wait(plan.wait_for, limit_s)
        if not self._steps:
            self._idle_wait_ns += self.clock.now_ns() - begin_ns

    def _select(self) -> StepPlan:
        busy = bool(self._steps)
        plan = self._acting_policy.select(self._states(), busy=busy)
        loose = tuple(each for each in self._loose if each not in self._in_flight)
        if not loose or (busy and not plan.verify):
            return plan
        return replace(plan, verify=(*plan.verify, *loose), wait_for=())

    def _prompts_can_run(self) -> bool:
        """Whether vLLM could run prompt tokens now."""
        if any(_has_prompt_left(each) for each in self.running):
            return True
        waiting = bool(self.waiting or self.kv_holding_waiting)
        room = len(self.running) < self.max_num_running_reqs
        unpaused = self.pause_state is PauseState.UNPAUSED
        return waiting and room and unpaused and not self._prompts_blocked

    def _attach_drafts(self, plan: StepPlan) -> None:
        held = {
            request_id: self._source.draft_of(request_id, self._decoding[request_id].num_tokens)
            for request_id in plan.verify
        }
        self._held = {name: each for name, each in held.items() if each is not None}
        lengths = self._selection.lengths(
            {name: _confidences(each.draft) for name, each in self._held.items()}
        )
        for request_id in plan.verify:
            request = self._decoding[request_id]
            tokens: list[int] = []
            if request_id in self._held:
                tokens = self._held[request_id].draft.token_ids[: lengths[request_id]]
                tokens = _known_tokens(tokens, self._vocab_size)
            tokens = _short_of_min_tokens(tokens, request)
            request.spec_token_ids = self.structured_output_manager.validate_tokens(request, tokens)

    def _hold_back(self, plan: StepPlan) -> None:
        """Keep decoding requests that are not planned, or are in flight, out of this step."""
        verify = set(plan.verify)
        # vLLM counts the step up before it compares, hence 2 for "not in the next step".
        not_now = self.current_step + 2
        for request_id, request in self._decoding.items():
            if request_id not in verify or request_id in self._in_flight:
                request.next_decode_eligible_step = not_now

    def _note_scheduled(self, plan: StepPlan, output: SchedulerOutput) -> None:
        scheduled = output.num_scheduled_tokens
        for request_id in plan.verify:
            if request_id not in scheduled:
                self._decoding[request_id].spec_token_ids = []
        if not scheduled:
            self._prompts_blocked = True
            self._source.flush()
            return
        started = [each.req_id for each in output.scheduled_new_reqs]
        for request_id in (*started, *output.scheduled_cached_reqs.resumed_req_ids):
            self._follow(self.requests[request_id])
        self._forget_gone()
        self._send_candidates(output)
        self._send_lives(output)
        requests = {request_id: self.requests[request_id] for request_id in scheduled}
        self._in_flight.update(requests)
        step = Step.begin(plan, output, requests, self._decoding)
        self._stopwatch.start(step)
        if self._tracer is not None:
            step.note_drafts(self._held)
        step.wait_ns, self._idle_wait_ns = self._idle_wait_ns, 0
        self._steps.append(step)
        # Last: a send that fails loses the drafter, and every draft with it.
        self._source.flush()

    def _send_candidates(self, output: SchedulerOutput) -> None:
        """Hand the target's workers what drawn drafts were drawn from."""
        candidates = {}
        for request_id, tokens in output.scheduled_spec_decode_tokens.items():
            found = self._held.get(request_id)
            if found is not None and found.draft.candidates is not None:
                candidates[request_id] = found.draft.candidates.part(0, len(tokens))
        if candidates:
            setattr(output, CANDIDATES, candidates)

    def _send_lives(self, output: SchedulerOutput) -> None:
        """Tell the target's workers which lives of requests the drafter wants rows of."""
        if self._takes_rows:
            lives = {each: self._source.version(each) for each in output.num_scheduled_tokens}
            known = {name: version for name, version in lives.items() if version is not None}
            setattr(output, LIVES, known)

    # -- requests coming and going ---------------------------------------------------

    def _tell_again(self) -> None:
        """Tell a drafter that came back of every request; those in flight commit later."""
        if self._source.counters.returns == self._num_returns:
            return
        self._num_returns = self._source.counters.returns
        for request in self._known.values():
            self._tell(request)

    def _follow(self, request: Request) -> None:
        """Take in a request whose prompt the target begins, and tell the drafter of it."""
        self._known[request.request_id] = request
        self._tell(request)

    def _tell(self, request: Request) -> None:
        terms = read_terms(request, self._config)
        if terms is not None:
            self._source.follow(request.request_id, request.all_token_ids, terms)

    def _committed(self, step: Step) -> dict[str, list[int]]:
        """New tokens of each request of a step, as vLLM kept them (stops cut off the rest)."""
        return {
            request_id: list(request.all_token_ids[step.lengths[request_id] :])
            for request_id, request in step.requests.items()
        }

    def _land(self, step: Step) -> None:
        """Take a step's requests out of flight, commit their tokens, admit new decoders."""
        for request_id, request in step.requests.items():
            if self._in_flight.get(request_id) is request and not self._flies_again(request):
                del self._in_flight[request_id]
            if self._known.get(request_id) is not request:
                continue
            self._source.commit(request_id, step.committed[request_id])
            is_new = request_id not in self._decoding and request_id not in self._in_flight
            if is_new and _is_decoding(request):
                self._admit(request, step.plan.batch)

    def _admit(self, request: Request, just_verified: Batch | None) -> None:
        """Take in a request whose prompt is over.

        One that can never be drafted belongs to no batch: it joins every step that it can.
        """
        self._decoding[request.request_id] = request
        if self._source.follows(request.request_id):
            self._policy.admit(request.request_id, just_verified)
        else:
            self._loose.add(request.request_id)

    def _flies_again(self, request: Request) -> bool:
        """Whether a later step that is queued holds this request too (chunks of a prompt)."""
        return any(each.requests.get(request.request_id) is request for each in self._steps)

    def _forget_gone(self) -> None:
        """Drop what finished, was aborted or preempted, by the state that vLLM holds."""
        self._forget(
            request_id
            for request_id, request in self._known.items()
            if self.requests.get(request_id) is not request
            or request.status is not RequestStatus.RUNNING
        )

    def _forget(self, request_ids: Iterable[str]) -> None:
        for request_id in list(request_ids):
            self._source.release(request_id)
            del self._known[request_id]
            self._in_flight.pop(request_id, None)
            self._loose.discard(request_id)
            if self._decoding.pop(request_id, None) is not None:
                self._policy.remove(request_id)


def _has_prompt_left(request: Request) -> bool:
    return bool(request.num_computed_tokens < request.num_tokens - 1)


def _is_decoding(request: Request) -> bool:
    """Whether all tokens but the newest are computed: the prompt is over."""
    return request.status is RequestStatus.RUNNING and not _has_prompt_left(request)


def _confidences(draft: Draft) -> list[float]:
    """Of each draft token; all alike if the drafter did not say."""
    return draft.confidences or [0.0] * len(draft.token_ids)


def _known_tokens(token_ids: list[int], vocab_size: int) -> list[int]:
    """Drafts up to the first that the target has no vocabulary entry for."""
    cut = next((at for at, token in enumerate(token_ids) if token >= vocab_size), len(token_ids))
    return token_ids[:cut]


def _short_of_min_tokens(token_ids: list[int], request: Request) -> list[int]:
    """Drafts after which the request would still be too short to stop, if it is so now.

    vLLM 0.32 masks stop tokens in the token after all drafts by the length before them, so
    that a step across `min_tokens` could not stop there. This can go when it counts drafts.
    """
    assert request.sampling_params is not None
    missing = request.sampling_params.min_tokens - request.num_output_tokens
    return token_ids[: missing - 1] if missing > 0 else token_ids
