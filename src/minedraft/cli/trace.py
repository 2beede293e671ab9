"""The ``minedraft trace`` command: summarise, draw or export a trace file.

Owns its options and printed output; it computes nothing itself.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from minedraft.trace import (
    StepRecord,
    Summary,
    TraceHeader,
    draw_timeline,
    read_trace,
    summarize,
    write_perfetto,
)

if TYPE_CHECKING:
    from argparse import _SubParsersAction

EXIT_ERROR = 2


def add_parser(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the ``trace`` command; its namespace carries ``run`` as the function to call."""
    parser = subparsers.add_parser(
        "trace",
        help="summarise, draw or export a step trace",
        description="Without an output option, print a summary of the trace.",
    )
    parser.add_argument("trace", type=Path, metavar="TRACE.jsonl", help="trace file to read")
    parser.add_argument("--png", type=Path, metavar="F", help="draw a timeline of the middle")
    parser.add_argument(
        "--perfetto", type=Path, metavar="F", help="write trace events for ui.perfetto.dev"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Carry out the command and return its exit code: 0, or 2 after an error message."""
    try:
        _check_distinct(args)
        with _naming(args.trace):
            header, steps = read_trace(args.trace)
        _write_files(args, header, steps)
    except ImportError as error:
        return _fail(f"--png needs matplotlib ({error}); install minedraft[plot]")
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror or error}")
    except ValueError as error:
        return _fail(str(error))
    if args.json:
        text = msgspec.json.format(msgspec.json.encode(summarize(header, steps)))
        print(text.decode())
    elif args.png is None and args.perfetto is None:
        print(format_summary(summarize(header, steps)))
    return 0


def format_summary(summary: Summary) -> str:
    """Return the summary as lines of a name, a value and its unit, in columns."""
    rows = list(_rows(summary))
    names = max(len(name) for name, _, _ in rows)
    values = max(len(value) for _, value, _ in rows)
    lines = [f"{name:<{names}}  {value:>{values}}  {unit}" for name, value, unit in rows]
    return "\n".join(line.rstrip() for line in lines)


def _check_distinct(args: argparse.Namespace) -> None:
    """Refuse to overwrite the trace, or one output with the other."""
    given = [each for each in (args.trace, args.png, args.perfetto) if each is not None]
    if len({each.resolve() for each in given}) < len(given):
        raise ValueError("the trace, --png and --perfetto must be different files")


def _write_files(args: argparse.Namespace, header: TraceHeader, steps: list[StepRecord]) -> None:
    if args.png is not None:
        try:
            with _naming(args.png):
                draw_timeline(header, steps, args.png)
        except ValueError as error:
            raise ValueError(f"{args.trace}: {error}") from error
    if args.perfetto is not None:
        with _naming(args.perfetto):
            write_perfetto(header, steps, args.perfetto)


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Add ``path`` to errors that lack it: only opening a file names it, not writing."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def _fail(message: str) -> int:
    print(f"minedraft trace: {message}", file=sys.stderr)
    return EXIT_ERROR


def _rows(summary: Summary) -> Iterator[tuple[str, str, str]]:
    yield "mode", summary.mode, "(emulated device)" if summary.emulated else ""
    yield "speculative tokens k", str(summary.num_speculative_tokens), ""
    yield "steps", str(summary.num_steps), ""
    for mode, count in summary.steps_by_mode.items():
        yield f"  {mode}", str(count), ""
    yield from _token_rows(summary)
    yield from _time_rows(summary)


def _token_rows(summary: Summary) -> Iterator[tuple[str, str, str]]:
    yield "output tokens", str(summary.num_output_tokens), ""
    yield "  per step", _number(summary.tokens_per_step), ""
    yield "  per request and decode step", _number(summary.tokens_per_request_step), ""
    yield "drafts verified", str(summary.num_drafts), ""
    yield "draft tokens proposed", str(summary.num_proposed_tokens), ""
    yield "draft tokens accepted", str(summary.num_accepted_tokens), ""
    yield "acceptance rate", _number(summary.acceptance_rate), ""
    for position, rate in enumerate(summary.acceptance_per_position, start=1):
        yield f"  at position {position}", _number(rate), ""


def _time_rows(summary: Summary) -> Iterator[tuple[str, str, str]]:
    yield "draft time t", _number(summary.draft_ms), "ms"
    yield "verify time V", _number(summary.verify_ms), "ms"
    yield "  two-batch steps", _number(summary.two_batch_verify_ms), "ms"
    yield "steady steps", str(summary.num_steady_steps), ""
    yield "  interval", _number(summary.steady_interval_ms), "ms"
    yield "  max(t, V)", _number(summary.steady_max_ms), "ms"
    yield "  interval / max(t, V)", _number(summary.steady_ratio), ""
    yield "draft time overlapped", _number(summary.overlap_fraction), ""
    yield "  steady steps", _number(summary.steady_overlap_fraction), ""
    if summary.hidden_state_bytes is not None:
        yield (
            "hidden states for the drafter",
            _number(summary.hidden_state_bytes / 1e6),
            "MB a pass",
        )
        yield "  share of the pass", _number(summary.hidden_state_share), ""
    yield "drafter losses", str(summary.drafter_losses), ""
    yield "waited for drafts", _number(summary.wait_ms), "ms"
    yield "wall time", _number(summary.wall_s), "s"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
