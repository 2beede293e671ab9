"""The timeline draws a PNG, picks its window well and needs matplotlib only then."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from minedraft.trace import StepRecord, TraceHeader, draw_timeline
from minedraft.trace.timeline import _default_window_ms

StepFactory = Callable[..., StepRecord]
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def png(tmp_path: Path) -> Path:
    return tmp_path / "lanes.png"


@pytest.mark.parametrize("window", [(None, None), (0, 95.5), (None, 20), (400, None)])
def test_draws_a_png(
    png: Path,
    header: TraceHeader,
    steps: list[StepRecord],
    window: tuple[float | None, float | None],
) -> None:
    pytest.importorskip("matplotlib")
    draw_timeline(header, steps, png, *window)
    assert png.read_bytes().startswith(PNG_SIGNATURE)


def test_draws_a_single_step_of_no_length(
    png: Path, header: TraceHeader, make_step: StepFactory
) -> None:
    pytest.importorskip("matplotlib")
    draw_timeline(header, [make_step(0, (5, 5))], png)
    assert png.read_bytes().startswith(PNG_SIGNATURE)


def test_no_steps(png: Path, header: TraceHeader) -> None:
    with pytest.raises(ValueError, match="steps: the trace has none"):
        draw_timeline(header, [], png)


def test_window_without_work(png: Path, header: TraceHeader, steps: list[StepRecord]) -> None:
    with pytest.raises(ValueError, match="between 500 and 600 ms, the trace spans 0 to 410 ms"):
        draw_timeline(header, steps, png, 500, 600)


def test_reversed_window(png: Path, header: TraceHeader, steps: list[StepRecord]) -> None:
    with pytest.raises(ValueError, match="first_ms: got 20, must be less than last_ms 10"):
        draw_timeline(header, steps, png, 20, 10)


def test_default_window_is_twelve_steps_in_the_middle(steps: list[StepRecord]) -> None:
    first_ms, last_ms = _default_window_ms(steps, 0)
    # Steady steps 5..37 remain, of which 15..26 are shown, with 1 % around them.
    assert 148 < first_ms < 151
    assert 270 < last_ms < 273


def test_default_window_keeps_to_one_steady_run(make_step: StepFactory) -> None:
    # A pause of 1 s with prompts lies in the middle; the longer run comes after it.
    before = [make_step(i, (i, i + 1)) for i in range(6)]
    pause = make_step(6, (500, 501), mode="prefill", batch=None, num_prefill_tokens=9)
    after = [make_step(i, (1000 + i, 1001 + i)) for i in range(7, 17)]
    first_ms, last_ms = _default_window_ms([*before, pause, *after], 0)
    assert 1007 < first_ms < last_ms < 1018


def test_import_needs_no_matplotlib() -> None:
    code = "import sys, minedraft.trace, minedraft.cli.trace; print('matplotlib' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "False\n"
