"""Starting the drafter for an engine, and reaching it.

Owns processes and environment; it plans nothing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from vllm.config import VllmConfig

from minedraft.clock import Clock, VirtualClock
from minedraft.config import DrafterConfig, MineDraftConfig
from minedraft.drafter.client import DrafterClient
from minedraft.drafter.process import Connection, DrafterLauncher, drafter_command
from minedraft.drafter.revival import Revival
from minedraft.drafter.source import DraftSource, NoDrafter
from minedraft.drafter.virtual import VirtualLine
from minedraft.drafter.wait_free_client import WaitFreeClient
from minedraft.plugin.engine_config import MineDraftVllmConfig, replica_options
from minedraft.policies import Drafting, make_policy

logger = logging.getLogger(__name__)

DRAFTER_MODULE = "minedraft.plugin.drafter_main"


def begin_drafter(vllm_config: VllmConfig) -> None:
    """Start the configured drafter, to load while the target loads; wait for it later.

    The handle stays with the config, since executor and scheduler share nothing else.
    """
    config = replica_options(vllm_config)
    if config.running_drafter is None:
        return
    assert isinstance(vllm_config, MineDraftVllmConfig)
    if vllm_config.head_rows is not None:
        limits = vllm_config.scheduler_config
        vllm_config.row_ring = vllm_config.head_rows.make_ring(
            limits.max_num_batched_tokens, limits.max_num_seqs
        )
        vllm_config.row_path = vllm_config.row_ring.path
    vllm_config.drafter_launcher = drafter_launcher(config, vllm_config)
    vllm_config.starting_drafter = vllm_config.drafter_launcher.start()


def drafter_launcher(config: MineDraftConfig, vllm_config: VllmConfig) -> DrafterLauncher:
    """How to start the drafter that `config` names, for a target with that `vllm_config`."""
    assert config.drafter is not None
    return DrafterLauncher(
        command=tuple(drafter_command(DRAFTER_MODULE)),
        settings=drafter_settings(config, vllm_config),
        env=_environment(config.drafter),
    )


def open_draft_source(vllm_config: VllmConfig, clock: Clock) -> DraftSource:
    """The client of the drafter that `begin_drafter` started, once it is ready.

    Raises:
        DrafterError: it does not start; nothing is left behind.
    """
    config = replica_options(vllm_config)
    assert isinstance(vllm_config, MineDraftVllmConfig)
    starting, vllm_config.starting_drafter = vllm_config.starting_drafter, None
    launcher = vllm_config.drafter_launcher
    if starting is None or launcher is None or config.drafter is None:
        return NoDrafter()
    connection = starting.wait(config.drafter.start_timeout_s)
    blocks = f", {connection.hello.num_kv_blocks} KV blocks of {connection.hello.block_size} tokens"
    logger.info(
        "minedraft: mode %s, k = %d, drafter %s on %s (pid %d)%s",
        config.mode,
        config.num_speculative_tokens,
        config.drafter.name,
        config.drafter.device,
        connection.hello.pid,
        blocks if config.drafter.runs_model else "",
    )
    connected = _Connected(
        connection=connection,
        config=config,
        drafter=config.drafter,
        vocab_size=vllm_config.model_config.get_vocab_size(),
        revival=Revival(launcher, config.drafter.start_timeout_s),
        clock=clock,
    )
    if isinstance(clock, VirtualClock):
        connected = _in_virtual_time(connected, clock)
    return _CLIENTS[make_policy(config.mode).drafting](connected)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Connected:
    """What a client of a drafter is made of."""

    connection: Connection
    config: MineDraftConfig
    drafter: DrafterConfig
    vocab_size: int
    revival: Revival | None
    clock: Clock


def _in_virtual_time(connected: _Connected, clock: VirtualClock) -> _Connected:
    """The same, by virtual time; a drafter that is lost stays so: none would know the time."""
    connection = connected.connection
    line = VirtualLine(
        connection.channel,
        clock,
        is_alive=connection.is_alive,
        silence_s=_hang_timeout_s(connected.drafter),
    )
    return replace(connected, connection=replace(connection, channel=line), revival=None)


def _asked(connected: _Connected, *, drafts_ahead: bool = False) -> DraftSource:
    return DrafterClient(
        connected.connection,
        k=connected.config.num_draft_tokens,
        reply_timeout_s=connected.drafter.reply_timeout_s,
        hang_timeout_s=_hang_timeout_s(connected.drafter),
        vocab_size=connected.vocab_size,
        revival=connected.revival,
        drafts_ahead=drafts_ahead,
        clock=connected.clock,
    )


def _unasked(connected: _Connected) -> DraftSource:
    return WaitFreeClient(
        connected.connection,
        k=connected.config.num_draft_tokens,
        hang_timeout_s=_hang_timeout_s(connected.drafter),
        vocab_size=connected.vocab_size,
        revival=connected.revival,
        clock=connected.clock,
    )


def _hang_timeout_s(drafter: DrafterConfig) -> float:
    return max(drafter.hang_timeout_s, drafter.reply_timeout_s)


_CLIENTS: dict[Drafting, Callable[[_Connected], DraftSource]] = {
    Drafting.ON_DEMAND: _asked,
    Drafting.AHEAD: partial(_asked, drafts_ahead=True),
    Drafting.UNASKED: _unasked,
}


def drafter_settings(config: MineDraftConfig, vllm_config: VllmConfig) -> dict[str, object]:
    """What the drafter process is told, less the address that its starter adds."""
    model = vllm_config.model_config
    return {
        "parent_pid": os.getpid(),
        "options": config.to_mapping(),
        "target_max_model_len": model.max_model_len,
        "target_vocab_size": model.get_vocab_size(),
        "max_num_seqs": vllm_config.scheduler_config.max_num_seqs,
        "trust_remote_code": model.trust_remote_code,
        "row_path": getattr(vllm_config, "row_path", None),
        "target": {
            "model": model.model,
            "revision": model.revision,
            "dtype": str(model.dtype).removeprefix("torch."),
            "hf_overrides": model.hf_overrides if isinstance(model.hf_overrides, dict) else {},
            "config_format": str(getattr(model.config_format, "value", model.config_format)),
            "download_dir": vllm_config.load_config.download_dir,
        },
        "seed": model.seed or 0,
    }


def _environment(drafter: DrafterConfig) -> dict[str, str]:
    """This process's environment, less what was meant for the target, plus the device."""
    meant_for_target = ("VLLM_CPU_KVCACHE_SPACE", "VLLM_CPU_OMP_THREADS_BIND", "KMP_AFFINITY")
    env = {name: value for name, value in os.environ.items() if name not in meant_for_target}
    env["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    env["VLLM_USE_V2_MODEL_RUNNER"] = "0"
    device = drafter.device
    if not drafter.runs_model:
        # Whatever it imports, the GPUs are the target's.
        env |= dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"), "")
    if device.kind == "cuda":
        assert device.index is not None
        visible = [each for each in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
        env["CUDA_VISIBLE_DEVICES"] = visible[device.index] if visible else str(device.index)
    elif device.cores is not None:
        env["OMP_NUM_THREADS"] = str(len(device.cores))
    return env
