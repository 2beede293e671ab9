"""The draft model on vLLM: its worker, its paged KV cache, one pass at a time.

Owns the translation of rows into vLLM's SchedulerOutput; which rows to run is the book's
choice. Model, KV cache and prefix caching are vLLM's own, driven without its scheduling.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vllm import SamplingParams
from vllm.config import VllmConfig
from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput
from vllm.v1.engine.core import EngineCore
from vllm.v1.executor.uniproc_executor import UniProcExecutor
from vllm.v1.request import Request

from minedraft.config import MAX_DRAFT_TOKENS
from minedraft.drafter.device import DeviceInfo, Guess, Row
from minedraft.drafter.request import DraftedRequest
from minedraft.plugin.draft_sampler import DraftSampler, Draw, DrawPlan


@dataclass(slots=True, kw_only=True)
class _Held:
    """A request that holds KV blocks; `block_ids` are those that the runner must still learn."""

    shadow: Request
    origin: int
    """Leading tokens of the request that are no part of the sequence that the model sees."""
    num_reserved: int
    num_prompt: int
    edits: int
    known_to_runner: bool = False
    block_ids: list[list[int]] = field(default_factory=list)


class VllmDraftDevice:
    """A draft model as vLLM runs it, in this process.

    `vllm_config` is the draft model's own; drafts are drawn from at most `num_candidates`
    tokens, all below `target_vocab_size`. Raises whatever vLLM raises if the model cannot be
    loaded.
    """

    def __init__(
        self,
        vllm_config: VllmConfig,
        *,
        target_vocab_size: int,
        num_candidates: int,
        with_confidences: bool = False,
    ) -> None:
        self._core = EngineCore(vllm_config, UniProcExecutor, log_stats=False)
        self._executor = self._core.model_executor
        self._kv = self._core.scheduler.kv_cache_manager
        self._runner: Any = self._executor.driver_worker.worker.model_runner
        self._draws = DrawPlan(
            num_candidates=num_candidates,
            vocab_size=target_vocab_size,
            with_confidences=with_confidences,
        )
        sampler = self._runner.sampler
        sampler.__class__ = DraftSampler
        sampler.plan, sampler.runner = self._draws, self._runner
        self._held: dict[str, _Held] = {}
        self._finished: set[str] = set()
        self.info = DeviceInfo(
            vocab_size=vllm_config.model_config.get_vocab_size(),
            max_model_len=vllm_config.model_config.max_model_len,
            max_num_batched_tokens=vllm_config.scheduler_config.max_num_batched_tokens,
            max_num_seqs=vllm_config.scheduler_config.max_num_seqs,
            num_kv_blocks=vllm_config.cache_config.num_gpu_blocks or 0,
            block_size=vllm_config.cache_config.block_size,
        )

    @property
    def num_free_blocks(self) -> int:
        """See DraftDevice.num_free_blocks."""
        return int(self._kv.block_pool.get_num_free_blocks())

    def num_held_blocks(self, request: DraftedRequest) -> int:
        """See DraftDevice.num_held_blocks."""
        if request.key not in self._held:
            return 0
        return sum(len(group) for group in self._kv.get_block_ids(request.key))

    def num_ready(self, request: DraftedRequest) -> int:
        """See DraftDevice.num_ready."""
        return request.length

    def take_in(self) -> Collection[str]:
        """See DraftDevice.take_in."""
        return ()

    def reserve(self, request: DraftedRequest, num_tokens: int, chunk: int) -> bool:
        """See DraftDevice.reserve."""
        held = self._held.get(request.key)
        if held is None:
            return self._admit(request, num_tokens, chunk)
        end = _end_of_reservation(request, num_tokens, chunk)
        if end <= held.num_reserved:
            return True
        self._update_shadow(held, request)
        blocks = self._kv.allocate_slots(held.shadow, end - request.num_computed)
        if blocks is None:
            return False
        for known, new in zip(held.block_ids, blocks.get_block_ids(), strict=True):
            known.extend(new)
        held.num_reserved = end
        return True

    def run(self, rows: Sequence[Row]) -> Mapping[str, Sequence[Guess]]:
        """See DraftDevice.run."""
        self._kv.new_step_starts()
        self._plan_draws(rows)
        output = self._executor.execute_model(self._scheduler_output(rows))
        if output is None:
            output = self._executor.sample_tokens(None)
        sampled = output.sampled_token_ids
        return {
            key: [self._guess(key, int(sampled[output.req_id_to_index[key]][0]))]
            for key in (row.request.key for row in rows if row.is_last)
        }

    def _guess(self, key: str, token_id: int) -> Guess:
        drawn = self._draws.drawn.get(key) or Guess(token_id)
        return replace(drawn, confidence=self._draws.confidences.get(key, 0.0))

    def _plan_draws(self, rows: Sequence[Row]) -> None:
        self._draws.drawn, self._draws.confidences = {}, {}
        self._draws.wanted = {
            row.request.key: Draw(row.request.sampling, row.end)
            for row in rows
            if row.is_last and row.request.sampling is not None
        }

    def release(self, request: DraftedRequest) -> None:
        """See DraftDevice.release."""
        held = self._held.pop(request.key, None)
        if held is None:
            return
        self._kv.free(held.shadow)
        if held.known_to_runner:
            self._finished.add(request.key)

    def close(self) -> None:
        """See DraftDevice.close."""
        self._core.shutdown()

    def _admit(self, request: DraftedRequest, num_tokens: int, chunk: int) -> bool:
        """First blocks of a request: those of a cached prefix, and new ones."""
        shadow, origin = self._begin(request)
        cached, num_cached, _ = self._kv.get_computed_blocks(shadow)
        if origin + num_cached >= num_tokens:
            # There would be nothing left to compute of what is ready.
            cached, num_cached = self._first_blocks(cached, num_tokens - origin - 1)
        request.num_computed = origin + num_cached
        end = _end_of_reservation(request, num_tokens, chunk)
        blocks = self._kv.allocate_slots(
            shadow,
            end - request.num_computed,
            num_new_computed_tokens=num_cached,
            new_computed_blocks=cached,
            full_sequence_must_fit=True,
        )
        if blocks is None:
            request.num_computed = 0
            return False
        self._held[request.key] = _Held(
            shadow=shadow,
            origin=origin,
            num_reserved=end,
            num_prompt=len(request.committed),
            edits=request.edits,
            block_ids=[list(group) for group in self._kv.get_block_ids(request.key)],
        )
        return True

    def _begin(self, request: DraftedRequest) -> tuple[Request, int]:
        """vLLM's request for one that holds no KV, and how many leading tokens it leaves out."""
        return self._shadow(request, 0, request.cache_salt), 0

    def _first_blocks(self, blocks: Any, most: int) -> tuple[Any, int]:
        """Those of at most `most` tokens, and how many tokens they hold."""
        count = max(0, most) // self.info.block_size
        return type(blocks)(tuple(list(group)[:count] for group in blocks.blocks)), (
            count * self.info.block_size
        )

    def _shadow(self, request: DraftedRequest, origin: int, salt: str | None = None) -> Request:
        shadow = Request(
            request_id=request.key,
            prompt_token_ids=request.committed[origin:],
            sampling_params=SamplingParams(temperature=0.0, max_tokens=1),
            pooling_params=None,
            block_hasher=self._core.request_block_hasher,
            cache_salt=salt,
        )
        # Rejected drafts take computed tokens back: a sliding window must keep that many more.
        shadow.num_in_flight_tokens = 2 * MAX_DRAFT_TOKENS + 1
        return shadow

    @staticmethod
    def _update_shadow(held: _Held, request: DraftedRequest) -> None:
        """Give vLLM's request the committed tokens, so that full blocks can be hashed."""
        held.shadow.append_output_token_ids(
            request.committed[held.origin + held.shadow.num_tokens :]
        )
        held.shadow.num_computed_tokens = request.num_computed - held.origin

    def _scheduler_output(self, rows: Sequence[Row]) -> SchedulerOutput:
        finished, self._finished = self._finished, set()
        new = [row for row in rows if not self._held[row.request.key].known_to_runner]
        cached = [row for row in rows if self._held[row.request.key].known_to_runner]
        output = SchedulerOutput.make_empty()
        output.scheduled_cached_reqs = self._cached_data(cached)
        output.scheduled_new_reqs = [self._new_data(row) for row in new]
        output.num_scheduled_tokens = {row.request.key: row.num_tokens for row in rows}
        output.total_num_scheduled_tokens = sum(row.num_tokens for row in rows)
        output.finished_req_ids = finished
        return output

    def _new_data(self, row: Row) -> NewRequestData:
        held = self._held[row.request.key]
        held.known_to_runner = True
        held.num_prompt = len(row.request.committed)
        held.edits = row.request.edits
        return NewRequestData(
            req_id=row.request.key,
            prompt_token_ids=row.request.committed[held.origin :],
            mm_features=[],
            sampling_params=held.shadow.sampling_params,
            pooling_params=None,
            block_ids=self._take_blocks(held),
            num_computed_tokens=row.start - held.origin,
            lora_request=None,
        )

    def _cached_data(self, rows: Sequence[Row]) -> CachedRequestData:
        data = CachedRequestData.make_empty()
        for row in rows:
            held = self._held[row.request.key]
            self._rewrite(held, row.request)
            blocks = self._take_blocks(held)
            data.req_ids.append(row.request.key)
            data.new_block_ids.append(blocks if any(blocks) else None)
            data.num_computed_tokens.append(row.start - held.origin)
            data.num_output_tokens.append(row.request.length - held.num_prompt)
        return data

    def _take_blocks(self, held: _Held) -> tuple[list[int], ...]:
        blocks = tuple(held.block_ids)
        held.block_ids = [[] for _ in blocks]
        return blocks

    def _rewrite(self, held: _Held, request: DraftedRequest) -> None:
        """Make the runner's tokens those of the request, if a commit changed them."""
        if held.edits == request.edits:
            return
        held.edits = request.edits
        state = self._runner.requests[request.key]
        state.output_token_ids[:] = request.tokens(held.num_prompt, request.length)
        # The runner copies a request's tokens only when it joins its persistent batch.
        self._runner.input_batch.remove_request(request.key)


def _end_of_reservation(request: DraftedRequest, num_tokens: int, chunk: int) -> int:
    """Room is made for no more committed tokens than the next pass computes, because vLLM
    offers full blocks to other requests from the moment they are reserved."""
    if len(request.committed) - request.num_computed > chunk:
        return min(num_tokens, request.num_computed + chunk)
    return num_tokens
