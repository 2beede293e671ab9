"""Draws a trace as two lanes over time, drafter above verifier.

Owns the figure; it does not compute numbers. The layout follows Figure 2 of
arXiv:2603.18016. Needs matplotlib, which is imported when a figure is drawn.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from minedraft.trace.lanes import Box, BoxKind, drafter_boxes, trace_start_ns, verifier_boxes
from minedraft.trace.records import StepRecord, TraceHeader
from minedraft.trace.summary import NS_PER_MS, steady_pairs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DEFAULT_STEPS = 12
COLOURS: dict[BoxKind, str] = {
    "batch 0": "#4C78A8",
    "batch 1": "#CC6A0A",
    "unsplit": "#8C8C8C",
    "prefill": "#54A24B",
}
BOX_HEIGHT = 0.72
MIN_LABEL_SHARE = 0.022
"""A box narrower than this share of the window gets no step number."""
MIN_EDGE_SHARE = 0.004
"""A box narrower than this gets no white edge, which would hide it."""


def draw_timeline(
    header: TraceHeader,
    steps: list[StepRecord],
    path_png: str | os.PathLike[str],
    first_ms: float | None = None,
    last_ms: float | None = None,
) -> None:
    """Write a PNG of the boxes between ``first_ms`` and ``last_ms``.

    Times are milliseconds from the first work in the trace. With neither limit, the
    window holds about 12 steps from the middle of the longest run of steady ones (or
    of the whole trace); with one, it reaches to the other end of the trace.

    Raises:
        ImportError: matplotlib is missing.
        OSError: the file cannot be written.
        ValueError: there are no steps, or none in the window.
    """
    if not steps:
        raise ValueError("steps: the trace has none, so there is nothing to draw")
    zero_ns = trace_start_ns(steps)
    window = _window_ms(steps, zero_ns, first_ms, last_ms)
    lanes = {
        "Drafter": _visible(drafter_boxes(steps), zero_ns, window),
        "Verifier": _visible(verifier_boxes(steps), zero_ns, window),
    }
    if not any(lanes.values()):
        raise ValueError(
            f"first_ms, last_ms: no work between {window[0]:g} and {window[1]:g} ms, "
            f"the trace spans 0 to {_end_ms(steps, zero_ns):g} ms"
        )
    _figure(_title(header, steps, lanes), lanes, zero_ns, window).savefig(
        path_png, format="png", dpi=150
    )


def _window_ms(
    steps: list[StepRecord], zero_ns: int, first_ms: float | None, last_ms: float | None
) -> tuple[float, float]:
    if first_ms is None and last_ms is None:
        return _default_window_ms(steps, zero_ns)
    first = 0.0 if first_ms is None else first_ms
    last = _end_ms(steps, zero_ns) if last_ms is None else last_ms
    if not first < last:
        raise ValueError(f"first_ms: got {first:g}, must be less than last_ms {last:g}")
    return first, last


def _default_window_ms(steps: list[StepRecord], zero_ns: int) -> tuple[float, float]:
    run = _longest_steady_run(steps) or steps
    middle = max(0, (len(run) - DEFAULT_STEPS) // 2)
    shown = run[middle : middle + DEFAULT_STEPS]
    first = (min(step.verify_start_ns for step in shown) - zero_ns) / NS_PER_MS
    last = _end_ms(shown, zero_ns)
    margin = 0.01 * (last - first) or 1.0
    return first - margin, last + margin


def _longest_steady_run(steps: list[StepRecord]) -> list[StepRecord]:
    longest: list[StepRecord] = []
    run: list[StepRecord] = []
    for before, step in steady_pairs(steps):
        run = [*run, step] if run and run[-1] is before else [step]
        longest = max(longest, run, key=len)
    return longest


def _end_ms(steps: list[StepRecord], zero_ns: int) -> float:
    return (max(step.verify_end_ns for step in steps) - zero_ns) / NS_PER_MS


def _visible(boxes: list[Box], zero_ns: int, window: tuple[float, float]) -> list[Box]:
    return [
        box
        for box in boxes
        if (box.start_ns - zero_ns) / NS_PER_MS < window[1]
        and (box.end_ns - zero_ns) / NS_PER_MS > window[0]
    ]


def _figure(
    title: str, lanes: dict[str, list[Box]], zero_ns: int, window: tuple[float, float]
) -> Figure:
    # Not pyplot: it keeps global state and may look for a display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 2.9), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    names = list(lanes)
    for row, boxes in enumerate(lanes.values()):
        for box in boxes:
            _draw_box(axes, box, len(names) - 1 - row, zero_ns, window)
    axes.set_xlim(*window)
    axes.set_ylim(-0.5, len(names) - 0.5)
    axes.set_yticks(range(len(names)), reversed(names), fontsize=12)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("time since the first work of the trace (ms)")
    axes.set_title(title, fontsize=12)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    _draw_legend(figure, {box.kind for boxes in lanes.values() for box in boxes})
    return figure


def _draw_box(axes: Axes, box: Box, row: int, zero_ns: int, window: tuple[float, float]) -> None:
    left = (box.start_ns - zero_ns) / NS_PER_MS
    width = (box.end_ns - box.start_ns) / NS_PER_MS
    seen_left, seen_right = max(left, window[0]), min(left + width, window[1])
    share = (seen_right - seen_left) / (window[1] - window[0])
    axes.barh(
        row,
        width,
        left=left,
        height=BOX_HEIGHT,
        color=COLOURS[box.kind],
        edgecolor="white",
        linewidth=0.8 if share >= MIN_EDGE_SHARE else 0,
    )
    if share >= MIN_LABEL_SHARE:
        axes.text(
            (seen_left + seen_right) / 2,
            row,
            str(box.steps[0].step),
            ha="center",
            va="center",
            color="white",
            fontsize=9,
            clip_on=True,
        )


def _draw_legend(figure: Figure, kinds: set[BoxKind]) -> None:
    from matplotlib.patches import Patch

    shown = [kind for kind in COLOURS if kind in kinds]
    figure.legend(
        handles=[Patch(color=COLOURS[kind], label=kind) for kind in shown],
        loc="outside right center",
        frameon=False,
        title="number: target step",
    )


def _title(header: TraceHeader, steps: list[StepRecord], lanes: dict[str, list[Box]]) -> str:
    title = f"mode {header.mode}, k = {header.num_speculative_tokens}"
    if header.emulated:
        title += " (emulated device)"
    shown = [step.step for boxes in lanes.values() for box in boxes for step in box.steps]
    return f"{title}; steps {min(shown)} to {max(shown)} of {len(steps)}"
