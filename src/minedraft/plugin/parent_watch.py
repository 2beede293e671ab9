"""Ending the processes of an engine when the one that started them is gone.

Owns that watch; it starts nothing, and an orderly end is vLLM's.
"""

from __future__ import annotations

import functools
import logging
import multiprocessing
import os
import signal
import threading
import time

from vllm import envs

logger = logging.getLogger(__name__)

_POLL_S = 0.5
_GRACE_S = 4.0


def watch_parent() -> None:
    """End this process and its children when the process that started it is gone.

    vLLM's engine core outlives a front end that was killed with SIGKILL; it would hold its
    devices, and the drafter's, for ever. In a process that is front end itself nothing
    happens: its parent is no part of the engine.
    """
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        watch(parent.pid)


def watch(parent: int) -> None:
    """As `watch_parent`, where Python does not know the parent yet; safe to call again."""
    # A fork server stands between the two; it ends with the process that uses it.
    through_server = envs.VLLM_WORKER_MULTIPROC_METHOD == "forkserver"
    _begin(os.getpid(), os.getppid() if through_server else parent)


@functools.cache
def _begin(_: int, parent: int) -> None:
    # By process, since a fork takes the cache along, but not the thread.
    if os.getppid() != parent:
        # It ended while this process imported vLLM; nothing is there yet that needs an end.
        logger.error("minedraft: process %d, which started this one, is gone; it ends", parent)
        os.kill(os.getpid(), signal.SIGKILL)
    threading.Thread(target=_watch, args=(parent,), name="minedraft-watch", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    logger.error("minedraft: the process that started this one is gone; it ends")
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_S)
    for child in multiprocessing.active_children():
        child.kill()
    os.kill(os.getpid(), signal.SIGKILL)
