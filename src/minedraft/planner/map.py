"""The map of winners: which mode is the fastest over t/V and requests in flight.

Owns the grid and the picture; who wins a cell is `theory.winners`'. matplotlib is imported when
the picture is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from minedraft.config import MODES
from minedraft.errors import ConfigError
from minedraft.planner.question import Question
from minedraft.theory import Load, ScaledDraft, winners

_LOWEST, _HIGHEST = 0.02, 2.0
_NUM_RATIOS = 25
_COLOURS = ("#BAB0AC", "#F2CF5B", "#4C78A8", "#B279A2", "#54A24B")


@dataclass(frozen=True, slots=True, kw_only=True)
class WinnerMap:
    """Cells are (t/V, requests in flight); t/V is that of k = 1 at the question's own number in
    flight, changed by longer or shorter draft passes."""

    question: Question
    own_ratio: float
    """The question's t/V."""
    ratios: tuple[float, ...]
    in_flight: tuple[int, ...]
    winners: dict[tuple[float, int], tuple[str, float]]
    """The fastest mode of each cell, and its gain over the next one; no SLO, no replicas. A cell
    in which no mode has a closed form is missing, as one beyond the sizes of a profile."""


def ratio_of(question: Question) -> float:
    """t/V of one draft token a request, at the question's requests in flight, without prompts."""
    load = question.load(question.in_flight)
    return load.draft_ms(load.in_flight, 1) / load.verify_ms(load.in_flight, load.in_flight)


def cells_of(
    question: Question, ratios: tuple[float, ...], in_flight: tuple[int, ...]
) -> dict[tuple[float, int], Load]:
    """The load of each cell.

    Raises:
        ConfigError: drafting takes no time, so that no factor gives another t/V.
    """
    own = ratio_of(question)
    if not own > 0:
        raise ConfigError.bad_value("t/V of the map", own, "a draft time above 0")
    return {
        (ratio, count): replace(
            question.load(count), times=ScaledDraft(question.times, ratio / own)
        )
        for ratio in ratios
        for count in in_flight
    }


def make_map(question: Question) -> WinnerMap:
    """The map around a question: t/V from 0.02 to 2 and its own, powers of two in flight."""
    own = ratio_of(question)
    steps = range(_NUM_RATIOS)
    spread = [_LOWEST * (_HIGHEST / _LOWEST) ** (at / (_NUM_RATIOS - 1)) for at in steps]
    ratios = tuple(sorted({*spread, own}))
    most = max(128, 2 * question.in_flight)
    powers = [1 << at for at in range(most.bit_length()) if 1 << at <= most]
    in_flight = tuple(sorted({*powers, question.in_flight}))
    cells = cells_of(question, ratios, in_flight)
    return WinnerMap(
        question=question,
        own_ratio=own,
        ratios=ratios,
        in_flight=in_flight,
        winners=winners(cells, MODES, question.max_k),
    )


def draw_map(found: WinnerMap, path: Path) -> None:
    """Write a PNG.

    Raises:
        ImportError: matplotlib is missing.
        OSError: the file cannot be written.
    """
    # Not pyplot: it keeps global state and may look for a display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    canvas = Figure(figsize=(7, 4.5), layout="constrained")
    FigureCanvasAgg(canvas)
    axes = canvas.add_subplot()
    codes = [[_code(found, (ratio, count)) for ratio in found.ratios] for count in found.in_flight]
    colours = ListedColormap(_COLOURS)
    axes.pcolormesh(
        _edges(found.ratios),
        _edges(found.in_flight),
        codes,
        cmap=colours,
        vmin=-0.5,
        vmax=len(MODES) - 0.5,
    )
    axes.set_xscale("log")
    axes.set_yscale("log", base=2)
    question = found.question
    axes.plot(found.own_ratio, question.in_flight, "k*", markersize=12)
    axes.set_xlabel(f"t/V at k = 1 and {question.in_flight} in flight")
    axes.set_ylabel("requests in flight")
    axes.set_title("fastest mode at its best k (closed forms)", fontsize=11)
    seen = [mode for at, mode in enumerate(MODES) if any(at in line for line in codes)]
    handles = [Patch(color=_COLOURS[MODES.index(mode)], label=mode) for mode in seen]
    canvas.legend(handles=handles, loc="outside right upper", frameon=False)
    # Without the library's version the file depends on what it shows alone.
    canvas.savefig(path, format="png", dpi=150, metadata={"Software": None})


def _code(found: WinnerMap, cell: tuple[float, int]) -> float:
    """The number of the cell's mode, or NaN, which is drawn as nothing."""
    winner = found.winners.get(cell)
    return math.nan if winner is None else MODES.index(winner[0])


def _edges(middles: Sequence[float]) -> list[float]:
    """Edges of cells around rising values, halfway on a logarithmic scale."""
    inner = [math.sqrt(low * high) for low, high in pairwise(middles)]
    return [middles[0] ** 2 / inner[0], *inner, middles[-1] ** 2 / inner[-1]]
