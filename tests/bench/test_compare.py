"""Two folders compared: what is paired, what counts as worse, and what is told."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bench_runs import EMULATE, PROVENANCE, fill, make_run
from minedraft.bench.compare import Verdict, compare, less_is_better, render_comparison
from minedraft.errors import ConfigError

NEWER = msgspec.structs.replace(
    PROVENANCE, versions={"minedraft": "1.1", "vllm": "0.32.0"}, git_commit="def456"
)


class Ends:
    """Intervals from the least to the greatest, so that expected values are plain."""

    name = "least to greatest"

    def of(self, values):
        return min(values), max(values)

    def of_difference(self, above, below):
        return min(above) - max(below), max(above) - min(below)


def _fill(path: Path, name: str, values: list[float], mode: str = "pearl", **options) -> Path:
    figures = [(make_run(mode, repeat=n), {name: value}) for n, value in enumerate(values)]
    fill(path, figures, **options)
    return path


@pytest.mark.parametrize(
    ("figure", "before", "after", "verdict"),
    [
        ("output_tokens_per_s", [100.0, 102.0], [90.0, 91.0], Verdict.WORSE),
        ("output_tokens_per_s", [100.0, 102.0], [110.0, 111.0], Verdict.BETTER),
        ("output_tokens_per_s", [100.0, 102.0], [101.0, 103.0], Verdict.UNCLEAR),
        ("ttft_ms", [100.0, 102.0], [90.0, 91.0], Verdict.BETTER),
        ("ttft_ms", [100.0, 102.0], [110.0, 111.0], Verdict.WORSE),
        ("output_tokens_per_s", [100.0], [96.0], Verdict.UNCLEAR),
        ("output_tokens_per_s", [100.0], [95.0], Verdict.WORSE),
        ("output_tokens_per_s", [100.0], [105.0, 106.0], Verdict.BETTER),
        ("output_tokens_per_s", [100.0], [0.0], Verdict.UNCLEAR),
    ],
)
def test_verdicts(
    tmp_path: Path, figure: str, before: list[float], after: list[float], verdict: Verdict
) -> None:
    a, b = _fill(tmp_path / "a", figure, before), _fill(tmp_path / "b", figure, after)
    comparison = compare(a, b, [figure], Ends())
    assert [each.verdict for each in comparison.changes] == [verdict]
    assert len(comparison.regressions) == (verdict is Verdict.WORSE)


def test_the_page(tmp_path: Path) -> None:
    runs = [make_run("none"), make_run("pearl", emulate=EMULATE), make_run("two-batch")]
    fill(
        tmp_path / "a", [(run, {"output_tokens_per_s": 100.0, "ttft_ms": 5.0}) for run in runs[:2]]
    )
    newer = [(run, {"output_tokens_per_s": 80.0}) for run in runs]
    fill(tmp_path / "b", newer, provenance=NEWER)
    comparison = compare(tmp_path / "a", tmp_path / "b", ["output_tokens_per_s", "ttft_ms"], Ends())
    text = render_comparison(comparison, "a", "b")
    dash = "–"  # noqa: RUF001
    assert text.splitlines() == [
        "# b against a",
        "",
        "| mode | emulate.target.fixed_ms | device "
        "| figure | before | after | after / before | n | verdict |",
        "| " + " | ".join(["---"] * 9) + " |",
        f"| none | {dash} | real | output_tokens_per_s | 100 | 80 | 0.800 | 1, 1 | **worse** |",
        "| pearl | 30 | emulated | output_tokens_per_s | 100 | 80 | 0.800 | 1, 1 | **worse** |",
        "",
        "Medians over repeats; 95 % intervals: least to greatest, of logarithms. Worse or better: "
        "the interval leaves out 1; without an interval, a change of 5% or more.",
        "- minedraft: 1.0 before, 1.1 after",
        "- commit: abc123 before, def456 after",
        "- 1 settings only after",
    ]


def test_repeats_need_not_be_the_same(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    fill(a, [(make_run(repeat=0), {"x": 2.0})])
    fill(b, [(make_run(repeat=7), {"x": 3.0})])
    [change] = compare(a, b, ["x"]).changes
    assert change.ratio is not None
    assert change.ratio.middle == pytest.approx(1.5)


def test_nothing_in_common_is_refused(tmp_path: Path) -> None:
    a = _fill(tmp_path / "a", "x", [1.0])
    b = _fill(tmp_path / "b", "x", [1.0], mode="none")
    with pytest.raises(ConfigError, match=r"figures = \['x'\] is not allowed"):
        compare(a, b, ["x"])
    with pytest.raises(ConfigError, match=r"figures = \['y'\] is not allowed"):
        compare(a, a, ["y"])
    with pytest.raises(ConfigError, match="a folder with results"):
        compare(a, tmp_path / "none", ["x"])


@pytest.mark.parametrize("name", ["ttft_ms", "ttft_ms_p99", "tpot_ms_mean", "generate_s", "wait_s"])
def test_times_are_better_small(name: str) -> None:
    assert less_is_better(name)


@pytest.mark.parametrize(
    "name",
    [
        "output_tokens_per_s",
        "output_tokens_per_s_per_device",
        "verification_success_rate",
        "steps",
        "goodput",
    ],
)
def test_all_else_is_better_great(name: str) -> None:
    assert not less_is_better(name)
