"""Engines that start in seconds, because their processes are forked.

On a CPU vLLM spawns engine core and workers, and each imports torch and vLLM anew: 10 s a
process on two cores. On GPUs it forks by default, as here. Tests that start `vllm serve`,
`minedraft` or a program of their own are not touched: they run as a user would.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_spawning: list[bool] = []


def fork_engines() -> None:
    """Let every engine that this process configures fork; once, and for good."""
    from vllm.platforms.cpu import CpuPlatform

    check = CpuPlatform.check_and_update_config
    if getattr(check, "forks", False):
        return
    # What the children would import.
    import vllm.v1.engine.core
    import vllm.v1.executor.multiproc_executor
    import vllm.v1.worker.cpu_worker  # noqa: F401

    def check_and_fork(vllm_config: Any) -> None:
        check(vllm_config)
        # Workers that talk to each other were seen to break when they were forked.
        if vllm_config.parallel_config.tensor_parallel_size == 1 and not _spawning:
            os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"

    check_and_fork.forks = True  # type: ignore[attr-defined]
    CpuPlatform.check_and_update_config = staticmethod(check_and_fork)


@contextmanager
def spawned_engines() -> Iterator[None]:
    """Engines that start as users' do, for the time of the context.

    After tests that computed with torch in this process, a drafter that a forked engine
    started again was seen to take minutes.
    """
    _spawning.append(True)
    try:
        yield
    finally:
        _spawning.pop()
