"""An EAGLE head as the drafter's device: vLLM's runner, fed with hidden states of the target.

Owns which hidden state goes with which token; model and KV cache are `draft_model`'s and vLLM's.

The pair (token t, hidden state of position t - 1) is what the head takes in, so its sequence
leaves out at least the first token of a request, and all that come before rows that are
missing: it then drafts with the context that it has, and never from made-up states.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.v1.request import Request

from minedraft.drafter.device import Guess, Row
from minedraft.drafter.request import DraftedRequest
from minedraft.drafter.row_store import RowStore
from minedraft.plugin.draft_model import VllmDraftDevice
from minedraft.plugin.head_model import HeadModel, as_head
from minedraft.transport.row_ring import RowReader


class VllmHeadDevice(VllmDraftDevice):
    """The head that `vllm_config` names as vLLM's own drafter; see VllmDraftDevice.

    `dtype` is that of the rows, `width` the number of their values.
    """

    def __init__(
        self,
        vllm_config: VllmConfig,
        reader: RowReader,
        *,
        dtype: torch.dtype,
        width: int,
        target_vocab_size: int,
        num_candidates: int,
        with_confidences: bool = False,
    ) -> None:
        spec = vllm_config.speculative_config
        assert spec is not None
        super().__init__(
            as_head(vllm_config),
            target_vocab_size=target_vocab_size,
            num_candidates=num_candidates,
            with_confidences=with_confidences,
        )
        # A head may know fewer positions than its target.
        most = min(self.info.max_model_len, spec.draft_model_config.max_model_len)
        self.info = replace(self.info, max_model_len=most, takes_hidden_states=True)
        self._reader = reader
        self._dtype = dtype
        self._width = width
        self._store = RowStore(reader.row_bytes, max_bytes=2 * reader.capacity, end_position=most)
        self._own: dict[str, dict[int, torch.Tensor]] = {}
        self._inputs: dict[str, torch.Tensor] = {}
        self._model: HeadModel = self._runner.get_model()
        self._forward: Any = self._runner._model_forward
        self._runner._model_forward = self._forward_with_inputs
        # Of what came while the model loaded, requests have gone on since.
        reader.skip()

    def take_in(self) -> Collection[str]:
        """See DraftDevice.take_in."""
        gaps = set()
        for rows in self._reader.read():
            if self._store.add(rows, self._held):
                gaps.add(f"{rows.request_id}@{rows.version}")
        return gaps

    def num_ready(self, request: DraftedRequest) -> int:
        """See DraftDevice.num_ready."""
        begin, end = self._store.span(request.key)
        if end <= begin or request.length <= begin + 1:
            return 0
        return request.length if end + 1 >= len(request.committed) else end + 1

    def run(self, rows: Sequence[Row]) -> Mapping[str, Sequence[Guess]]:
        """See DraftDevice.run."""
        with torch.inference_mode():
            return self._run(rows)

    def _run(self, rows: Sequence[Row]) -> Mapping[str, Sequence[Guess]]:
        self._inputs = {row.request.key: self._states(row) for row in rows}
        guesses = super().run(rows)
        self._keep_own(rows)
        return guesses

    def release(self, request: DraftedRequest) -> None:
        """See DraftDevice.release."""
        super().release(request)
        self._own.pop(request.key, None)
        if request.is_over:
            self._store.end(request.key)
        else:
            self._store.restart(request.key)

    def _begin(self, request: DraftedRequest) -> tuple[Request, int]:
        """As the base class; what the target found in its cache may be in this one too."""
        begin, _ = self._store.span(request.key)
        # The first block's hash must stand for all that the states depend on, and for the first
        # token, which the head lacks.
        salt = f"{request.committed[0]} {request.adapter!r} {request.cache_salt!r}"
        shadow = self._shadow(request, 1, salt=f"after {salt}")
        if not begin or self._kv.get_computed_blocks(shadow)[1] >= begin:
            return shadow, 1
        # Its KV fits no other request: the context before it is missing.
        return self._shadow(request, begin + 1, salt=f"only {begin} {request.key}"), begin + 1

    def _states(self, row: Row) -> torch.Tensor:
        """The hidden states that go with the tokens of a row [tokens, hidden]."""
        key, split = row.request.key, len(row.request.committed)
        parts = []
        if row.start < split:
            data = self._store.take(key, row.start - 1, min(row.end, split) - 1)
            taken = torch.frombuffer(bytearray(data), dtype=self._dtype)
            taken = taken.view(min(row.end, split) - row.start, -1)
            parts.append(self._model.taken_in(taken[:, : self._width]))
        own = self._own.get(key, {})
        parts += [own[at].unsqueeze(0) for at in range(max(row.start, split), row.end)]
        return torch.cat(parts)

    def _forward_with_inputs(self, *args: Any, **kwargs: Any) -> Any:
        """The runner's forward pass, once its batch has an order."""
        states = torch.cat([self._inputs[key] for key in self._runner.input_batch.req_ids])
        self._model.inputs[: states.shape[0]].copy_(states)
        return self._forward(*args, **kwargs)

    def _keep_own(self, rows: Sequence[Row]) -> None:
        """Keep the head's state behind each new guess, and drop those that were decided."""
        by_key = {row.request.key: row for row in rows}
        at = 0
        for key in self._runner.input_batch.req_ids:
            row = by_key[key]
            at += row.num_tokens
            split = len(row.request.committed)
            own = self._own.setdefault(key, {})
            for decided in [each for each in own if each < split]:
                del own[decided]
            if row.is_last:
                own[row.end] = self._model.outputs[at - 1].clone()
