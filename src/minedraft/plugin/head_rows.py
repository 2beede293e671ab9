"""Which hidden states a head takes from the target, and sending them while it runs.

Owns the choice of rows (accepted positions, and all of a prompt); the memory is `row_ring`'s.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn import functional
from vllm.config import ModelConfig, ParallelConfig, SpeculativeConfig
from vllm.model_executor.models.interfaces import supports_eagle3
from vllm.transformers_utils.configs.medusa import MedusaConfig
from vllm.v1.outputs import ModelRunnerOutput

from minedraft.config import DrafterConfig
from minedraft.errors import ConfigError
from minedraft.methods import MEDUSA
from minedraft.plugin.admission import first_lines
from minedraft.plugin.head_model import aux_layers
from minedraft.transport.row_ring import RowRing, RowWriter

logger = logging.getLogger(__name__)

LIVES = "minedraft_lives"
"""Attribute of vLLM's SchedulerOutput: by request id, the version under which the drafter knows
it."""
_DEFAULT_LAYERS = 3
"""Auxiliary layers where the checkpoint names none, in vLLM's models."""
_STEPS_HELD = 2
"""Full steps for which the ring has room: one that is written while one is read."""
_NAME_BYTES = 256
"""For each request of a step."""
_MOST_BYTES = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadRows:
    """What a row holds: the target's last hidden state, or the outputs of several layers."""

    width: int
    """Values of a row."""
    dtype: torch.dtype
    takes_layers: bool
    layers: tuple[int, ...] | None = None
    """None with `takes_layers`: those that the target's class names."""
    takes_last_only: bool = False
    """Whether of a step's positions only the last one that stays is of use."""
    padding: int = 0
    """Bytes without meaning behind the values of a row, for an emulated target."""

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return int(self.width * self.dtype.itemsize) + self.padding

    def padded_to(self, row_bytes: int) -> HeadRows:
        """The same in rows of `row_bytes`.

        Raises:
            ConfigError: they hold more.
        """
        if row_bytes < self.row_bytes:
            raise ConfigError.bad_value(
                "emulate.hidden_state_bytes", row_bytes, f"at least {self.row_bytes}, the target's"
            )
        return replace(self, padding=row_bytes - self.row_bytes)

    def make_ring(self, max_num_batched_tokens: int, max_num_seqs: int) -> RowRing:
        """A ring for the rows of steps with at most that many tokens and requests."""
        most = max_num_seqs if self.takes_last_only else max_num_batched_tokens
        wanted = _STEPS_HELD * most * self.row_bytes
        # Names, and what is left free at the end.
        wanted += wanted // 8 + _STEPS_HELD * max_num_seqs * _NAME_BYTES
        return RowRing(min(wanted, _MOST_BYTES), self.row_bytes)


def head_spec(
    drafter: DrafterConfig, target: ModelConfig, parallel: ParallelConfig, k: int
) -> SpeculativeConfig:
    """vLLM's own description of the head for this target.

    Raises:
        ConfigError: vLLM does not take it.
    """
    if target.is_multimodal_model:
        raise ConfigError.bad_value(
            "draft_method", drafter.method, "a draft model, for a target that takes more than text"
        )
    # What a folder, a hub or a mismatch may raise has no common base.
    try:
        if drafter.method == MEDUSA:
            _check_medusa(drafter, target, k)
        return SpeculativeConfig(
            **spec_options(drafter, k),
            target_model_config=target,
            target_parallel_config=parallel,
        )
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"minedraft: draft_model = {drafter.model!r} is not allowed with draft_method "
            f"{drafter.method!r}: {first_lines(error)}"
        ) from error


def _check_medusa(drafter: DrafterConfig, target: ModelConfig, k: int) -> None:
    # vLLM's own description has as many heads as drafts are asked for, and never looks.
    table, _ = MedusaConfig.get_config_dict(drafter.model, revision=drafter.revision)
    if (kind := table.get("model_type", MEDUSA)) != MEDUSA:
        raise ConfigError.bad_value("draft_model", drafter.model, f"Medusa heads, not a {kind!r}")
    config = MedusaConfig.from_pretrained(drafter.model, revision=drafter.revision)
    size = target.get_hidden_size()
    if config.hidden_size != size:
        raise ConfigError.bad_value(
            "draft_model",
            drafter.model,
            f"heads for hidden states of {size} values; these take {config.hidden_size}",
        )
    most = config.num_heads
    if k > most:
        raise ConfigError.bad_value(
            "num_speculative_tokens", k, f"at most {most}, one for each head of {drafter.model!r}"
        )


def spec_options(drafter: DrafterConfig, k: int) -> dict[str, Any]:
    """The head as `speculative_config` of vLLM names it."""
    options: dict[str, Any] = {
        "method": drafter.method,
        "model": drafter.model,
        "num_speculative_tokens": k,
    }
    if drafter.quantization is not None:
        options["quantization"] = drafter.quantization
    if drafter.revision is not None:
        options["revision"] = drafter.revision
    return options


def head_rows(spec: SpeculativeConfig, target: ModelConfig) -> HeadRows:
    """The rows that a head takes.

    Raises:
        ConfigError: the checkpoint names layers that the target's class cannot give.
    """
    config = spec.draft_model_config.hf_config
    inner = getattr(config, "eagle_config", None) or {}
    takes_layers = spec.method == "eagle3" and inner.get("use_aux_hidden_state", True)
    layers = aux_layers(spec) if takes_layers else None
    if layers is not None and sorted(set(layers)) != list(layers):
        # vLLM's models give each output once, and in the order of layers.
        raise ConfigError.bad_value(
            "eagle_aux_hidden_state_layer_ids", layers, "layers in ascending order, each once"
        )
    count = len(layers or range(_DEFAULT_LAYERS)) if takes_layers else 1
    return HeadRows(
        width=count * target.get_hidden_size(),
        dtype=target.dtype,
        takes_layers=takes_layers,
        layers=layers,
        takes_last_only=spec.method == MEDUSA,
    )


@dataclass(frozen=True, slots=True)
class Sent:
    """What a step sent: bytes of rows, and the time (ns) that its pass spent on them."""

    num_bytes: int = 0
    time_ns: int = 0


class RowSender:
    """The target's worker's end: sends the rows of every step.

    Raises:
        DrafterError: there is no ring at `path`.
    """

    def __init__(self, rows: HeadRows, path: str, runner: Any) -> None:
        self._rows = rows
        self._runner = runner
        self._writer = RowWriter(path)
        self._starts: dict[str, int] = {}
        self._is_out_of_order = False
        self._warn_at = 1

    def note_starts(self) -> None:
        """Remember where each request of the batch stands; before its tokens are drawn."""
        batch = self._runner.input_batch
        positions = batch.num_computed_tokens_cpu[: batch.num_reqs].tolist()
        self._starts = dict(zip(batch.req_ids, positions, strict=True))

    def send(self, state: Any, output: ModelRunnerOutput) -> Sent:
        """Send what a step's pass left behind, of requests for which drafts are made.

        Nothing that goes wrong here ends the target: it goes on, and sends no more.
        """
        if self._is_out_of_order:
            return Sent()
        begin_ns = time.monotonic_ns()
        try:
            num_bytes = self._send(state, output)
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError):
            self._is_out_of_order = True
            logger.exception("minedraft: hidden states cannot be sent; the head drafts no more")
            return Sent()
        return Sent(num_bytes, time.monotonic_ns() - begin_ns)

    def _send(self, state: Any, output: ModelRunnerOutput) -> int:
        scheduled = state.scheduler_output
        lives: Mapping[str, int] = getattr(scheduled, LIVES, {})
        kept: list[tuple[str, int, int]] = []
        places: list[torch.Tensor] = []
        at = 0
        for request_id in self._starts:
            count = scheduled.num_scheduled_tokens[request_id]
            if request_id in lives:
                stays = count - _num_rejected(scheduled, output, request_id)
                first = stays - 1 if self._rows.takes_last_only else 0
                kept.append((request_id, first, stays))
                places.append(torch.arange(at + first, at + stays))
            at += count
        if not kept:
            return 0
        states = self._states(state)
        # One copy for all, and none of what is not sent.
        rows = states[torch.cat(places).to(states.device)].to("cpu").contiguous()
        begin = num_rows = 0
        for request_id, first, stays in kept:
            end = begin + stays - first
            start = self._starts[request_id] + first
            data = self._data(rows[begin:end])
            num_rows += self._writer.write(request_id, lives[request_id], start, data)
            begin = end
        self._note_dropped()
        return num_rows * self._rows.row_bytes

    def _data(self, rows: torch.Tensor) -> memoryview:
        data = rows.view(torch.uint8)
        if self._rows.padding:
            data = functional.pad(data, (0, self._rows.padding))
        return memoryview(data.numpy()).cast("B")

    def _states(self, state: Any) -> torch.Tensor:
        """The rows of all tokens of the step [tokens, width]."""
        if self._rows.takes_layers:
            states = torch.cat(state.aux_hidden_states, dim=-1)
        else:
            states = state.hidden_states
        if states.shape[-1] != self._rows.width or states.dtype != self._rows.dtype:
            raise ValueError(
                f"the target gives states of {states.shape[-1]} values of {states.dtype}, and "
                f"{self._rows.width} of {self._rows.dtype} are expected"
            )
        return states

    def _note_dropped(self) -> None:
        """Say it when rows were dropped, each time that they are twice as many."""
        if self._writer.num_dropped >= self._warn_at:
            self._warn_at = 2 * self._writer.num_dropped
            logger.warning(
                "minedraft: %d hidden states were dropped so far: the drafter does not keep up; "
                "requests that miss some are drafted with less context, or not for a step",
                self._writer.num_dropped,
            )


def give_layers(rows: HeadRows, runner: Any) -> None:
    """Make the target's model give the outputs of the layers that the head takes.

    Raises:
        ConfigError: its class does not know how.
    """
    if not rows.takes_layers:
        return
    model = runner.get_model()
    if not supports_eagle3(model):
        raise ConfigError.bad_value(
            "draft_method", "eagle3", f"a method that {type(model).__name__} can give states for"
        )
    layers = rows.layers or tuple(model.get_eagle3_default_aux_hidden_state_layers())
    if rows.layers is None and len(set(layers)) != _DEFAULT_LAYERS:
        raise ConfigError.bad_value(
            "eagle_aux_hidden_state_layer_ids",
            None,
            f"given in the head's config: {type(model).__name__} names {layers} by itself",
        )
    model.set_aux_hidden_state_layers(layers)
    runner.use_aux_hidden_state_outputs = True


def _num_rejected(scheduled: Any, output: ModelRunnerOutput, request_id: str) -> int:
    drafts = len(scheduled.scheduled_spec_decode_tokens.get(request_id, ()))
    if not drafts:
        return 0
    accepted = len(output.sampled_token_ids[output.req_id_to_index[request_id]]) - 1
    return drafts - max(0, accepted)
