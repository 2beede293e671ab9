"""Intel's OpenMP library in the environment, which vLLM's CPU worker binds its threads through.

Owns where it lies and how a process is told of it; it loads nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_LIBRARY = Path(sys.prefix) / "lib" / "libiomp5.so"
_IMPLEMENTATIONS = ("libiomp", "libgomp", "libomp")


def preload_value() -> str | None:
    """What LD_PRELOAD should be; None if an OpenMP library is named there, or ours is not here.

    vLLM names PyTorch's own in the environment of whatever a process starts after its first
    engine, and refuses to start where two are named
    (`vllm.utils.ompmultiprocessing.OMPProcessManager`).
    """
    loaded = os.environ.get("LD_PRELOAD", "")
    unusable = any(mark in str(_LIBRARY) for mark in " :")
    is_named = any(each in loaded for each in _IMPLEMENTATIONS)
    if is_named or unusable or not _LIBRARY.exists():
        return None
    return f"{_LIBRARY}:{loaded}" if loaded else str(_LIBRARY)
