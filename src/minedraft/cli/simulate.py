"""The ``minedraft simulate`` command: what a pair, a load and a mode would bring.

Owns its options and its table; the simulation is `minedraft.simulator`'s.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from minedraft.cli.files import check_distinct, check_writable, writing
from minedraft.errors import ConfigError
from minedraft.simulator import Outcome, Scenario, header_of, read_scenarios, simulate
from minedraft.trace.writer import TraceWriter

if TYPE_CHECKING:
    from argparse import _SubParsersAction

_HEAD = (
    "mode",
    "k",
    "tokens/s",
    "per device",
    "x first",
    "TTFT ms",
    "TPOT ms",
    "accepted",
    "V ms",
    "target busy",
    "drafter busy",
    "preempted",
)


def add_parser(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the ``simulate`` command; its namespace carries ``run`` as the function to call."""
    parser = subparsers.add_parser(
        "simulate",
        help="simulate engines, drafters and a load from a file; no model is run",
        description="One line for each mode and number of draft tokens of the file. Every figure "
        "is simulated.",
    )
    parser.add_argument("scenario", type=Path, metavar="FILE.toml")
    parser.add_argument("--seed", type=int, metavar="S", help="instead of the file's")
    parser.add_argument("--output", type=Path, metavar="F.json", help="all figures of all lines")
    parser.add_argument(
        "--trace", type=Path, metavar="T.jsonl", help="steps of the first engine, as a real run's"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Carry out the command; 0.

    Raises:
        ConfigError: a field of the file is not allowed, or a file cannot be written.
    """
    check_distinct({"FILE": args.scenario, "--output": args.output, "--trace": args.trace})
    for path in filter(None, (args.output, args.trace)):
        check_writable(path)
    scenarios = read_scenarios(args.scenario, seed=args.seed)
    if args.trace is not None and len(scenarios) > 1:
        raise ConfigError(
            f"minedraft: --trace takes one run, and {str(args.scenario)!r} has {len(scenarios)}; "
            "give one mode and one num_speculative_tokens"
        )
    lines = []
    for number, scenario in enumerate(scenarios, start=1):
        _say(f"simulating {number} of {len(scenarios)}: {scenario.mode}")
        lines.append((scenario, _simulate(scenario, args.trace)))
    print(f"{scenarios[0].name} (simulated)")
    _print_table([_HEAD, *(_row(*line, lines[0][1]) for line in lines)])
    if args.output is not None:
        _write(args.output, [_as_mapping(*line) for line in lines])
    return 0


def _simulate(scenario: Scenario, trace: Path | None) -> Outcome:
    if trace is None:
        return simulate(scenario)
    with TraceWriter(trace, header_of(scenario)) as sink:
        return simulate(scenario, sink=sink)


def _row(scenario: Scenario, outcome: Outcome, first: Outcome) -> tuple[str, ...]:
    figures = outcome.figures
    success = outcome.success_rate
    devices = scenario.num_engines + scenario.num_drafters
    return (
        scenario.mode,
        str(scenario.num_speculative_tokens) if scenario.num_drafters else "-",
        f"{outcome.tokens_per_s:.1f}",
        f"{outcome.tokens_per_s / devices:.1f}",
        f"{outcome.tokens_per_s / first.tokens_per_s:.3f}",
        "-" if figures.ttft_ms is None else f"{figures.ttft_ms.median:.1f}",
        "-" if figures.tpot_ms is None else f"{figures.tpot_ms.median:.2f}",
        "-" if success is None else f"{success:.3f}",
        f"{outcome.mean_step_ms:.2f}",
        f"{outcome.target_busy_share:.0%}",
        f"{outcome.drafter_busy_share:.0%}" if scenario.num_drafters else "-",
        str(outcome.num_preemptions),
    )


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join([row[0].ljust(len(first)), *others]))


def _as_mapping(scenario: Scenario, outcome: Outcome) -> dict[str, Any]:
    return {
        "name": scenario.name,
        "mode": scenario.mode,
        "num_speculative_tokens": scenario.num_speculative_tokens,
        "seed": scenario.seed,
        "simulated": True,
        "success_rate": outcome.success_rate,
        **{name: each for name, each in asdict(outcome).items() if name != "figures"},
        "figures": msgspec.to_builtins(outcome.figures),
    }


def _write(path: Path, value: object) -> None:
    with writing(path):
        path.write_bytes(msgspec.json.format(msgspec.json.encode(value)) + b"\n")


def _say(text: str) -> None:
    if sys.stderr.isatty():
        print(text, file=sys.stderr)
