"""What a CPU build of vLLM wants of its process, set before anything heavy starts.

Owns environment and memory defaults of the commands that run an engine themselves.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING

from vllm.engine.arg_utils import EngineArgs
from vllm.platforms import current_platform

from minedraft.clock import Clock, RealClock
from minedraft.openmp import preload_value

if TYPE_CHECKING:
    from vllm import LLM

logger = logging.getLogger(__name__)

_CPU_KV_CACHE_BYTES = 2 * 2**30


def preload_openmp() -> None:
    """Start this process again with Intel's OpenMP loaded first, if it lies in the environment.

    vLLM's CPU worker binds its threads through it; the loader reads LD_PRELOAD only when a
    process starts. Does nothing where it is loaded already, or on another platform.
    """
    value = preload_value()
    if not current_platform.is_cpu() or value is None:
        return
    os.environ["LD_PRELOAD"] = value
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def engine_in_this_process() -> None:
    """Let vLLM run its engine core here: who asks and who schedules go by one virtual clock."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"


def clock_of(llm: LLM) -> Clock:
    """The clock of a running engine: its own if it runs in this process, else the machine's."""
    core = getattr(llm.llm_engine.engine_core, "engine_core", None)
    clock: Clock = getattr(getattr(core, "scheduler", None), "clock", RealClock())
    return clock


def cpu_kv_cache_default(engine: EngineArgs) -> None:
    """Give vLLM's arguments a KV cache of 2 GiB on a CPU if nobody sized it.

    vLLM would claim nine tenths of the machine's memory, which leaves none for a drafter.
    """
    is_sized = (
        engine.kv_cache_memory_bytes is not None
        or os.environ.get("VLLM_CPU_KVCACHE_SPACE")
        or engine.gpu_memory_utilization != EngineArgs.gpu_memory_utilization
    )
    if current_platform.is_cpu() and not is_sized:
        logger.info("minedraft: KV cache of 2 GiB for the target (--kv-cache-memory-bytes)")
        engine.kv_cache_memory_bytes = _CPU_KV_CACHE_BYTES


def warn_of_cpu_compilation(engine: EngineArgs) -> None:
    """Say that vLLM's compiled CPU code was seen to be wrong (docs/configuration.md)."""
    if current_platform.is_cpu() and not engine.enforce_eager:
        logger.warning(
            "minedraft: the target will be compiled for a CPU; that was seen to give wrong "
            "output in vLLM 0.32.0, with minedraft or without: --enforce-eager avoids it"
        )
