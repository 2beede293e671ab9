"""The ``minedraft bench`` commands: run an experiment, report on it, compare two, predict one.

Owns flags and printed output; the work is minedraft.bench's.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from minedraft.bench import markdown
from minedraft.bench.compare import compare, render_comparison
from minedraft.bench.experiment import Experiment, ReportPlan
from minedraft.bench.provenance import gather
from minedraft.bench.report import write_report
from minedraft.bench.results import PLAN, ResultsFolder
from minedraft.bench.run import SystemClock, check_models, run_experiment
from minedraft.bench.spec import MODES
from minedraft.bench.study import load_study
from minedraft.bench.worker_process import WorkerProcess
from minedraft.cli.options import require_vllm
from minedraft.errors import ConfigError
from minedraft.profiles import read_profile
from minedraft.simulator import EmulatedModels, Group, Prediction, ProfiledModels, predict
from minedraft.validation import check_number

if TYPE_CHECKING:
    from argparse import _SubParsersAction

EXIT_FAILED_RUNS = 1
EXIT_WORSE = 1
_RESULTS = Path("results") / "bench"
_LIMIT_S = 3600.0


def add_parser(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its four subcommands."""
    parser = subparsers.add_parser(
        "bench", help="run an experiment, report on its results, compare two, predict one"
    )
    commands = parser.add_subparsers(dest="bench_command", required=True, metavar="COMMAND")
    _add_run(commands)
    _add_report(commands)
    _add_compare(commands)
    _add_predict(commands)


def _add_run(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "run",
        help="do the runs of an experiment that have no result yet",
        description="Can be stopped and started again: finished runs are kept. Returns 1 if a "
        "run failed; those are tried again next time.",
    )
    parser.add_argument("experiment", type=Path, metavar="FILE.toml")
    parser.add_argument(
        "--results", type=Path, metavar="DIR", help=f"default: {_RESULTS}/NAME of the experiment"
    )
    parser.add_argument("--quick", action="store_true", help="with the table [quick] of the file")
    parser.add_argument("--only", choices=MODES, metavar="MODE", help="runs of one mode only")
    parser.add_argument(
        "--limit-s",
        type=float,
        default=_LIMIT_S,
        metavar="SECONDS",
        help="for one run; default: %(default)g",
    )
    parser.set_defaults(run=run)


def _add_report(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("report", help="write the Markdown report of a results folder")
    parser.add_argument("results", type=Path, metavar="DIR")
    parser.add_argument("--out", type=Path, metavar="FILE.md", help="default: DIR/report.md")
    parser.set_defaults(run=report)


def _add_compare(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "compare",
        help="compare the settings that two results folders share",
        description="Returns 1 if a figure got worse.",
    )
    parser.add_argument("before", type=Path, metavar="A")
    parser.add_argument("after", type=Path, metavar="B")
    parser.add_argument(
        "--figure",
        action="append",
        metavar="NAME",
        help="may be given more than once; default: those of A's report",
    )
    parser.set_defaults(run=run_compare)


def _add_predict(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "predict",
        help="simulate the runs of a results folder, and say how far off that is",
        description="One constant, the overhead of a step, is fitted on plain decoding; the other "
        "modes are predicted, with the acceptance of the runs. Returns 1 if a prediction is off by "
        "more than --within, or two settings that differ by more than 1 % come in the wrong order.",
    )
    parser.add_argument("results", type=Path, metavar="DIR")
    parser.add_argument(
        "--profile", metavar="P.json", help="of the pair, for runs with real models"
    )
    parser.add_argument(
        "--within", type=float, default=0.05, metavar="SHARE", help="default: %(default)g"
    )
    parser.set_defaults(run=run_predict)


def run(args: argparse.Namespace) -> int:
    """Do what is missing; 0, or 1 if a run failed."""
    check_number("--limit-s", args.limit_s, 0.0, low_open=True)
    experiment = Experiment.from_toml(args.experiment, quick=args.quick)
    runs = [spec for spec in experiment.runs if args.only in (None, spec.mode)]
    if not runs:
        modes = ", ".join(dict.fromkeys(spec.mode for spec in experiment.runs))
        raise ConfigError.bad_value("--only", args.only, f"a mode of the experiment: {modes}")
    folder = ResultsFolder(path=args.results or _RESULTS / experiment.name)
    todo = folder.missing(runs)
    check_models(todo)
    if todo:
        require_vllm()
    folder.adopt(experiment)
    tally = run_experiment(
        runs,
        folder,
        WorkerProcess(limit_s=args.limit_s),
        gather(_run_command(args)),
        clock=SystemClock(),
        say=_say,
    )
    _say(f"{tally.done} done, {tally.failed} failed, {tally.kept} kept; results in {folder.path}")
    return EXIT_FAILED_RUNS if tally.failed else 0


def report(args: argparse.Namespace) -> int:
    """Write the report and its plots, and print their names."""
    out = args.out or args.results / "report.md"
    command = ["minedraft", "bench", "report", str(args.results)]
    command += [] if args.out is None else ["--out", str(args.out)]
    written = write_report(args.results, out, command)
    print(written.text, *written.plots.values(), sep="\n")
    return 0


def run_compare(args: argparse.Namespace) -> int:
    """Print the comparison; 0, or 1 if a figure got worse."""
    comparison = compare(args.before, args.after, args.figure or _figures(args.before))
    print(render_comparison(comparison, str(args.before), str(args.after)), end="")
    return EXIT_WORSE if comparison.regressions else 0


def run_predict(args: argparse.Namespace) -> int:
    """Print measured and predicted throughput; 0, or 1 if a prediction is too far off."""
    check_number("--within", args.within, 0.0, low_open=True)
    models = (
        EmulatedModels() if args.profile is None else ProfiledModels(read_profile(args.profile))
    )
    study = load_study(args.results)
    groups = predict(study.settings, models)
    if not groups:
        raise ConfigError.bad_value("results", str(args.results), "a folder with results")
    print(render_predictions(groups, study.labels, args.within))
    is_off = any(abs(each.ratio - 1) > args.within for each in _told(groups))
    is_sorted = all(group.is_order_right() for group in groups)
    return 0 if is_sorted and not is_off else EXIT_WORSE


def _told(groups: Sequence[Group]) -> list[Prediction]:
    """Predictions of what nothing was fitted to; and fits that did not succeed."""
    every = [each for group in groups for each in group.predictions]
    return [each for each in every if not each.is_fitted or each.is_fit_at_its_bound]


def render_predictions(groups: Sequence[Group], labels: Sequence[str], within: float) -> str:
    """A Markdown table, and the verdict."""
    head = [*labels, "overhead ms", "measured", "predicted", "predicted / measured"]
    rows = [
        [
            *(markdown.plain(each.setting.spec.value(label)) for label in labels),
            f"{each.overhead_ms:.2f}",
            f"{each.measured:.1f}",
            f"{each.predicted:.1f}",
            f"{each.ratio:.3f}{_fit_words(each)}",
        ]
        for group in groups
        for each in group.predictions
    ]
    told = _told(groups)
    good = sum(abs(each.ratio - 1) <= within for each in told)
    ordered = sum(group.is_order_right() for group in groups)
    return "\n".join(
        [
            *markdown.table(head, rows),
            "",
            f"Output tokens per second. {good} of {len(told)} predictions are within {within:.0%}; "
            f"the order of the settings is right in {ordered} of {len(groups)} groups.",
        ]
    )


def _fit_words(prediction: Prediction) -> str:
    if not prediction.is_fitted:
        return ""
    return " (no fit)" if prediction.is_fit_at_its_bound else " (fitted)"


def _figures(folder: Path) -> tuple[str, ...]:
    if not (folder / PLAN).exists():
        return ReportPlan().figures
    return ReportPlan.from_mapping(ResultsFolder(path=folder).plan().report).figures


def _run_command(args: argparse.Namespace) -> list[str]:
    command = ["minedraft", "bench", "run", str(args.experiment)]
    command += [] if args.results is None else ["--results", str(args.results)]
    command += ["--quick"] if args.quick else []
    command += [] if args.only is None else ["--only", args.only]
    return command + ([] if args.limit_s == _LIMIT_S else ["--limit-s", f"{args.limit_s:g}"])


def _say(line: str) -> None:
    print(line, flush=True)
