"""``minedraft doctor``: what is installed, which hooks are there, what would be refused.

Owns the command and its printing; the findings are minedraft.plugin.diagnosis's.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from minedraft._version import __version__
from minedraft.cli.options import add_options, given_options, read_options, require_vllm
from minedraft.errors import ConfigError

if TYPE_CHECKING:
    from argparse import _SubParsersAction

EXIT_PROBLEM = 1


def add_parser(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "doctor",
        help="report versions, hooks, devices, and what would be refused",
        description="With TARGET, --draft-model and flags of vLLM's engine it says whether that "
        "combination would start, without starting it.",
        allow_abbrev=False,
    )
    parser.add_argument("target", nargs="?", metavar="TARGET", help="target model")
    add_options(parser)
    parser.set_defaults(run=run, takes_engine_flags=True)


def run(args: argparse.Namespace) -> int:
    """Print the report; 0 if an engine could start, 1 if something stands in the way."""
    if args.target is None and args.engine_flags:
        raise ConfigError(f"minedraft: {' '.join(args.engine_flags)} needs a TARGET before it")
    if args.target is None and (given := given_options(args)):
        flag = f"--{min(given).replace('_', '-')}"
        raise ConfigError(f"minedraft: {flag} needs a TARGET before it")
    config = None if args.target is None else read_options(args)
    print(f"minedraft {__version__}", flush=True)
    require_vllm()
    from minedraft.plugin.diagnosis import diagnose

    findings = diagnose(args.target, config, args.engine_flags)
    for finding in findings:
        print(finding)
    return EXIT_PROBLEM if any(finding.is_problem for finding in findings) else 0
