"""Where target and drafter run: which are refused, the cores each gets, how many devices they are.

Owns vLLM's variable for the cores of a CPU target; the notation of devices is
minedraft.devices'.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace

from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.platforms import current_platform

from minedraft.config import DrafterConfig, MineDraftConfig
from minedraft.devices import Device, parse_cores, share_of_cores
from minedraft.errors import ConfigError

logger = logging.getLogger(__name__)

_CORES_VARIABLE = "VLLM_CPU_OMP_THREADS_BIND"
# What an engine before in this process wrote there, and what the user had, for the next one.
_OUR_CORES = "MINEDRAFT_TARGET_CORES"
_USERS_CORES = "MINEDRAFT_USERS_CORES"


def refuse_device(config: MineDraftConfig, num_target_devices: int, num_drafters: int) -> None:
    """Raise ConfigError for a drafter's device that the platform lacks or the target takes."""
    drafter = config.running_drafter
    if drafter is None or drafter.device.kind == "cpu":
        if drafter is not None and drafter.runs_model and not current_platform.is_cpu():
            raise ConfigError.bad_value(
                "draft_device",
                str(drafter.device),
                "'cuda:N': the installed vLLM is built for GPUs and runs no model on a CPU",
            )
        return
    if current_platform.is_cpu():
        raise ConfigError.bad_value(
            "draft_device",
            str(drafter.device),
            "'cpu' or 'cpu:N': the installed vLLM is built for CPUs",
        )
    index, count = drafter.device.index, current_platform.device_count()
    assert index is not None
    if not num_target_devices <= index <= count - num_drafters:
        others = f", of which {num_drafters} in a row are needed" if num_drafters > 1 else ""
        raise ConfigError.bad_value(
            "draft_device",
            str(drafter.device),
            f"a GPU that the target leaves free{others}: the target takes cuda:0 to "
            f"cuda:{num_target_devices - 1}, and {count} GPUs are visible",
        )


def resolve_cores(config: MineDraftConfig, args: EngineArgs) -> MineDraftConfig:
    """Give target and drafter cores of their own; on a GPU there is nothing to do.

    A drafter that is named but not started (mode none) takes no core.

    Raises:
        ConfigError: a core is none of this process's.
    """
    drafter = config.running_drafter
    if not current_platform.is_cpu():
        _check_cores_beside_gpus(drafter)
        return config
    if drafter is None:
        _bind_target_alone(config, args)
        return config
    if drafter.device.kind != "cpu":
        return config
    allowed = sorted(os.sched_getaffinity(0))
    target = _target_cores(config)
    cores = drafter.device.cores or _free_cores(allowed, target, args.data_parallel_size)
    if target is None:
        target = tuple(core for core in allowed if core not in cores) or tuple(allowed)
    _check_cores("draft_device", drafter.device, cores, allowed)
    _check_target_cores(config, target, allowed)
    _warn_of_shared_cores(target, cores, args.data_parallel_size)
    _bind(_binding(config, target, args.tensor_parallel_size * args.data_parallel_size))
    logger.info("minedraft: target on cores %s, drafter on cores %s", target, cores)
    device = Device(kind="cpu", cores=tuple(cores))
    return replace(config, drafter=replace(drafter, device=device))


def _check_cores_beside_gpus(drafter: DrafterConfig | None) -> None:
    """A drafter without a model may run on cores beside GPUs, of which the target wants none."""
    if drafter is not None and drafter.device.cores is not None:
        allowed = sorted(os.sched_getaffinity(0))
        _check_cores("draft_device", drafter.device, drafter.device.cores, allowed)


def count_devices(vllm_config: VllmConfig, drafter: DrafterConfig | None) -> dict[str, int]:
    """Devices of the target and of the drafter: GPUs, or CPU cores."""
    if not current_platform.is_cpu():
        target = int(vllm_config.parallel_config.world_size)
        return {"target": target, "drafter": int(drafter is not None and drafter.runs_model)}
    return {
        "target": _num_target_cores(vllm_config),
        "drafter": len(drafter.device.cores or ()) if drafter else 0,
    }


def _num_target_cores(vllm_config: VllmConfig) -> int:
    """Those that vLLM's threads are bound to: by default it leaves cores to its scheduler."""
    from vllm.utils.ompmultiprocessing import OMPProcessManager

    if os.environ.get(_CORES_VARIABLE) == "nobind":
        return len(os.sched_getaffinity(0))
    groups = OMPProcessManager(vllm_config).cpu_lists
    return len({core for group in groups for core in group})


def _bind_target_alone(config: MineDraftConfig, args: EngineArgs) -> None:
    if config.target_cores is not None:
        target = parse_cores(config.target_cores, "target_cores")
        _check_target_cores(config, target, sorted(os.sched_getaffinity(0)))
        _bind(_binding(config, target, args.tensor_parallel_size * args.data_parallel_size))
        return
    # An engine before this one may have had a drafter to leave cores to, or cores of its own.
    _keep(_CORES_VARIABLE, _users_cores())
    _keep(_OUR_CORES, None)
    _keep(_USERS_CORES, None)


def _bind(binding: str) -> None:
    _keep(_USERS_CORES, _users_cores())
    os.environ[_CORES_VARIABLE] = os.environ[_OUR_CORES] = binding


def _users_cores() -> str | None:
    """What the user bound the target to; None if nothing."""
    given = os.environ.get(_CORES_VARIABLE)
    is_ours = given is not None and given == os.environ.get(_OUR_CORES)
    return os.environ.get(_USERS_CORES) if is_ours else given


def _keep(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _warn_of_shared_cores(
    target: tuple[int, ...], drafter: tuple[int, ...], num_drafters: int
) -> None:
    if set(drafter) & set(target):
        logger.warning(
            "minedraft: target and drafter share cores %s: drafting will not overlap "
            "verification well",
            sorted(set(drafter) & set(target)),
        )
    if len(drafter) < num_drafters:
        logger.warning(
            "minedraft: %d drafters share cores %s: give draft_device a core for each",
            num_drafters,
            sorted(drafter),
        )


def _target_cores(config: MineDraftConfig) -> tuple[int, ...] | None:
    if config.target_cores is not None:
        return parse_cores(config.target_cores, "target_cores")
    given = _users_cores()
    if given in (None, "auto", "nobind", ""):
        return None
    assert given is not None
    return parse_cores(given.replace("|", ","), _CORES_VARIABLE)


def _binding(config: MineDraftConfig, cores: tuple[int, ...], num_workers: int) -> str:
    """vLLM's notation of cores: one group for each worker of each replica.

    Groups that the user made stay as they are if they are as many.
    """
    given = _users_cores() or ""
    if config.target_cores is None and given[:1].isdigit() and given.count("|") + 1 == num_workers:
        return given
    groups = (share_of_cores(cores, rank, num_workers) for rank in range(num_workers))
    return "|".join(",".join(map(str, group)) for group in groups)


def _free_cores(
    allowed: list[int], target: tuple[int, ...] | None, num_drafters: int
) -> tuple[int, ...]:
    """The last core that the target leaves, for each drafter; all cores if it leaves none.

    Targets whose cores nobody chose keep half of them at least.
    """
    free = [core for core in allowed if target is None or core not in target]
    if not free:
        return tuple(allowed)
    most = len(free) if target is not None else max(1, len(free) // 2)
    return tuple(free[-min(num_drafters, most) :])


def _check_target_cores(
    config: MineDraftConfig, target: tuple[int, ...], allowed: list[int]
) -> None:
    value = config.target_cores or _users_cores()
    _check_cores("target_cores", value, target, allowed)


def _check_cores(field: str, value: object, cores: tuple[int, ...], allowed: list[int]) -> None:
    if not set(cores) <= set(allowed):
        raise ConfigError.bad_value(field, str(value), f"cores of this process: {allowed}")
