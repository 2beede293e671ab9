"""The picture of Theorem 1: the exact ratio over alpha V, and what the paper claims of it.

Owns how it looks; the numbers are `theorem`'s. matplotlib is imported when it is drawn.

    python -m minedraft.theory.picture docs/images/theorem_1.png
"""

from __future__ import annotations

import sys
from pathlib import Path

from minedraft.theory.theorem import (
    CEILING,
    PEAK,
    PUBLISHED_RATIO,
    PUBLISHED_THRESHOLD,
    range_of_speedup,
    speedup,
)

_LOWEST, _HIGHEST = 0.02, 100.0
_NUM_POINTS = 401


def ratio_curve() -> list[tuple[float, float]]:
    """(alpha V, speed-up) from 0.02 to 100, evenly spread on a logarithmic scale."""
    step = (_HIGHEST / _LOWEST) ** (1 / (_NUM_POINTS - 1))
    return [(y, speedup(y)) for y in (_LOWEST * step**at for at in range(_NUM_POINTS))]


def draw_theorem(path: Path) -> None:
    """Write a PNG.

    Raises:
        ImportError: matplotlib is missing.
        OSError: the file cannot be written.
    """
    # Not pyplot: it keeps global state and may look for a display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(*zip(*ratio_curve(), strict=True), color="#4C78A8", label="exact ratio")
    low, high = range_of_speedup(PUBLISHED_RATIO)
    claim = f"claimed: above {PUBLISHED_RATIO} from {PUBLISHED_THRESHOLD:.3f} on"
    axes.hlines(PUBLISHED_RATIO, PUBLISHED_THRESHOLD, _HIGHEST, colors="#E45756", label=claim)
    holds = f"true of it: from {low:.3f} to {high:.2f}"
    axes.hlines(PUBLISHED_RATIO, low, high, colors="#54A24B", linestyles="dashed", label=holds)
    axes.plot(PEAK, CEILING, "ko", label=f"{CEILING:g} at {PEAK:.3f}: the ceiling for every f")
    axes.set_xscale("log")
    axes.set_xlim(_LOWEST, _HIGHEST)
    axes.set_ylim(1.0, 2.1)
    axes.set_xlabel("alpha V")
    axes.set_ylabel("min T_SD / min T_PSD")
    axes.legend(loc="lower left", frameon=False, fontsize=9)
    # Without the library's version the file depends on what it shows alone.
    figure.savefig(path, format="png", dpi=120, metadata={"Software": None})


if __name__ == "__main__":
    draw_theorem(Path(sys.argv[1]))
