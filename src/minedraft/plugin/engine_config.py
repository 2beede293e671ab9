"""From minedraft's options to vLLM's: what is set, what is refused, before anything starts.

Owns the one entry (`EngineArgs.create_engine_config`) through which `vllm serve`,
`minedraft serve` and `LLM(...)` all pass; it starts no process.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from vllm import envs
from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs

from minedraft.config import MineDraftConfig
from minedraft.drafter.process import DrafterLauncher, StartingDrafter
from minedraft.errors import ConfigError
from minedraft.model_names import check_model_name
from minedraft.plugin.admission import refuse_drafter, refuse_target
from minedraft.plugin.compat import check_vllm
from minedraft.plugin.head_rows import HeadRows, head_rows, head_spec
from minedraft.plugin.launches import wrap_launches
from minedraft.plugin.parent_watch import watch, watch_parent
from minedraft.plugin.placement import refuse_device, resolve_cores
from minedraft.plugin.runtime import cpu_kv_cache_default, warn_of_cpu_compilation
from minedraft.policies import make_policy
from minedraft.transport.row_ring import RowRing

logger = logging.getLogger(__name__)

OPTIONS_KEY = "minedraft"
SCHEDULER = "minedraft.plugin.scheduler.MineDraftScheduler"
EXECUTOR = "minedraft.plugin.executor.MineDraftExecutor"
WORKER = "minedraft.plugin.worker.MineDraftWorker"
PROPOSER = "minedraft.plugin.proposer.NullProposer"
_WRITER = "minedraft_writer_pid"


class MineDraftVllmConfig(VllmConfig):
    """vLLM's config of an engine that runs minedraft.

    vLLM offers no option for the number of steps that may be queued on the target: it
    derives it from pipeline size and async scheduling. This property says it instead; it
    can go when vLLM takes the number from its scheduler.
    """

    starting_drafter: StartingDrafter | None = None
    """The drafter between executor and scheduler; it stays in the engine's process."""
    drafter_launcher: DrafterLauncher | None = None
    """What starts it again."""
    row_ring: RowRing | None = None
    """Through which the workers send hidden states to the drafter; kept by the engine's process."""
    row_path: str | None = None
    """Where the workers find it."""
    head_rows: HeadRows | None = None
    """What they send."""
    num_replicas: int = 1
    """Data parallel engines; vLLM forgets it in the process of each."""

    @property
    def max_concurrent_batches(self) -> int:
        """How many steps the policy keeps queued on the target."""
        options = active_options(self)
        if has_virtual_clock(options):
            # Planning takes no virtual time, so that a queue would only plan with old news.
            return 1
        return make_policy(options.mode).max_concurrent_batches

    def compute_hash(self, *args: Any, **kwargs: Any) -> str:
        """vLLM's key of compiled code: of our options only layers that give their outputs
        change any of it."""
        plain = copy.copy(self)
        plain.additional_config = {
            name: value for name, value in self.additional_config.items() if name != OPTIONS_KEY
        }
        found = str(VllmConfig.compute_hash(plain, *args, **kwargs))
        if self.head_rows is None or not self.head_rows.takes_layers:
            return found
        return hashlib.sha256(f"{found} {self.head_rows.layers}".encode()).hexdigest()[:10]

    def __getstate__(self) -> dict[str, Any]:
        """The state that workers get: a process handle is of no use to them."""
        ours = ("starting_drafter", "drafter_launcher", "row_ring")
        state = {name: value for name, value in vars(self).items() if name not in ours}
        return state | {_WRITER: os.getpid()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the state; in the process of an engine or worker, watch over its parent.

        Such a process calls nothing of ours earlier: by then it may have waited minutes for
        a front end that is gone.
        """
        writer = state.pop(_WRITER)
        self.__dict__.update(state)
        if writer != os.getpid():
            watch(writer)


def active_options(vllm_config: VllmConfig) -> MineDraftConfig:
    """The options of an engine that minedraft configured.

    Raises:
        ConfigError: it did not, because the plugin is not loaded in the front end.
    """
    if not isinstance(vllm_config, MineDraftVllmConfig):
        raise ConfigError(
            "minedraft: the engine was configured without the plugin; it is registered under "
            "vllm.general_plugins as 'minedraft': install the package, and name it in "
            "VLLM_PLUGINS if that is set"
        )
    assert isinstance(vllm_config.additional_config, dict)
    return MineDraftConfig.from_mapping(vllm_config.additional_config[OPTIONS_KEY])


def replica_options(vllm_config: VllmConfig) -> MineDraftConfig:
    """The options of this engine among data parallel ones: its drafter's device, its trace.

    Raises:
        ConfigError: see `active_options`.
    """
    config = active_options(vllm_config)
    assert isinstance(vllm_config, MineDraftVllmConfig)
    # vLLM keeps the rank in this field alone once the replicas of a dense model are apart.
    rank = vllm_config.parallel_config.data_parallel_index
    if config.drafter is not None:
        device = config.drafter.device.of_replica(rank, vllm_config.num_replicas)
        config = replace(config, drafter=replace(config.drafter, device=device))
    if config.trace is not None and rank:
        trace = Path(config.trace)
        config = replace(config, trace=str(trace.with_name(f"{trace.stem}.{rank}{trace.suffix}")))
    return config


def wrap_create_engine_config(original: Callable[..., VllmConfig]) -> Callable[..., VllmConfig]:
    """`create_engine_config` that knows `additional_config["minedraft"]`.

    vLLM has no hook between its arguments and its config, where scheduler, executor and
    speculative method are chosen; this wrapper can go when a plugin may choose them.
    Engines without the key are untouched.
    """

    @functools.wraps(original)
    def create_engine_config(self: EngineArgs, *args: Any, **kwargs: Any) -> VllmConfig:
        options = self.additional_config
        if not isinstance(options, dict) or OPTIONS_KEY not in options:
            _refuse_half_asked(self)
            return original(self, *args, **kwargs)
        if self._api_process_count > 1 and self._api_process_rank >= 0:
            watch_parent()  # one of several API servers
        config = resolve_cores(MineDraftConfig.from_mapping(options[OPTIONS_KEY]), self)
        if config.drafter is not None and config.drafter.model is not None:
            check_model_name("draft_model", config.drafter.model)
        check_vllm(allow_untested=config.allow_untested_vllm)
        _refuse_arguments(self, config)
        _set_arguments(self, config)
        cpu_kv_cache_default(self)
        warn_of_cpu_compilation(self)
        vllm_config = original(self, *args, **kwargs)
        refuse_target(vllm_config)
        if config.running_drafter is not None:
            refuse_drafter(config.running_drafter, vllm_config.model_config)
        vllm_config.__class__ = MineDraftVllmConfig
        assert isinstance(vllm_config, MineDraftVllmConfig)
        vllm_config.head_rows = _head_rows(config, vllm_config)
        vllm_config.num_replicas = vllm_config.parallel_config.data_parallel_size
        wrap_launches(MineDraftVllmConfig)
        return vllm_config

    return create_engine_config


def _head_rows(config: MineDraftConfig, vllm_config: VllmConfig) -> HeadRows | None:
    """What the drafter takes from the target's passes; None if it takes tokens alone."""
    drafter, target = config.running_drafter, vllm_config.model_config
    if drafter is None or not drafter.takes_hidden_states:
        return None
    spec = head_spec(drafter, target, vllm_config.parallel_config, config.num_draft_tokens)
    rows = head_rows(spec, target)
    if config.emulate is None or not config.emulate.hidden_state_bytes:
        return rows
    return rows.padded_to(config.emulate.hidden_state_bytes)


def _refuse_half_asked(args: EngineArgs) -> None:
    if args.scheduler_cls == SCHEDULER:
        raise ConfigError(
            f"minedraft: scheduler_cls is {SCHEDULER}, but additional_config has no "
            f"{OPTIONS_KEY!r} table; give the options there"
        )


def has_virtual_clock(config: MineDraftConfig) -> bool:
    """Whether the engine runs emulated devices by a virtual clock."""
    return config.emulate is not None and config.emulate.clock == "virtual"


def _set_arguments(args: EngineArgs, config: MineDraftConfig) -> None:
    assert isinstance(args.additional_config, dict)
    args.additional_config = {**args.additional_config, OPTIONS_KEY: config.to_mapping()}
    args.scheduler_cls = SCHEDULER
    args.distributed_executor_backend = EXECUTOR
    args.worker_cls = WORKER
    args.async_scheduling = False
    if config.mode != "none":
        args.speculative_config = {
            "method": "custom_class",
            "model": PROPOSER,
            "num_speculative_tokens": config.num_draft_tokens,
        }


def _refuse_arguments(args: EngineArgs, config: MineDraftConfig) -> None:
    """Raise ConfigError for the first argument that cannot work with minedraft."""
    ours: dict[str, Any] = {"method": "custom_class", "model": PROPOSER}
    spec, drafter = args.speculative_config, config.running_drafter
    is_ours = isinstance(spec, dict) and ours.items() <= spec.items()
    refusals: list[tuple[bool, str, object, str]] = [
        (
            spec is not None and not is_ours,
            "speculative_config",
            spec,
            "none: minedraft brings its own drafter",
        ),
        (
            args.scheduler_cls not in (None, SCHEDULER),
            "scheduler_cls",
            args.scheduler_cls,
            "none: minedraft brings its own scheduler",
        ),
        (
            args.distributed_executor_backend not in (None, "mp", EXECUTOR),
            "distributed_executor_backend",
            args.distributed_executor_backend,
            "none or 'mp'",
        ),
        (
            config.trace is not None and Path(config.trace).is_dir(),
            "trace",
            config.trace,
            "a file: this is a folder",
        ),
        (args.worker_cls not in ("auto", WORKER), "worker_cls", args.worker_cls, "'auto'"),
        (bool(args.async_scheduling), "async_scheduling", True, "false or not given"),
        (
            has_virtual_clock(config) and envs.VLLM_ENABLE_V1_MULTIPROCESSING,
            "emulate.clock",
            "virtual",
            "'real' in an engine process of its own: requests would come by another clock; a "
            "virtual one with VLLM_ENABLE_V1_MULTIPROCESSING=0",
        ),
        (
            args.pipeline_parallel_size > 1,
            "pipeline_parallel_size",
            args.pipeline_parallel_size,
            "1 (tensor parallelism works)",
        ),
        (
            bool(args.device_ids) and drafter is not None and drafter.device.kind != "cpu",
            "device_ids",
            args.device_ids,
            "not given: use CUDA_VISIBLE_DEVICES, in which the target takes the first GPUs",
        ),
        (
            args.data_parallel_size > 1 and not _all_replicas_are_here(args),
            "data_parallel_size",
            args.data_parallel_size,
            "1, or all replicas in one vLLM server on this machine (no Ray, no external or hybrid "
            "load balancer)",
        ),
        (
            os.environ.get("VLLM_USE_V2_MODEL_RUNNER", "0").lower() in ("1", "true"),
            "VLLM_USE_V2_MODEL_RUNNER",
            os.environ.get("VLLM_USE_V2_MODEL_RUNNER"),
            "0 or not set: vLLM verifies drafts of a custom class with Model Runner V1",
        ),
    ]
    for refused, field, value, allowed in refusals:
        if refused:
            raise ConfigError.bad_value(field, value, allowed)
    per_replica = args.tensor_parallel_size * args.prefill_context_parallel_size
    refuse_device(config, per_replica * args.data_parallel_size, args.data_parallel_size)


def _all_replicas_are_here(args: EngineArgs) -> bool:
    others = (
        args.data_parallel_external_lb,
        args.data_parallel_hybrid_lb,
        args.data_parallel_rank is not None,
        args.data_parallel_backend == "ray",
        args.data_parallel_size_local not in (None, args.data_parallel_size),
        args.nnodes > 1,
    )
    return not any(others)
