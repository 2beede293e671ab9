"""The report: medians, intervals, ratios paired by repeat, both conventions, and its plots."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bench_runs import EMULATE, PROVENANCE, fill, make_run
from minedraft.bench.estimates import (
    Bootstrap,
    Estimate,
    StudentT,
    choose_method,
    estimate,
    estimate_paired_ratio,
    estimate_ratio,
)
from minedraft.bench.experiment import ReportPlan
from minedraft.bench.plots import draw_figure, lines_of, x_axis
from minedraft.bench.report import render, write_report
from minedraft.bench.study import load_study
from minedraft.errors import ConfigError

PLAN = ReportPlan(rows=("max_num_seqs",), figures=("output_tokens_per_s",), baseline="sequential")
COMMAND = ["minedraft", "bench", "report", "my results"]


class Ends:
    """Intervals from the least to the greatest, so that expected values are plain."""

    name = "least to greatest"

    def of(self, values):
        return min(values), max(values)

    def of_difference(self, above, below):
        return min(above) - max(below), max(above) - min(below)


def _speeds(mode: str, speeds: list[float], devices: int = 2, **fields):
    return [
        (
            make_run(mode, repeat=repeat, **fields),
            {"output_tokens_per_s": speed, "output_tokens_per_s_per_device": speed / devices},
        )
        for repeat, speed in enumerate(speeds)
    ]


def _render(path: Path, method=None, plots=None) -> str:
    return render(load_study(path), method or Ends(), plots or {}, COMMAND)


def _section(text: str, title: str) -> list[str]:
    return text.split(f"## {title}\n\n")[1].split("\n\n## ")[0].splitlines()


def test_a_table_has_medians_intervals_and_paired_ratios(tmp_path: Path) -> None:
    # Paired by repeat, each ratio is 1.5; the medians' ratio would be the same only by chance.
    figures = [
        *_speeds("sequential", [100.0, 200.0, 50.0]),
        *_speeds("two-batch", [150.0, 300.0, 75.0]),
    ]
    fill(tmp_path, figures, report=PLAN)
    text = _render(tmp_path)
    assert _section(text, "output_tokens_per_s") == [
        "| max_num_seqs | mode | device | median | 95 % | n | ratio to sequential |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| 8 | sequential | real | 100 | 50 to 200 | 3 | – |",  # noqa: RUF001
        "| 8 | two-batch | real | 150 | 75 to 300 | 3 | 1.500 (1.500 to 1.500) |",
        "",
        "Measured by:",
        "",
        "```bash",
        "minedraft bench run e.toml",
        "```",
    ]
    assert text.startswith("# e\n\nWhat it is.\n\n6 of 6 runs have a result.\n\nMedians of 3 ")
    assert "95 % intervals (least to greatest); ratios are paired by repeat" in text
    assert "Emulated" not in text


def test_a_pair_needs_both_repeats(tmp_path: Path) -> None:
    figures = [*_speeds("sequential", [100.0]), *_speeds("two-batch", [150.0, 999.0])]
    fill(tmp_path, figures, report=PLAN)
    row = _section(_render(tmp_path), "output_tokens_per_s")[3]
    assert row == "| 8 | two-batch | real | 574.5 | 150 to 999 | 2 | 1.500 |"


def test_both_conventions_side_by_side(tmp_path: Path) -> None:
    load = {"load": {"kind": "closed-loop", "in_flight": 16}}
    figures = [
        *_speeds(
            "sequential", [100.0], max_num_seqs=8, load={"kind": "closed-loop", "in_flight": 8}
        ),
        *_speeds("sequential", [160.0], max_num_seqs=16, **load),
        *_speeds("two-batch", [180.0], devices=3, max_num_seqs=16, **load),
        *_speeds(
            "pearl",
            [120.0],
            devices=3,
            max_num_seqs=8,
            load={"kind": "closed-loop", "in_flight": 8},
        ),
    ]
    fill(tmp_path, figures, report=PLAN)
    lines = _section(_render(tmp_path), "Both conventions")
    assert lines[2] == "Ratios to sequential."
    # two-batch: 8 in each batch, so 180/100; with 16 in flight (180/3)/(160/2).
    assert lines[4:8] == [
        "| max_num_seqs | load.in_flight | mode | device "
        "| paper's: output_tokens_per_s, same requests per batch, one more device "
        "| fair: output_tokens_per_s_per_device, same requests in flight |",
        "| --- | --- | --- | --- | --- | --- |",
        "| 16 | 16 | two-batch | real | 1.800 | 0.750 |",
        "| 8 | 8 | pearl | real | 1.200 | 0.800 |",
    ]


def test_modes_side_by_side(tmp_path: Path) -> None:
    """One without results stays empty; plain decoding belongs to every draft length."""
    figures = [
        *_speeds("none", [90.0, 110.0]),
        *_speeds("sequential", [80.0, 100.0]),
        *_speeds("wait-free", [130.0, 150.0]),
        *_speeds("sequential", [105.0], num_speculative_tokens=2),
        *_speeds("none", [70.0], max_num_seqs=16),
    ]
    rows = ("num_speculative_tokens",)
    fill(tmp_path, figures, report=ReportPlan(rows=rows, figures=("output_tokens_per_s",)))
    lines = _section(_render(tmp_path), "Modes side by side")
    assert lines[0].startswith("Medians of output_tokens_per_s at equal requests in flight")
    assert lines[2:] == [
        "| num_speculative_tokens | max_num_seqs | none | sequential | wait-free |",
        "| --- | --- | --- | --- | --- |",
        "| 4 | 8 | 100 | 90* | **140** |",
        "| 2 | 8 | 100 | **105** | – |",  # noqa: RUF001
        "| – | 16 | **70** | – | – |",  # noqa: RUF001
    ]


def test_modes_that_share_no_setting_have_rows_of_their_own(tmp_path: Path) -> None:
    figures = [
        *_speeds("vllm-sd", [130.0], target_cores="0,1"),
        *_speeds("none", [90.0], target_cores="0,1"),
        *_speeds("none", [50.0], target_cores="0"),
        *_speeds("sequential", [60.0], target_cores="0"),
        *_speeds("vllm-sd", [70.0], target_cores="0"),
    ]
    rows = ("target_cores",)
    fill(tmp_path, figures, report=ReportPlan(rows=rows, figures=("output_tokens_per_s",)))
    assert _section(_render(tmp_path), "Modes side by side")[2:] == [
        "| target_cores | vllm-sd | none | sequential |",
        "| --- | --- | --- | --- |",
        "| 0 | **70** | 50 | 60 |",
        "| 0,1 | **130** | 90 | – |",  # noqa: RUF001
    ]


def test_two_modes_need_no_table_of_modes(tmp_path: Path) -> None:
    figures = [*_speeds("none", [90.0]), *_speeds("wait-free", [130.0])]
    fill(tmp_path, figures, report=PLAN)
    assert "Modes side by side" not in _render(tmp_path)


def test_one_repeat_is_said_and_emulated_results_are_labelled(tmp_path: Path) -> None:
    figures = [*_speeds("none", [90.0], emulate=EMULATE), *_speeds("pearl", [80.0])]
    fill(tmp_path, figures, report=ReportPlan(figures=("output_tokens_per_s", "nothing")))
    text = _render(tmp_path)
    assert "Each setting was run once: there are no intervals." in text
    assert "**Emulated**: times of device passes are modelled" in text
    assert "virtual" not in text
    # Settings that differ only in what the plan does not name are told apart all the same.
    assert _section(text, "output_tokens_per_s")[2:4] == [
        "| 30 | none | emulated | 90 | – | 1 |",  # noqa: RUF001
        "| – | pearl | real | 80 | – | 1 |",  # noqa: RUF001
    ]
    assert _section(text, "nothing") == ["No result has this figure."]
    assert "Both conventions" not in text


def test_a_virtual_clock_is_said(tmp_path: Path) -> None:
    emulate = {**EMULATE, "clock": "virtual"}
    fill(tmp_path, _speeds("pearl", [80.0], emulate=emulate), report=PLAN)
    text = _render(tmp_path)
    assert "**Emulated by a virtual clock**" in text
    assert "all else is real" not in text
    assert "| emulated, virtual clock |" in text


def test_missing_failed_and_strange_runs_are_told(tmp_path: Path) -> None:
    kept, failed, gone = make_run(), make_run("pearl"), make_run("none")
    folder = fill(tmp_path, [(kept, {"output_tokens_per_s": 1.0}), (gone, {})])
    folder.write_failure(failed, PROVENANCE, "minedraft: it broke\nlog")
    plan = folder.plan()
    runs = [kept.to_mapping(), failed.to_mapping()]
    (tmp_path / "experiment.json").write_bytes(
        msgspec.json.encode(msgspec.structs.replace(plan, runs=runs))
    )
    text = _render(tmp_path)
    assert "1 of 2 runs have a result." in text
    assert "1 results in the folder are not in the plan: not shown." in text
    assert "Failed: pearl, k = 4, 8 in flight, repeat 1: minedraft: it broke" in text


def test_an_empty_folder_has_a_report(tmp_path: Path) -> None:
    fill(tmp_path, [], missing=[make_run()], report=PLAN)
    text = _render(tmp_path)
    assert "0 of 1 runs have a result." in text
    assert _section(text, "output_tokens_per_s") == ["No result has this figure."]


def test_figures_that_are_text(tmp_path: Path) -> None:
    figures = [(make_run(repeat=0), {"kind": "a|b"}), (make_run(repeat=1), {"kind": "c"})]
    fill(tmp_path, figures, report=ReportPlan(figures=("kind",)))
    row = _section(_render(tmp_path), "kind")[2]
    assert row == r"| two-batch | real | a\|b, c | – | 2 |"  # noqa: RUF001


def test_equal_outputs_are_counted(tmp_path: Path) -> None:
    figures = [*_speeds("sequential", [1.0, 1.0]), *_speeds("pearl", [1.0, 1.0])]
    fill(tmp_path, figures, report=PLAN)
    assert _section(_render(tmp_path), "Outputs")[2] == "| 8 | pearl | 2 of 2 |"


def test_provenance_and_commands(tmp_path: Path) -> None:
    fill(tmp_path, [(make_run(), {"output_tokens_per_s": 1.0})])
    assert _section(_render(tmp_path), "Where the results come from") == [
        "- versions: minedraft 1.0; vllm 0.32.0",
        "- commit: abc123",
        "- platform: Linux",
        "- python: 3.11.0",
        "- CPU: 2 cores, a CPU",
        "- devices: no GPU",
        "- started: 2026-01-02T03:04:05+00:00 to 2026-01-02T03:04:05+00:00 (UTC)",
        "- measured for 10 s in all",
        "",
        "This report was made by:",
        "",
        "```bash",
        "minedraft bench report 'my results'",
        "```",
    ]


def test_files_are_written_and_the_same_every_time(tmp_path: Path) -> None:
    figures = [
        each
        for n in (4, 8)
        for mode in ("sequential", "two-batch")
        for each in _speeds(mode, [10.0 * n, 11.0 * n, 12.0 * n], max_num_seqs=n)
    ]
    fill(tmp_path / "r", figures, report=PLAN)
    out = tmp_path / "out" / "page.md"
    report = write_report(tmp_path / "r", out, COMMAND)
    assert report.plots == {
        "output_tokens_per_s": tmp_path / "out" / "page-output_tokens_per_s.png"
    }
    first = {path.name: path.read_bytes() for path in out.parent.iterdir()}
    assert set(first) == {"page.md", "page-output_tokens_per_s.png"}
    assert b"![output_tokens_per_s](page-output_tokens_per_s.png)" in first["page.md"]
    write_report(tmp_path / "r", out, COMMAND)
    assert {path.name: path.read_bytes() for path in out.parent.iterdir()} == first


def test_without_matplotlib_there_are_no_plots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minedraft.bench.report.have_matplotlib", lambda: False)
    fill(tmp_path, [(make_run(), {"output_tokens_per_s": 1.0})])
    assert write_report(tmp_path, tmp_path / "report.md", COMMAND).plots == {}
    assert "minedraft[plot]" in (tmp_path / "report.md").read_text()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    fill(tmp_path, [(make_run(), {"output_tokens_per_s": 1.0})])
    with pytest.raises(ConfigError, match="cannot write"):
        write_report(tmp_path, tmp_path / "experiment.json" / "x.md", COMMAND)


def test_lines_of_a_plot(tmp_path: Path) -> None:
    figures = [
        *_speeds("none", [5.0]),
        *_speeds("pearl", [8.0], num_speculative_tokens=3),
        *_speeds("pearl", [7.0], num_speculative_tokens=2),
    ]
    fill(tmp_path, figures, report=ReportPlan(rows=("num_speculative_tokens",)))
    study = load_study(tmp_path)
    assert x_axis(study) == "num_speculative_tokens"
    lines = lines_of(study, "output_tokens_per_s", x_axis(study), Ends())
    assert {name: [(x, found.middle) for x, found in points] for name, points in lines.items()} == {
        "none": [(None, 5.0)],
        "pearl": [(2, 7.0), (3, 8.0)],
    }
    assert draw_figure(study, "output_tokens_per_s", Ends(), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert not draw_figure(study, "nothing", Ends(), tmp_path / "b.png")
    assert not (tmp_path / "b.png").exists()


def test_bars_where_nothing_is_a_number(tmp_path: Path) -> None:
    fill(tmp_path, [*_speeds("none", [5.0, 6.0]), *_speeds("pearl", [8.0, 7.0])])
    study = load_study(tmp_path)
    assert x_axis(study) is None
    assert draw_figure(study, "output_tokens_per_s", Ends(), tmp_path / "a.png")


def test_estimates() -> None:
    assert estimate([], Ends()) is None
    assert estimate([3.0], Ends()) == Estimate(middle=3.0, low=None, high=None, count=1)
    assert estimate([3.0, 1.0, 2.0], Ends()) == Estimate(middle=2.0, low=1.0, high=3.0, count=3)
    assert estimate_paired_ratio([(1.0, 0.0)], Ends()) is None
    found = estimate_paired_ratio([(2.0, 1.0), (8.0, 1.0)], Ends())
    assert found is not None
    assert (found.middle, found.low, found.high) == pytest.approx((4.0, 2.0, 8.0))
    assert estimate_ratio([1.0], [], Ends()) is None
    found = estimate_ratio([2.0, 4.0, 8.0], [1.0, 2.0], Ends())
    assert found is not None
    assert (found.middle, found.low, found.high, found.count) == pytest.approx(
        (4 / 2**0.5, 1.0, 8.0, 2)
    )


def test_students_t_as_in_the_textbook() -> None:
    # t(0.975, 2) = 4.302653, of 1, 2, 3: mean 2, standard error 1/sqrt(3).
    reach = 4.302653 / 3**0.5
    assert StudentT().of([1.0, 2.0, 3.0]) == pytest.approx((2 - reach, 2 + reach), rel=1e-6)
    # Equal sizes and variances: Welch's has 4 degrees of freedom, t(0.975, 4) = 2.776445.
    reach = 2.776445 * (2 / 3) ** 0.5
    found = StudentT().of_difference([4.0, 5.0, 6.0], [1.0, 2.0, 3.0])
    assert found == pytest.approx((3 - reach, 3 + reach), rel=1e-6)
    assert StudentT().of([2.0, 2.0]) == (2.0, 2.0)
    assert StudentT().of_difference([2.0, 2.0], [1.0, 1.0]) == (1.0, 1.0)


def test_the_bootstrap_repeats_itself() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    low, high = Bootstrap().of(values)
    assert (low, high) == Bootstrap().of(values)
    assert 1.0 < low < 5.0 < high < 9.0
    assert Bootstrap().of_difference([5.0, 5.0], [2.0, 2.0]) == (3.0, 3.0)


def test_the_method_follows_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(choose_method(), StudentT)
    monkeypatch.setattr("minedraft.bench.estimates.find_spec", lambda name: None)
    assert isinstance(choose_method(), Bootstrap)
