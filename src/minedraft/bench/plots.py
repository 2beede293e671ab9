"""Plots of a study: one figure over the first field that is a number, a line for each series.

Owns how they look; matplotlib is imported when one is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minedraft.bench import markdown
from minedraft.bench.estimates import Estimate, Method, estimate
from minedraft.bench.study import Setting, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = list[tuple[Any, Estimate]]


def have_matplotlib() -> bool:
    """Whether plots can be drawn here."""
    return find_spec("matplotlib") is not None


def draw_figure(study: Study, figure: str, method: Method, path: Path) -> bool:
    """Write a PNG of `figure`; False, and no file, if no result has it as a number.

    Raises:
        ImportError: matplotlib is missing.
        OSError: the file cannot be written.
    """
    x = x_axis(study)
    lines = lines_of(study, figure, x, method)
    if not lines:
        return False
    # Not pyplot: it keeps global state and may look for a display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(canvas)
    axes = canvas.add_subplot()
    if x is None:
        _draw_bars(axes, lines)
    else:
        _draw_lines(axes, lines)
        axes.set_xlabel(x)
    axes.set_ylabel(figure)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(_title(study), fontsize=11)
    # Without the library's version the file depends on what it shows alone.
    canvas.savefig(path, format="png", dpi=150, metadata={"Software": None})
    return True


def x_axis(study: Study) -> str | None:
    """The first label that takes two numbers or more; None if there is none."""
    for path in study.labels[:-1]:
        values = {each.spec.value(path) for each in study.settings if _is_number(each, path)}
        if len(values) > 1:
            return path
    return None


def lines_of(study: Study, figure: str, x: str | None, method: Method) -> dict[str, Points]:
    """The points of each line by its name, sorted by x.

    x is None for a setting that has none, as plain decoding has no draft length.
    """
    lines: dict[str, Points] = {}
    names = [path for path in study.labels[:-1] if path != x and _differs(study, path)]
    for setting in study.settings:
        found = estimate(list(setting.values(figure).values()), method)
        if found is None:
            continue
        own = [str(setting.spec.value(study.labels[-1]))]
        own += [
            f"{path} {markdown.plain(setting.spec.value(path))}"
            for path in names
            if not setting.spec.ignores(path)
        ]
        where = setting.spec.value(x) if x is not None and _is_number(setting, x) else None
        lines.setdefault(", ".join(own), []).append((where, found))
    for points in lines.values():
        points.sort(key=lambda point: (point[0] is not None, point[0] or 0))
    return lines


def _draw_bars(axes: Axes, lines: dict[str, Points]) -> None:
    middles = [points[0][1] for points in lines.values()]
    axes.bar(
        list(lines), [each.middle for each in middles], yerr=_reach(middles), capsize=4, width=0.6
    )
    axes.tick_params(axis="x", labelrotation=0 if len(lines) <= 6 else 45)


def _draw_lines(axes: Axes, lines: dict[str, Points]) -> None:
    for number, (name, points) in enumerate(lines.items()):
        colour = f"C{number % 10}"
        flat = [found for where, found in points if where is None]
        placed = [(where, found) for where, found in points if where is not None]
        for found in flat:
            axes.axhline(found.middle, color=colour, linestyle="--", label=name)
        if placed:
            middles = [found for _, found in placed]
            axes.errorbar(
                [where for where, _ in placed],
                [each.middle for each in middles],
                yerr=_reach(middles),
                color=colour,
                marker="o",
                capsize=3,
                label=name,
            )
    axes.set_xticks(sorted({x for points in lines.values() for x, _ in points if x is not None}))
    axes.legend(frameon=False, fontsize=9)


def _reach(found: Sequence[Estimate]) -> list[list[float]]:
    """How far intervals reach below and above; 0 where there is none."""
    # The interval is of the mean, so the median may lie outside.
    below = [max(0.0, each.middle - each.low) if each.low is not None else 0.0 for each in found]
    above = [max(0.0, each.high - each.middle) if each.high is not None else 0.0 for each in found]
    return [below, above]


def _title(study: Study) -> str:
    labels = sorted({each.device for each in study.settings})
    return study.name if labels == ["real"] else f"{study.name} ({' and '.join(labels)} device)"


def _differs(study: Study, path: str) -> bool:
    return len({str(each.spec.value(path)) for each in study.settings}) > 1


def _is_number(setting: Setting, path: str) -> bool:
    value = setting.spec.value(path)
    return isinstance(value, int | float) and not isinstance(value, bool)
