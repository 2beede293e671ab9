"""Medusa heads as the drafter's device: each says one token, all from one state of the target.

Owns which state that is, and the start of vLLM around a model that has no KV cache; the heads are
vLLM's class `Medusa` (arXiv 2401.10774).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from vllm.config import ModelConfig, VllmConfig, set_current_vllm_config
from vllm.model_executor.model_loader import get_model_loader
from vllm.model_executor.model_loader.utils import (
    initialize_model,
    process_weights_after_loading,
)
from vllm.platforms import current_platform
from vllm.utils.network_utils import get_file_store_init_method
from vllm.utils.torch_utils import set_default_torch_dtype
from vllm.v1.worker.gpu_worker import init_worker_distributed_environment

from minedraft.drafter.device import DeviceInfo, Guess, Row
from minedraft.drafter.latest_rows import LatestRows
from minedraft.drafter.request import DraftedRequest
from minedraft.transport.row_ring import RowReader

_ENDLESS = 1 << 30
_MOST_STRANGERS = 1024


class VllmMedusaDevice:
    """The heads that `vllm_config` names as vLLM's own drafter; see DraftDevice.

    Head i guesses the token i + 1 places behind the last committed one, from the target's state
    of the position before that (vLLM's MedusaProposer). `dtype` is that of the rows, `width`
    the number of their values.
    Raises whatever vLLM raises if the heads cannot be loaded.
    """

    def __init__(
        self,
        vllm_config: VllmConfig,
        reader: RowReader,
        *,
        dtype: torch.dtype,
        width: int,
        target_vocab_size: int,
        with_confidences: bool = False,
    ) -> None:
        self._device = vllm_config.device_config.device
        self._model: Any = _load(vllm_config)
        self._own_dtype = next(self._model.parameters()).dtype
        self._num_heads = len(self._model.blocks)
        self._reader = reader
        self._dtype = dtype
        self._width = width
        self._vocab_size = target_vocab_size
        self._with_confidences = with_confidences
        most = vllm_config.scheduler_config.max_num_seqs
        self._latest = LatestRows(reader.row_bytes, most + _MOST_STRANGERS)
        self.info = DeviceInfo(
            vocab_size=target_vocab_size,
            max_model_len=vllm_config.model_config.max_model_len,
            max_num_batched_tokens=_ENDLESS,
            max_num_seqs=most,
            num_kv_blocks=0,
            block_size=1,
            takes_hidden_states=True,
            renews_guesses=True,
        )
        # Of what came while the model loaded, requests have gone on since.
        reader.skip()

    @property
    def num_free_blocks(self) -> int:
        """It has none, and needs none."""
        return 0

    def num_held_blocks(self, request: DraftedRequest) -> int:
        """Always 0."""
        return 0

    def num_ready(self, request: DraftedRequest) -> int:
        """See DraftDevice.num_ready: all, once the state behind the last commit is there."""
        return 0 if self._state(request) is None else request.length

    def take_in(self) -> Collection[str]:
        """See DraftDevice.take_in; nothing is computed that a gap could spoil."""
        for rows in self._reader.read():
            self._latest.add(rows)
        return ()

    def reserve(self, request: DraftedRequest, num_tokens: int, chunk: int) -> bool:
        """There is always room; of the tokens before the last one nothing is computed."""
        request.num_computed = request.length - 1
        return True

    def run(self, rows: Sequence[Row]) -> Mapping[str, Sequence[Guess]]:
        """See DraftDevice.run; who gets fewer tokens than wanted is exhausted."""
        asked = [row for row in rows if row.num_wanted and row.is_last]
        if not asked:
            return {}
        spans = [self._span(row) for row in asked]
        for row, (begin, end) in zip(asked, spans, strict=True):
            row.request.is_exhausted = end - begin < row.num_wanted
        with torch.inference_mode():
            said = self._said([row.request for row in asked], max(end for _, end in spans))
        return {
            row.request.key: guesses[begin:end]
            for row, guesses, (begin, end) in zip(asked, said, spans, strict=True)
        }

    def release(self, request: DraftedRequest) -> None:
        """See DraftDevice.release."""
        if request.is_over:
            self._latest.end(request.key)

    def close(self) -> None:
        """Nothing to free that the end of the process does not."""

    def _state(self, request: DraftedRequest) -> bytes | None:
        # The last committed token has not passed the target yet.
        return self._latest.at(request.key, len(request.committed) - 2)

    def _state_that_is_there(self, request: DraftedRequest) -> bytes:
        state = self._state(request)
        if state is None:
            raise KeyError(f"the state behind token {len(request.committed) - 1} of {request.key}")
        return state

    def _span(self, row: Row) -> tuple[int, int]:
        """Which heads are asked: those behind the guesses that are there."""
        begin = len(row.request.guesses)
        return begin, min(self._num_heads, begin + row.num_wanted)

    def _said(self, requests: Sequence[DraftedRequest], num_heads: int) -> list[list[Guess]]:
        """What the first heads say for each request."""
        data = b"".join(map(self._state_that_is_there, requests))
        states = torch.frombuffer(bytearray(data), dtype=self._dtype).view(len(requests), -1)
        states = states[:, : self._width].to(device=self._device, dtype=self._own_dtype)
        by_head = [
            self._best(logits)
            for logits in self._model.compute_logits(self._model(states)[:num_heads])
        ]
        return [list(guesses) for guesses in zip(*by_head, strict=True)]

    def _best(self, logits: torch.Tensor) -> list[Guess]:
        """What one head says for each request, of its logits [requests, vocabulary]."""
        logits = logits[:, : self._vocab_size]
        tokens = logits.argmax(-1).tolist()
        if not self._with_confidences:
            return [Guess(token) for token in tokens]
        sure = logits.amax(-1).float() - logits.float().logsumexp(-1)
        return [
            Guess(token, confidence=each) for token, each in zip(tokens, sure.tolist(), strict=True)
        ]


def _load(vllm_config: VllmConfig) -> Any:
    spec = vllm_config.speculative_config
    assert spec is not None
    device = vllm_config.device_config.device
    if device.type == "cuda":
        current_platform.set_device(torch.device("cuda:0"))
    with set_current_vllm_config(vllm_config):
        # Its output matrices are layers that tensor parallel workers would share.
        init_worker_distributed_environment(
            vllm_config, 0, get_file_store_init_method(), 0, current_platform.dist_backend
        )
        return _heads(vllm_config, spec.draft_model_config)


def _heads(vllm_config: VllmConfig, model_config: ModelConfig) -> nn.Module:
    # As vLLM's `get_model`, which asks for an accelerator's memory; only vLLM's CPU worker makes
    # that harmless where there is none.
    device = vllm_config.device_config.device
    with set_default_torch_dtype(model_config.dtype):
        with device:
            heads = initialize_model(vllm_config=vllm_config, model_config=model_config)
        get_model_loader(vllm_config.load_config).load_weights(heads, model_config)
        process_weights_after_loading(heads, model_config, device)
    return heads.eval()
