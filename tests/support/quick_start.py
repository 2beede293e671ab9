"""Engines that start in seconds, because their processes are forked.

On a CPU vLLM spawns engine core and workers, and each imports torch and vLLM anew: 10 s a
process on two cores. On GPUs it forks by default, as here. Tests that start `vllm serve`,
`minedraft` or a program of their own are not touched: they run as a user would.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
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
    _fork_drafters()
    CpuPlatform.check_and_update_config = staticmethod(check_and_fork)


def _fork_drafters() -> None:
    """Let the first drafter of a forked engine be forked from it.

    One that is started again is executed, as users' are: by then the engine has threads that
    a fork would break.
    """
    import minedraft.drafter.process as process
    import minedraft.plugin.draft_model
    import minedraft.plugin.drafter_main  # noqa: F401

    started: set[int] = set()

    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        is_first = os.getpid() not in started
        started.add(os.getpid())
        if not is_first or os.environ.get("VLLM_WORKER_MULTIPROC_METHOD") != "fork":
            return subprocess.Popen(command, **options)
        return _ForkedProcess(command, **options)

    process.subprocess = SimpleNamespace(  # type: ignore[attr-defined]
        Popen=start, PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired
    )


class _ForkedProcess(subprocess.Popen):  # type: ignore[type-arg]
    """Runs the module's main() in a fork; from its standard input to its end it is a Popen."""

    def _execute_child(self, args: Any, *others: Any) -> None:
        env, p2cread, p2cwrite = others[5], others[9], others[10]
        self.pid = os.fork()
        if self.pid:
            self._child_created = True
            os.close(p2cread)
            return
        try:
            os.dup2(p2cread, 0)
            os.close(p2cwrite)
            sys.stdin = os.fdopen(0, closefd=False)
            os.environ.clear()
            os.environ.update(env)
            _use_threads_of(os.environ)
            os._exit(importlib.import_module(args[-1]).main())
        finally:
            os._exit(1)


def _use_threads_of(environment: Mapping[str, str]) -> None:
    """OpenMP read the number of threads before the fork; two on one core wait for each other."""
    import torch

    torch.set_num_threads(int(environment.get("OMP_NUM_THREADS", "1")))


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
