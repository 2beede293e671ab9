"""Intel's OpenMP library in the environment, which vLLM's CPU worker binds its threads through.

Owns where it lies and how a process is told of it; it loads nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_LIBRARY = Path(sys.prefix) / "lib" / "libiomp5.so"


def preload_value() -> str | None:
    """What LD_PRELOAD should be; None if the library is named there, or is not here."""
    loaded = os.environ.get("LD_PRELOAD", "")
    unusable = any(mark in str(_LIBRARY) for mark in " :")
    if "libiomp" in loaded or unusable or not _LIBRARY.exists():
        return None
    return f"{_LIBRARY}:{loaded}" if loaded else str(_LIBRARY)
