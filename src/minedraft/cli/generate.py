"""``minedraft generate``: offline generation for a file of prompts, with a summary.

Owns flags, files and printed output; the engine is behind minedraft.plugin.offline.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from minedraft.cli.files import check_distinct, check_writable
from minedraft.cli.options import add_options, read_options, require_vllm
from minedraft.errors import MineDraftError
from minedraft.methods import WITH_MODEL
from minedraft.prompts import read_prompts
from minedraft.termination import exit_on_sigterm
from minedraft.validation import check_int, check_number, check_str

if TYPE_CHECKING:
    from argparse import _SubParsersAction

_LARGEST_SEED = 2**32 - 1
"""numpy's, which vLLM seeds too."""


def add_parser(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "generate",
        help="generate for a file of prompts and report speed, acceptance and overlap",
        description="Takes every engine flag of vLLM besides its own.",
        allow_abbrev=False,
    )
    parser.add_argument("target", metavar="TARGET", help="target model")
    parser.add_argument(
        "--prompts",
        required=True,
        metavar="FILE.jsonl",
        help='rows {"prompt": ...}, {"turns": [...]} (first turn) or {"question": ...}',
    )
    parser.add_argument("--limit", type=int, metavar="N", help="first N prompts only")
    parser.add_argument("--max-tokens", type=int, default=128, metavar="N")
    parser.add_argument("--max-num-seqs", type=int, default=8, metavar="N", help="in flight")
    parser.add_argument("--dtype", default="auto", help="of the target, and of the draft model")
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument("--chat", action="store_true", help="apply the chat template")
    parser.add_argument("--ignore-eos", action="store_true", help="generate max-tokens always")
    parser.add_argument("--output", metavar="OUT.jsonl", help="default: standard output")
    parser.add_argument("--summary", metavar="SUMMARY.json")
    add_options(parser)
    parser.set_defaults(run=run, takes_engine_flags=True)


def run(args: argparse.Namespace) -> int:
    """Generate and write; 0 when every prompt has its line."""
    _check(args)
    runs_model = args.draft_method is None or args.draft_method in WITH_MODEL
    if runs_model and args.draft_dtype is None and args.dtype != "auto":
        args.draft_dtype = args.dtype
    config = read_options(args)
    prompts = read_prompts(args.prompts, args.limit)
    _check_distinct(args)
    for path in (args.output, args.summary, args.trace):
        if path is not None:
            check_writable(Path(path), makes_folder=True)
    require_vllm()
    from minedraft.plugin.offline import OfflineRun, run_offline

    offline = OfflineRun(
        target=args.target,
        config=config,
        prompts=tuple(prompts),
        max_tokens=args.max_tokens,
        max_num_seqs=args.max_num_seqs,
        dtype=args.dtype,
        temperature=args.temperature,
        seed=args.seed,
        chat=args.chat,
        ignore_eos=args.ignore_eos,
        engine_flags=tuple(args.engine_flags),
    )
    with exit_on_sigterm():
        result = run_offline(offline)
    _print_summary(result.summary)
    rows = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in result.rows)
    _write(args.output, rows)
    if args.summary:
        _write(args.summary, json.dumps(result.summary, indent=2) + "\n")
    return 0


def _check(args: argparse.Namespace) -> None:
    check_str("TARGET", args.target)
    check_int("--limit", args.limit, 1, optional=True)
    check_int("--max-tokens", args.max_tokens, 1)
    check_int("--max-num-seqs", args.max_num_seqs, 1)
    check_int("--seed", args.seed, 0, _LARGEST_SEED)
    check_number("--temperature", args.temperature, 0.0, 10.0)


def _check_distinct(args: argparse.Namespace) -> None:
    """Two files in one place would overwrite each other, or the prompts."""
    files = {
        "--prompts": args.prompts,
        "--output": args.output,
        "--summary": args.summary,
        "--trace": args.trace,
    }
    places = {flag: None if path is None else Path(path) for flag, path in files.items()}
    prompts = places["--prompts"]
    if prompts is not None and not prompts.is_file():
        places["--prompts"] = None
    check_distinct(places)


def _write(path: str | None, text: str) -> None:
    """To the file, or to standard output if there is none or it cannot be written any more."""
    if path is None:
        _print_whole(text)
        return
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        _print_whole(text)
        raise MineDraftError(
            f"minedraft: cannot write {path!r}: {error.strerror}; it went to standard output"
        ) from error


def _print_whole(text: str) -> None:
    """To standard output, as UTF-8 whatever the terminal's encoding is: nothing is lost."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    sys.stdout.write(text)


def _print_summary(summary: dict[str, object]) -> None:
    width = max(len(name) for name in summary)
    for name, value in summary.items():
        shown = f"{value:.4g}" if isinstance(value, float) else value
        print(f"{name:<{width}}  {shown}", file=sys.stderr)
