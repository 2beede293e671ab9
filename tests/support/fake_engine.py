"""MineDraftScheduler with a toy target and a toy drafter, in one process and without weights.

The toy language's next token is a function of all tokens before it, so that any token in
the wrong place shows. Up to `max_concurrent_batches` steps are queued, as in vLLM's core.
"""

from __future__ import annotations

import random
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

import minedraft
from minedraft.drafter import DraftedRequest, DrafterClient, DraftSource, WaitFreeClient
from minedraft.policies import Drafting
from minedraft.transport.messages import Draft, Drafts, Guesses, Update

BLOCK = 32
VOCAB = 500


def next_token(tokens: Sequence[int]) -> int:
    """The toy language: the one token that follows `tokens`."""
    return zlib.crc32(bytes(str(list(tokens)), "ascii")) % VOCAB


def continuation(tokens: Sequence[int], count: int) -> list[int]:
    """The next `count` tokens of the toy language."""
    tokens = list(tokens)
    for _ in range(count):
        tokens.append(next_token(tokens))
    return tokens[len(tokens) - count :]


class FakeConnection:
    """Stands for process and channel of a drafter that answers `delay` polls later."""

    def __init__(self, rng: random.Random, accuracy: float, k: int) -> None:
        self.channel = self
        self._rng, self._accuracy = rng, accuracy
        self._requests: dict[str, DraftedRequest] = {}
        self._answers: deque[Drafts] = deque()
        self.k = k
        self.is_dead = False
        self.process: Any = type("Process", (), {"returncode": -9})

    def is_alive(self) -> bool:
        return not self.is_dead

    def kill(self) -> None:
        self.is_dead = True

    def close(self) -> None:
        self.is_dead = True

    def send(self, update: Update) -> None:
        for request_id, version in update.releases:
            if request_id in self._requests and self._requests[request_id].version <= version:
                del self._requests[request_id]
        for add in update.adds:
            self._requests[add.request_id] = DraftedRequest(
                request_id=add.request_id,
                version=add.version,
                order=0,
                committed=add.token_ids,
                limit=add.limit,
                lead=add.reported_lead,
            )
        for commit in update.commits:
            request = self._requests[commit.request_id]
            assert len(request.committed) == commit.committed_len
            request.commit(commit.token_ids)
        for want in update.wants:
            drafts = [self._draft(self._requests[each]) for each in want.request_ids]
            self._answers.append(
                Drafts(ticket=want.ticket, drafts=drafts, start_ns=1, end_ns=2, num_passes=self.k)
            )

    def receive(self, timeout_s: float = 0.0) -> Drafts | Guesses | None:
        if self.is_dead or not (timeout_s > 0 or self._rng.random() < 0.5):
            return None
        return self._answers.popleft() if self._answers else self._report()

    def _report(self) -> Guesses | None:
        """One more guess for everyone who is short of a lead."""
        short = [each for each in self._requests.values() if len(each.guesses) < each.lead]
        for request in short:
            [token] = self._guess([*request.committed, *request.guesses], 1)
            request.guesses.append(token)
        drafts = [
            Draft(each.request_id, each.version, len(each.committed), list(each.guesses))
            for each in short
        ]
        return Guesses(drafts=drafts, start_ns=1, end_ns=2) if drafts else None

    def _draft(self, request: DraftedRequest) -> Draft:
        count = self.k if self._rng.random() < 0.9 else self._rng.randrange(self.k + 1)
        count = count if request.limit is None else min(count, request.limit)
        tokens = self._guess(request.committed, count)
        return Draft(request.request_id, request.version, len(request.committed), tokens)

    def _guess(self, tokens: Sequence[int], count: int) -> list[int]:
        found = continuation(tokens, count)
        for at in range(count):
            if self._rng.random() > self._accuracy:
                found[at] = (found[at] + 1) % VOCAB
        return found


@dataclass(slots=True)
class FakeTarget:
    """Runs a step on the toy language; keeps tokens as vLLM's worker does."""

    prompts: dict[str, list[int]]
    outputs: dict[str, list[int]] = field(default_factory=dict)
    num_accepted: int = 0
    """Draft tokens that were right."""

    def run(self, step: SchedulerOutput) -> ModelRunnerOutput:
        if not step.total_num_scheduled_tokens:
            return EMPTY_MODEL_RUNNER_OUTPUT
        computed = {each.req_id: each.num_computed_tokens for each in step.scheduled_new_reqs}
        cached = step.scheduled_cached_reqs
        computed.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        for name, kept in zip(cached.req_ids, cached.num_output_tokens, strict=True):
            del self.outputs[name][kept:]
        for each in step.scheduled_new_reqs:
            self.prompts[each.req_id] = list(each.prompt_token_ids or ())
            self.outputs[each.req_id] = []
        names = list(step.num_scheduled_tokens)
        sampled = [self._sample(name, computed[name], step) for name in names]
        return ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=sampled,
        )

    def _sample(self, name: str, computed: int, step: SchedulerOutput) -> list[int]:
        drafts = step.scheduled_spec_decode_tokens.get(name, [])
        tokens = self.prompts[name] + self.outputs[name]
        end = computed + step.num_scheduled_tokens[name] - len(drafts)
        if end < len(tokens):
            return []  # a chunk of a prompt
        assert end == len(tokens), "drafts must follow the newest token"
        sampled = []
        for draft in [*drafts, None]:
            sampled.append(next_token([*tokens, *sampled]))
            if sampled[-1] != draft:
                break
        self.outputs[name].extend(sampled)
        self.num_accepted += len(sampled) - 1
        return sampled


def make_vllm_config(target: Path, mode: str, *, k: int = 4, **engine: Any) -> Any:
    """vLLM's config of an engine in `mode`; no drafter is started."""
    drafts = {} if mode == "none" else {"draft_model": str(target), "draft_device": "cpu"}
    args = EngineArgs(
        model=str(target),
        dtype="float32",
        enforce_eager=True,
        block_size=BLOCK,
        **{"max_model_len": 512, "max_num_seqs": 8, "max_num_batched_tokens": 512, **engine},
        **minedraft.engine_args(mode=mode, num_speculative_tokens=k, **drafts),
    )
    return args.create_engine_config()


class FakeEngine:
    """vLLM's core loop around a MineDraftScheduler."""

    def __init__(
        self,
        vllm_config: Any,
        *,
        num_blocks: int = 200,
        accuracy: float = 0.8,
        seed: int = 0,
        new_connection: Callable[[], FakeConnection] | None = None,
    ) -> None:
        from minedraft.plugin.scheduler import MineDraftScheduler

        spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=8, dtype=torch.float32)
        vllm_config.cache_config.num_gpu_blocks = num_blocks
        self.scheduler = MineDraftScheduler(
            vllm_config=vllm_config,
            kv_cache_config=KVCacheConfig(
                num_blocks=num_blocks,
                kv_cache_tensors=[],
                kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
            ),
            structured_output_manager=StructuredOutputManager(vllm_config),
            block_size=BLOCK,
            log_stats=False,
        )
        k = vllm_config.num_speculative_tokens
        toy = partial(FakeConnection, random.Random(seed), accuracy, k)
        self._new_connection = new_connection or toy
        self.connection = self._new_connection()
        self.is_reviving = False
        if k:
            self.scheduler._source = self._client(self.scheduler._policy.drafting, k)
        self.target = FakeTarget({})
        self.finished: dict[str, list[int]] = {}
        self.endings: dict[str, Any] = {}
        """vLLM's last output of each request that ended by itself."""
        self.steps: list[SchedulerOutput] = []
        self._depth = vllm_config.max_concurrent_batches
        self._queue: deque[SchedulerOutput] = deque()
        hash_fn = get_hash_fn_by_name("sha256")
        init_none_hash(hash_fn)
        self._hasher = get_request_block_hasher(BLOCK, hash_fn)

    def _client(self, drafting: Drafting, k: int) -> DraftSource:
        options: dict[str, Any] = {"k": k, "hang_timeout_s": 60.0, "revival": self}
        connection: Any = self.connection
        if drafting is Drafting.UNASKED:
            return WaitFreeClient(connection, **options)
        is_ahead = drafting is Drafting.AHEAD
        return DrafterClient(connection, reply_timeout_s=60.0, drafts_ahead=is_ahead, **options)

    # -- the revival of a lost drafter -----------------------------------------------

    def begin(self, lost: FakeConnection) -> None:
        assert lost.is_dead

    def poll(self) -> FakeConnection | None:
        """A new drafter, if the test says that one comes back."""
        if not self.is_reviving:
            return None
        self.is_reviving = False
        self.connection = self._new_connection()
        return self.connection

    def proven(self) -> None:
        pass

    # -- the run ---------------------------------------------------------------------

    def add(
        self,
        name: str,
        prompt: list[int],
        max_tokens: int,
        priority: int = 0,
        sampling: dict[str, Any] | None = None,
        **more: Any,
    ) -> Request:
        options = {"temperature": 0.0, "ignore_eos": True, **(sampling or {})}
        params = SamplingParams(max_tokens=max_tokens, **options)
        params.update_from_generation_config({}, None)
        request = Request(
            request_id=name,
            prompt_token_ids=list(prompt),
            sampling_params=params,
            pooling_params=None,
            priority=priority,
            block_hasher=self._hasher,
            **more,
        )
        self.scheduler.add_request(request)
        return request

    def abort(self, name: str) -> None:
        self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)

    def step(self) -> SchedulerOutput | None:
        """One turn of the core's loop; the step that was scheduled, if one was."""
        scheduled = None
        if self.scheduler.has_requests():
            scheduled = self.scheduler.schedule()
            self._queue.append(scheduled)
            if scheduled.total_num_scheduled_tokens:
                self.steps.append(scheduled)
        if self._queue and (len(self._queue) >= self._depth or scheduled is None):
            self._land(self._queue.popleft())
        return scheduled

    def is_busy(self) -> bool:
        """Whether a turn would do anything."""
        return bool(self.scheduler.has_requests() or self._queue)

    def is_queued(self, name: str) -> bool:
        """Whether a step that is not back yet holds this request."""
        return any(name in step.num_scheduled_tokens for step in self._queue)

    def run(self, max_turns: int = 5000) -> dict[str, list[int]]:
        """Until every request is finished; the tokens of each."""
        for _ in range(max_turns):
            if not self.is_busy():
                return self.finished
            self.step()
        raise AssertionError(f"not finished after {max_turns} turns")

    def _land(self, step: SchedulerOutput) -> None:
        outputs = self.scheduler.update_from_output(step, self.target.run(step))
        for each in (output for group in outputs.values() for output in group.outputs):
            self.finished.setdefault(each.request_id, []).extend(each.new_token_ids)
            if each.finished:
                self.endings[each.request_id] = each
