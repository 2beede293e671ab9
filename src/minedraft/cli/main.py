"""Entry of the ``minedraft`` command.

Owns the list of subcommands and the way errors are shown; vLLM is imported only by the
subcommands that run it.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence

from minedraft._version import __version__
from minedraft.cli import (
    bench,
    doctor,
    generate,
    plan,
    profile,
    serve,
    simulate,
    trace,
    train_heads,
)
from minedraft.cli.options import refuse_misspelt
from minedraft.errors import ConfigError, MineDraftError

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141
_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def build_parser() -> argparse.ArgumentParser:
    """The parser of all subcommands; each sets `run`, which takes the arguments."""
    parser = argparse.ArgumentParser(
        prog="minedraft",
        description="Parallel speculative decoding for vLLM: draft one batch, verify another.",
    )
    parser.add_argument("--version", action="version", version=f"minedraft {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (serve, generate, doctor, profile, trace, bench, simulate, plan, train_heads):
        module.add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Returns:
        0, or what the subcommand returns; 2 for an error that it explains on stderr.
    """
    parser = build_parser()
    words = [_with_dashes(each) for each in (sys.argv[1:] if argv is None else argv)]
    args, rest = parser.parse_known_args(words)
    if rest and not getattr(args, "takes_engine_flags", False):
        parser.error(f"unknown arguments: {' '.join(rest)}")
    args.engine_flags = rest
    try:
        refuse_misspelt(rest)
        _refuse_late_target(words, rest, getattr(args, "target", None))
        code = int(args.run(args))
        if sys.stdout is not None:  # closed by whoever started us
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Who read our output has enough of it.
        _give_up_stdout()
        return EXIT_PIPE
    except OSError as error:
        if error.errno not in _CANNOT_WRITE:
            raise
        _give_up_stdout()
        print(f"minedraft: cannot write: {error.strerror}", file=sys.stderr)
        return EXIT_ERROR
    except MineDraftError as error:
        print(error, file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        print("minedraft: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


def _give_up_stdout() -> None:
    """Drop what is still buffered, which would fail once more at the end of the process."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _with_dashes(word: str) -> str:
    """A flag's name with dashes for underscores, both of which vLLM takes."""
    name, equals, value = word.partition("=")
    if not name.startswith("--"):
        return word
    return name.replace("_", "-") + equals + value


def _refuse_late_target(words: Sequence[str], rest: Sequence[str], target: str | None) -> None:
    # Only vLLM knows which of its flags take a value, so what follows one may be either.
    if rest and target is not None and words.index(rest[0]) < words.index(target):
        raise ConfigError(
            f"minedraft: TARGET must stand before the flags of vLLM, but {rest[0]} stands before "
            f"{target!r}"
        )
