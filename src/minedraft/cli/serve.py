"""``minedraft serve``: ``vllm serve`` with minedraft's options as flags of their own.

Owns the translation of flags; the server is vLLM's.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from minedraft.cli.options import add_options, read_options, require_vllm
from minedraft.validation import check_str

if TYPE_CHECKING:
    from argparse import _SubParsersAction


def add_parser(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "serve",
        help="serve a target over vLLM's OpenAI-compatible API",
        description="Takes every flag of 'vllm serve' besides its own.",
        allow_abbrev=False,
    )
    parser.add_argument("target", metavar="TARGET", help="target model")
    add_options(parser)
    parser.set_defaults(run=run, takes_engine_flags=True)


def run(args: argparse.Namespace) -> int:
    """Serve until interrupted; returns vLLM's exit code."""
    check_str("TARGET", args.target)
    config = read_options(args)
    require_vllm()
    from minedraft.plugin.serving import serve

    return serve(args.target, config, args.engine_flags)
