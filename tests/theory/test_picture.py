"""The picture of Theorem 1 shows the ratio, and can be made."""

from __future__ import annotations

from pathlib import Path

import pytest

from minedraft.theory import CEILING, PUBLISHED_RATIO
from minedraft.theory.picture import draw_theorem, ratio_curve


def test_the_curve_rises_to_the_ceiling_and_leaves_the_published_ratio_on_both_sides() -> None:
    curve = ratio_curve()
    ratios = [ratio for _, ratio in curve]
    top = ratios.index(max(ratios))
    assert ratios[: top + 1] == sorted(ratios[: top + 1])
    assert ratios[top:] == sorted(ratios[top:], reverse=True)
    assert ratios[top] == pytest.approx(CEILING, abs=1e-3)
    assert ratios[0] < PUBLISHED_RATIO and ratios[-1] < PUBLISHED_RATIO


def test_it_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "theorem.png"
    draw_theorem(path)
    assert path.read_bytes().startswith(b"\x89PNG")
