"""The drafter process: ``python -m minedraft.plugin.drafter_main``, started by the scheduler.

Owns start-up and the end of the process; the work is DrafterLoop's. Its settings come as
one JSON object on standard input. Heavy imports wait until the process is pinned.
"""

from __future__ import annotations

import hashlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from minedraft.clock import Clock, VirtualClock
from minedraft.config import DrafterConfig, MineDraftConfig
from minedraft.drafter.device import DraftDevice
from minedraft.drafter.emulated import EmulatedDraftDevice
from minedraft.drafter.loop import DrafterLoop
from minedraft.drafter.process import be_killed_with_parent, die_with_parent
from minedraft.drafter.tokens_only import TokensOnlyDevice
from minedraft.drafter.virtual import VirtualDrafterLoop
from minedraft.emulation import make_clock
from minedraft.errors import DrafterError
from minedraft.methods import MEDUSA, Surroundings, make_drafter
from minedraft.transport.channel import Channel, PrivateEndpoint, drafter_channel
from minedraft.transport.messages import Failed, Hello, ToDrafter, ToScheduler
from minedraft.transport.row_ring import RowReader

if TYPE_CHECKING:
    from vllm.config import VllmConfig

logger = logging.getLogger("minedraft.drafter")

_CONNECT_TIMEOUT_S = 10.0
_Opener = Callable[["DrafterSettings", MineDraftConfig, DrafterConfig], DraftDevice]


class DrafterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the scheduler hands the process; lengths in tokens."""

    address: str
    token: str
    parent_pid: int
    options: dict[str, Any]
    target_max_model_len: int
    target_vocab_size: int
    max_num_seqs: int
    trust_remote_code: bool
    seed: int
    target: dict[str, Any]
    """Model, revision and dtype of the target, for what a head takes from it."""
    is_tied_to_parent: bool = False
    """Whether the thread that starts it lives as long as its process."""
    row_path: str | None = None
    """Where its hidden states come through."""
    life: int = 0
    """How often the drafter was started before for this engine."""

    @property
    def drafter_seed(self) -> int:
        """A seed that shares nothing with the target's: drafts must be independent of what the
        target draws, or the verification of drawn ones is not exact."""
        text = f"minedraft drafter {self.seed} {self.life}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")


def main() -> int:
    """Run the drafter until it is told to end; 1 if it could not start."""
    settings = msgspec.json.decode(sys.stdin.buffer.read(), type=DrafterSettings)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(
        settings.parent_pid, last_words=lambda: PrivateEndpoint.remove_at(settings.address)
    )
    config = MineDraftConfig.from_mapping(settings.options)
    channel = drafter_channel(settings.address)
    if channel.wait_until_connected(_CONNECT_TIMEOUT_S):
        # From here on no kill can leave a socket file behind.
        PrivateEndpoint.remove_at(settings.address)
    if settings.is_tied_to_parent:
        be_killed_with_parent(settings.parent_pid)
    clock = make_clock(config.emulate)
    try:
        _pin(config)
        device = _open_device(settings, config, clock)
    except Exception as error:
        logger.exception("minedraft drafter: start failed")
        channel.send(Failed(token=settings.token, reason=f"{type(error).__name__}: {error}"))
        channel.linger_close()
        return 1
    _serve(channel, device, settings, clock, sends_confidences=config.tetris_extra_tokens > 0)


def _serve(
    channel: Channel[ToDrafter, ToScheduler],
    device: DraftDevice,
    settings: DrafterSettings,
    clock: Clock,
    *,
    sends_confidences: bool,
) -> NoReturn:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    info = device.info
    channel.send(
        Hello(
            token=settings.token,
            pid=os.getpid(),
            vocab_size=info.vocab_size,
            max_model_len=info.max_model_len,
            num_kv_blocks=info.num_kv_blocks,
            block_size=info.block_size,
        )
    )
    if isinstance(clock, VirtualClock):
        VirtualDrafterLoop(channel, device, clock, sends_confidences=sends_confidences).run()
    else:
        DrafterLoop(channel, device, sends_confidences=sends_confidences).run()
    # Nothing to save: the end of the process frees the device faster than a tidy shutdown.
    os._exit(0)


def _pin(config: MineDraftConfig) -> None:
    """Keep this process, and every thread it starts later, on its cores."""
    assert config.drafter is not None
    if config.drafter.device.cores is not None:
        os.sched_setaffinity(0, config.drafter.device.cores)


def _open_device(settings: DrafterSettings, config: MineDraftConfig, clock: Clock) -> DraftDevice:
    assert config.drafter is not None
    device = _opener(config.drafter)(settings, config, config.drafter)
    if config.emulate is not None:
        device = EmulatedDraftDevice(
            device,
            config.emulate,
            vocab_size=settings.target_vocab_size,
            k=config.num_draft_tokens,
            clock=clock,
        )
    return device


def _opener(drafter: DrafterConfig) -> _Opener:
    if drafter.method == MEDUSA:
        return _open_medusa
    if drafter.takes_hidden_states:
        return _open_head
    return _open_model if drafter.runs_model else _open_method


def _open_head(
    settings: DrafterSettings, config: MineDraftConfig, drafter: DrafterConfig
) -> DraftDevice:
    import torch

    from minedraft.plugin.draft_config import head_vllm_config
    from minedraft.plugin.head_device import VllmHeadDevice

    vllm_config = head_vllm_config(settings, config)
    return VllmHeadDevice(
        vllm_config,
        _row_reader(settings),
        dtype=getattr(torch, settings.target["dtype"]),
        width=_row_width(vllm_config),
        target_vocab_size=settings.target_vocab_size,
        num_candidates=drafter.num_candidates,
        with_confidences=config.tetris_extra_tokens > 0,
    )


def _open_medusa(
    settings: DrafterSettings, config: MineDraftConfig, drafter: DrafterConfig
) -> DraftDevice:
    import torch

    from minedraft.plugin.draft_config import head_vllm_config
    from minedraft.plugin.medusa_device import VllmMedusaDevice

    vllm_config = head_vllm_config(settings, config)
    return VllmMedusaDevice(
        vllm_config,
        _row_reader(settings),
        dtype=getattr(torch, settings.target["dtype"]),
        width=_row_width(vllm_config),
        target_vocab_size=settings.target_vocab_size,
        with_confidences=config.tetris_extra_tokens > 0,
    )


def _row_width(vllm_config: VllmConfig) -> int:
    from minedraft.plugin.head_rows import head_rows

    assert vllm_config.speculative_config is not None
    return head_rows(vllm_config.speculative_config, vllm_config.model_config).width


def _row_reader(settings: DrafterSettings) -> RowReader:
    if settings.row_path is None:
        raise DrafterError("minedraft: the engine gives the head no hidden states to draft from")
    return RowReader(settings.row_path)


def _open_model(
    settings: DrafterSettings, config: MineDraftConfig, drafter: DrafterConfig
) -> DraftDevice:
    from minedraft.plugin.draft_config import draft_vllm_config
    from minedraft.plugin.draft_model import VllmDraftDevice

    return VllmDraftDevice(
        draft_vllm_config(settings, config),
        target_vocab_size=settings.target_vocab_size,
        num_candidates=drafter.num_candidates,
        with_confidences=config.tetris_extra_tokens > 0,
    )


def _open_method(
    settings: DrafterSettings, config: MineDraftConfig, drafter: DrafterConfig
) -> DraftDevice:
    surroundings = Surroundings(
        vocab_size=settings.target_vocab_size,
        max_model_len=settings.target_max_model_len,
        max_num_seqs=settings.max_num_seqs,
        num_speculative_tokens=config.num_draft_tokens,
        seed=settings.drafter_seed,
    )
    made = make_drafter(drafter.method, drafter.options, surroundings)
    return TokensOnlyDevice(made, surroundings, drafter.method)


if __name__ == "__main__":
    sys.exit(main())
