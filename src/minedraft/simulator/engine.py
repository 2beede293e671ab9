"""A simulated engine: vLLM's scheduling with the product's own policy and batches.

Owns queues, steps and KV blocks of the target. Who is verified and who is drafted next is
decided by the same Policy objects that run inside vLLM; the meeting of the two follows
`plugin.scheduler`. Continuous batching, chunked prompts, and preemption of the newest request
are vLLM's rules: running requests first, then waiting ones while there is room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from minedraft.emulation import PassTimes
from minedraft.policies import DraftState, NonePolicy, Policy, StepPlan
from minedraft.simulator.clock import Clock
from minedraft.simulator.drafter import SimDrafter
from minedraft.simulator.kv_pool import KvPool
from minedraft.simulator.lane import ReportedLane
from minedraft.simulator.link import Link
from minedraft.simulator.messages import Answer, Lives, Update
from minedraft.simulator.request import Draft, SimRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """What the target holds and takes."""

    latency: PassTimes
    overhead_ms: float
    """From a step's output to the start of the next one, where none is queued."""
    max_num_batched_tokens: int
    max_num_seqs: int
    max_queued_steps: int | None = None
    """None: as many as the mode keeps."""


Row = tuple[SimRequest, int, bool, int, Draft | None]
"""A request's share of a step: its tokens, of which all but one are drafts if it decodes (the
third entry); how many of its guesses are right; and where they come from, if asked for."""


@dataclass(slots=True, kw_only=True)
class SimStep:
    """One pass of the target; times in ms."""

    plan: StepPlan
    rows: list[Row]
    start_ms: float
    end_ms: float
    wait_ms: float
    committed: list[int] = field(default_factory=list)
    """New tokens of each row, once the output is back."""


@dataclass(slots=True)
class EngineCounters:
    """What the engine did so far."""

    num_steps: int = 0
    num_output_tokens: int = 0
    busy_ms: float = 0.0
    num_proposed: int = 0
    num_accepted: int = 0
    num_preemptions: int = 0


class SimEngine:
    """See the module. `on_step` sees each step whose output is back; `on_finish` each request."""

    def __init__(
        self,
        clock: Clock,
        limits: EngineLimits,
        pool: KvPool,
        policy: Policy,
        *,
        k: int,
        drafter: SimDrafter | None,
        to_drafter: Link,
        from_drafter: Link,
        on_finish: Callable[[SimRequest], None],
        on_step: Callable[[SimStep], None] | None = None,
        keeps_deliveries: bool = False,
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._pool = pool
        self._policy = policy
        self._undrafted: Policy = NonePolicy()
        self._acting = self._undrafted if drafter is None else policy
        self._k = k
        self._drafter = drafter
        self._to_drafter = to_drafter
        self._from_drafter = from_drafter
        self._on_finish = on_finish
        self._on_step = on_step
        self._keeps_deliveries = keeps_deliveries
        self._home = None if drafter is None else drafter.attach(from_drafter)
        self._reports = self._home if isinstance(self._home, ReportedLane) else None
        self._waiting: deque[SimRequest] = deque()
        self._running: dict[str, SimRequest] = {}
        self._states: dict[str, DraftState] = {}
        self._prompting: dict[str, SimRequest] = {}
        """Running requests whose prompt is not computed."""
        self._steps: deque[SimStep] = deque()
        self._update = Update()
        self._free_at_ms = 0.0
        self._idle_since_ms: float | None = None
        self.counters = EngineCounters()

    @property
    def num_open(self) -> int:
        """Requests that wait or run."""
        return len(self._waiting) + len(self._running)

    def arrive(self, request: SimRequest) -> None:
        """Queue a request."""
        self._waiting.append(request)
        self._go_on()

    def drafter_is_lost(self) -> None:
        """Note that the drafter died: no draft holds, and none is awaited."""
        self._update = Update()
        self._acting = self._undrafted
        for request_id, state in self._states.items():
            self._running[request_id].draft = None
            if state is not DraftState.IN_FLIGHT:
                self._states[request_id] = DraftState.NONE
        self._go_on()

    def drafter_is_back(self) -> None:
        """Tell the drafter of every request again."""
        self._acting = self._policy
        for request in self._running.values():
            self._follow(request)
        self._flush()

    # -- steps -------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Queue as many steps on the target as the policy allows."""
        most = self._acting.max_concurrent_batches
        if self._limits.max_queued_steps is not None:
            most = min(most, self._limits.max_queued_steps)
        while len(self._steps) < most and self._schedule():
            pass

    def _schedule(self) -> bool:
        while True:
            plan = self._acting.select(self._states, busy=bool(self._steps))
            if not plan.verify and plan.wait_for and (self._steps or not self._prompts_can_run()):
                if not self._steps and self._idle_since_ms is None:
                    self._idle_since_ms = self._clock.now_ms
                return False
            num_preempted = self.counters.num_preemptions
            rows = self._rows(plan)
            if rows:
                self._begin(plan, rows)
                return True
            if self.counters.num_preemptions == num_preempted:
                return False
            # A request that gave way to itself waits now, and may be the next to run.

    def _prompts_can_run(self) -> bool:
        if len(self._states) < len(self._running):
            return True
        return bool(self._waiting) and len(self._running) < self._limits.max_num_seqs

    def _rows(self, plan: StepPlan) -> list[Row]:
        rows: list[Row] = []
        num_preempted = self.counters.num_preemptions
        budget = self._add_decodes(plan, rows)
        for request in list(self._prompting.values()):
            if not request.is_flying and request.id in self._running:
                budget -= self._add_prompt(request, budget, rows)
        if self._waiting and self.counters.num_preemptions == num_preempted:
            self._admit_waiting(budget, rows)
        return rows

    def _add_decodes(self, plan: StepPlan, rows: list[Row]) -> int:
        """Rows of the plan's requests, with their drafts; returns the tokens that are left."""
        budget, running, k = self._limits.max_num_batched_tokens, self._running, self._k
        block_size, take_draft = self._pool.block_size, self._take_draft
        if self._reports is not None:
            self._reports.see(self._clock.now_ms)
        for request_id in plan.verify:
            request = running.get(request_id)
            if request is None or budget <= 0:
                continue
            num_drafts, num_right, draft = take_draft(request)
            if num_drafts > k:
                num_drafts = k
            if num_drafts >= budget:
                num_drafts = budget - 1
            num_tokens = request.num_tokens + num_drafts
            if num_tokens <= request.num_blocks * block_size or self._reserve(
                request, num_tokens, rows
            ):
                rows.append((request, 1 + num_drafts, True, num_right, draft))
                budget -= 1 + num_drafts
        return budget

    def _admit_waiting(self, budget: int, rows: list[Row]) -> None:
        while self._waiting and budget > 0 and len(self._running) < self._limits.max_num_seqs:
            request = self._waiting[0]
            size = min(budget, request.num_tokens - request.num_computed)
            if not self._pool.reserve(request, request.num_computed + size):
                return
            self._waiting.popleft()
            self._running[request.id] = self._prompting[request.id] = request
            self._follow(request)
            budget -= self._add_prompt(request, budget, rows)

    def _add_prompt(self, request: SimRequest, budget: int, rows: list[Row]) -> int:
        size = min(budget, request.num_tokens - request.num_computed)
        if size <= 0 or not self._reserve(request, request.num_computed + size, rows):
            return 0
        rows.append((request, size, False, 0, None))
        return size

    def _reserve(self, request: SimRequest, num_tokens: int, rows: list[Row]) -> bool:
        """Blocks for the request; the newest others give way, and if there is none, itself."""
        while not self._pool.reserve(request, num_tokens):
            victims = (each for each in reversed(self._running.values()))
            victim = next(each for each in victims if not each.is_flying)
            rows[:] = [row for row in rows if row[0] is not victim]
            self._preempt(victim)
            if victim is request:
                return False
        return True

    def _preempt(self, request: SimRequest) -> None:
        self.counters.num_preemptions += 1
        self._leave(request)
        request.num_computed = 0
        self._waiting.appendleft(request)

    def _begin(self, plan: StepPlan, rows: list[Row]) -> None:
        kv = num_tokens = 0
        states, in_flight = self._states, DraftState.IN_FLIGHT
        for request, size, is_decode, _, _ in rows:
            num_tokens += size
            kv += request.num_computed
            request.is_flying = True
            if is_decode:
                states[request.id] = in_flight
        now = self._clock.now_ms
        start_ms = max(now + self._limits.overhead_ms, self._free_at_ms)
        end_ms = start_ms + self._limits.latency.pass_ms(num_tokens, len(rows), kv + num_tokens)
        self._free_at_ms = end_ms
        idle_since, self._idle_since_ms = self._idle_since_ms, None
        wait_ms = 0.0 if idle_since is None else now - idle_since
        step = SimStep(plan=plan, rows=rows, start_ms=start_ms, end_ms=end_ms, wait_ms=wait_ms)
        self._steps.append(step)
        self._flush()
        self._clock.at(end_ms, self._land)

    def _land(self) -> None:
        """Take in the output of the oldest step, tell the drafter, and go on."""
        step = self._steps.popleft()
        self._commit(step)
        counters = self.counters
        counters.num_steps += 1
        counters.busy_ms += step.end_ms - step.start_ms
        for group in self._acting.next_drafts(self._states):
            self._ask(group)
        self._flush()
        if self._on_step is not None:
            self._on_step(step)
        self._go_on()

    def _commit(self, step: SimStep) -> None:
        """Take in the tokens of each row. A request on the target is never preempted."""
        now_ms, states, commits = self._clock.now_ms, self._states, self._update.commits
        is_told, undrafted, counters = self._drafter is not None, DraftState.NONE, self.counters
        for request, size, is_decode, num_right, _ in step.rows:
            request.is_flying = False
            if is_decode:
                num_new = self._decoded(request, size, num_right)
            else:
                num_new = self._prefilled(request, size)
            step.committed.append(num_new)
            if not num_new:
                continue
            request.num_tokens = num_tokens = request.num_tokens + num_new
            request.num_computed = num_tokens - 1
            counters.num_output_tokens += num_new
            if self._keeps_deliveries:
                request.deliveries.append((now_ms, num_new))
            if num_tokens == request.num_final:
                self._finish(request)
                continue
            if is_told:
                commits.append((request, request.version, num_new))
            if not is_decode:
                self._prompting.pop(request.id)
                self._policy.admit(request.id, step.plan.batch)
            states[request.id] = undrafted

    def _decoded(self, request: SimRequest, size: int, num_right: int) -> int:
        num_new = size
        if size > 1:
            if num_right < size:
                num_new = num_right + 1
            self.counters.num_proposed += size - 1
            self.counters.num_accepted += num_new - 1
        num_left = request.num_final - request.num_tokens
        return num_new if num_new < num_left else num_left

    def _prefilled(self, request: SimRequest, size: int) -> int:
        request.num_computed += size
        if request.num_computed < request.num_tokens:
            return 0
        if request.first_token_ms is None:
            request.first_token_ms = self._clock.now_ms
        return 1

    def _finish(self, request: SimRequest) -> None:
        request.finish_ms = self._clock.now_ms
        self._leave(request)
        self._on_finish(request)

    def _leave(self, request: SimRequest) -> None:
        """Forget a request that finished or was preempted; this life of it is over."""
        self._pool.release(request)
        del self._running[request.id]
        self._prompting.pop(request.id, None)
        request.is_flying = False
        if self._states.pop(request.id, None) is not None:
            self._policy.remove(request.id)
        if self._drafter is not None:
            self._update.releases.append((request, request.version))
        request.version += 1
        request.draft = None

    # -- drafts ------------------------------------------------------------------------

    def _take_draft(self, request: SimRequest) -> tuple[int, int, Draft | None]:
        """Guesses that continue the tokens it has now, how many are right, and their origin."""
        if self._reports is not None:
            return *self._reports.guesses(request), None
        draft, request.draft = request.draft, None
        if draft is None or draft.length != request.num_tokens:
            return 0, 0, None
        return draft.num_guesses, draft.num_right, draft

    def _ask(self, group: tuple[str, ...]) -> None:
        states, pending = self._states, DraftState.PENDING
        for request_id in group:
            states[request_id] = pending
        requests = [self._running[each] for each in group]
        self._update.wants.append(tuple([(each, each.version) for each in requests]))

    def _follow(self, request: SimRequest) -> None:
        if self._drafter is not None:
            self._update.adds.append((request, request.version, request.num_tokens))

    def _flush(self) -> None:
        """Send what there is to tell."""
        update, drafter, home = self._update, self._drafter, self._home
        if drafter is None or home is None or not update.num_requests:
            return
        self._update = Update()
        if not drafter.is_up:
            return
        self._to_drafter.send(
            update.num_requests,
            update.num_tokens,
            lambda: drafter.receive(update, home, self._answer_comes),
        )

    def _answer_comes(self, answer: Answer, asked: Lives) -> None:
        num_tokens = sum([draft.num_guesses for _, _, draft in answer])
        self._from_drafter.send(len(answer), num_tokens, lambda: self._take_in(answer, asked))

    def _take_in(self, answer: Answer, asked: Lives) -> None:
        for request, version, draft in answer:
            if request.version == version:
                request.draft = draft
        states, pending, ready = self._states, DraftState.PENDING, DraftState.READY
        for request, version in asked:
            if request.version == version and states.get(request.id) is pending:
                states[request.id] = ready
        self._go_on()
