"""The map of winners: its cells, and its picture."""

from __future__ import annotations

from pathlib import Path

import pytest

from minedraft.config import MODES
from minedraft.errors import ConfigError
from minedraft.planner import (
    ProfileSource,
    Question,
    cells_of,
    draw_map,
    make_map,
    make_plan,
    ratio_of,
)
from minedraft.theory import winners
from plans import question
from profiles import make_profile

ASKED = question(max_k=3)


def test_own_ratio() -> None:
    draft_ms = 5 + 0.05 * 16 * 1.8
    assert ratio_of(ASKED) == pytest.approx(draft_ms / (30 + 0.1 * 32)), "without prompts"


@pytest.fixture(scope="module")
def asked() -> Question:
    return ASKED


def test_every_cell_has_the_winner_of_the_theory(asked: Question) -> None:
    found = make_map(asked)
    cells = cells_of(asked, found.ratios, found.in_flight)
    assert found.winners == winners(cells, MODES, 3)
    assert set(found.winners) == {(x, y) for x in found.ratios for y in found.in_flight}
    assert found.own_ratio in found.ratios
    assert asked.in_flight in found.in_flight


@pytest.mark.parametrize("in_flight", [1, 16, 64])
@pytest.mark.parametrize("factor", [0.2, 1.0, 3.0])
def test_cells_are_plans(factor: float, in_flight: int) -> None:
    ratio = ratio_of(ASKED) * factor
    (found,) = winners(cells_of(ASKED, (ratio,), (in_flight,)), MODES, 3).values()
    plan = make_plan(question(max_k=3, factor=factor, in_flight=in_flight))
    rates = sorted(((row.tokens_per_s, row.mode) for row in plan.rows), reverse=True)
    assert rates[0][0] / rates[1][0] == pytest.approx(found[1])
    assert max(plan.rows, key=lambda row: row.tokens_per_s).mode == found[0]


def test_a_drafter_without_time_has_no_map() -> None:
    with pytest.raises(ConfigError, match="t/V of the map"):
        make_map(question(draft=(0.0, 0.0)))


def test_cells_beyond_a_profile_are_blank(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    pytest.importorskip("matplotlib")
    asked = question(source=ProfileSource(make_profile()), in_flight=4, max_k=2)
    found = make_map(asked)
    # Measured to 8 requests in a pass, so up to 16 are answered, and twice as many in halves.
    assert {count for _, count in found.winners} == {1, 2, 4, 8, 16, 32}
    assert {found.winners[cell][0] for cell in found.winners if cell[1] == 32} == {"two-batch"}
    assert max(found.in_flight) == 128
    draw_map(found, tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def test_the_picture_depends_on_the_plan_alone(asked: Question, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    paths = [tmp_path / name for name in ("a.png", "b.png", "other.png")]
    found = make_map(asked)
    for path in paths[:2]:
        draw_map(found, path)
    draw_map(make_map(question(max_k=3, rate=0.3)), paths[2])
    first, second, other = (path.read_bytes() for path in paths)
    assert first == second != other
    assert first.startswith(b"\x89PNG")
