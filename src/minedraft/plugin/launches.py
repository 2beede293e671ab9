"""What vLLM's front end does besides, while it launches its engines.

Owns the wrapper around vLLM's `launch_core_engines`, and the start of the one process of a
launch that never sees a configuration; what they do is in `interrupts`, `launch_guard` and
`parent_watch`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any

from vllm.v1.engine import coordinator, core_client

from minedraft.plugin.interrupts import kept_interrupts
from minedraft.plugin.launch_guard import launch_guard
from minedraft.plugin.parent_watch import watch_parent

_Launch = Callable[..., AbstractContextManager[Any]]
_NAME = "launch_core_engines"
_run_coordinator = coordinator.DPCoordinatorProc.run_coordinator


def wrap_launches(ours: type) -> None:
    """Let no interrupt be lost in a launch, and no engine outlive a front end killed in it.

    In launches with a config of class `ours`; others are vLLM's. Safe to call again.
    """
    for module in _launching():
        original = getattr(module, _NAME, None)
        if original is not None and not hasattr(original, "is_minedraft"):
            wrapper = _wrap(original, ours)
            wrapper.is_minedraft = True  # type: ignore[attr-defined]
            setattr(module, _NAME, wrapper)


def run_coordinator(*args: Any, **kwargs: Any) -> None:
    """vLLM's `DPCoordinatorProc.run_coordinator`, in a process that watches its parent.

    vLLM's own stays for ever once its front end was killed.
    """
    watch_parent()
    _run_coordinator(*args, **kwargs)


def _launching() -> list[ModuleType]:
    # The second one launches engines for several API servers, if it runs at all.
    several = sys.modules.get("vllm.entrypoints.cli.serve")
    return [core_client] if several is None else [core_client, several]


def _wrap(original: _Launch, ours: type) -> _Launch:
    @functools.wraps(original)
    def launch_core_engines(vllm_config: Any, *args: Any, **kwargs: Any) -> Any:
        launch = original(vllm_config, *args, **kwargs)
        return _watched(launch) if isinstance(vllm_config, ours) else launch

    return launch_core_engines


@contextmanager
def _watched(launch: AbstractContextManager[Any]) -> Iterator[Any]:
    # Leaving the inner context waits until all engines have begun.
    with kept_interrupts(), launch_guard(), _watched_coordinator(), launch as launched:
        yield launched


@contextmanager
def _watched_coordinator() -> Iterator[None]:
    # A spawned process finds the function by its name, and with it this module.
    coordinator.DPCoordinatorProc.run_coordinator = staticmethod(run_coordinator)
    try:
        yield
    finally:
        coordinator.DPCoordinatorProc.run_coordinator = staticmethod(_run_coordinator)
