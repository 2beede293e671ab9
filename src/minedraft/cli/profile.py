"""``minedraft profile``: t and V of a pair on the devices at hand, into a file.

Owns flags and printed output; the measurement is behind minedraft.plugin.profile_run.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from minedraft.cli.files import check_writable
from minedraft.cli.options import require_vllm
from minedraft.config import DTYPES, MAX_DRAFT_TOKENS, MineDraftConfig
from minedraft.errors import ConfigError
from minedraft.model_names import check_model_name
from minedraft.profiles import PassProfile, Profile, require_scipy, write_profile
from minedraft.validation import check_int, check_str

if TYPE_CHECKING:
    from argparse import _SubParsersAction

_LARGEST_SEED = 2**32 - 1
"""numpy's, which vLLM seeds too."""
_REPLY_TIMEOUT_S = 120.0
"""A step without the drafts that came too late would be no step of its cell."""
_HEAD = ("requests", "tokens", "context", "ms", "quartiles", "samples", "fit", "linear")


def add_parser(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "profile",
        help="measure t and V of a pair on the devices at hand, for simulator and closed forms",
        description="Takes every engine flag of vLLM besides its own. Lists are written as 1,2,4.",
        allow_abbrev=False,
    )
    parser.add_argument("target", metavar="TARGET", help="target model")
    parser.add_argument("--draft-model", "--draft", required=True, metavar="DRAFT")
    parser.add_argument("--output", required=True, type=Path, metavar="P.json")
    parser.add_argument("-k", default="2,4", metavar="LIST", help="drafts; default: %(default)s")
    parser.add_argument(
        "--in-flight", default="1,2,4,8", metavar="LIST", help="requests; default: %(default)s"
    )
    parser.add_argument(
        "--context", default="128,512", metavar="LIST", help="of a prompt; default: %(default)s"
    )
    parser.add_argument(
        "--repeats", type=int, default=9, metavar="N", help="of each size; default: %(default)s"
    )
    parser.add_argument("--dtype", default="auto", help="of the target, and of the draft model")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the prompts")
    parser.add_argument("--target-cores", metavar="CORES", help="CPU only, as in 0-3")
    parser.add_argument(
        "--draft-device", metavar="DEVICE", help="cuda:N, cpu, or cores of the CPU as in cpu:1"
    )
    parser.add_argument("--draft-dtype", choices=DTYPES, help="default: that of --dtype")
    parser.add_argument("--draft-quantization", metavar="METHOD")
    parser.add_argument("--draft-memory-share", type=float, metavar="SHARE", help="of its GPU")
    parser.add_argument("--draft-kv-cache-gib", type=float, metavar="GIB")
    parser.add_argument("--draft-block-size", type=int, metavar="TOKENS")
    parser.add_argument("--draft-max-num-batched-tokens", type=int, metavar="TOKENS")
    parser.add_argument("--draft-enforce-eager", action="store_true", default=None)
    parser.add_argument(
        "--draft-reply-timeout-s",
        type=float,
        metavar="SECONDS",
        help=f"default here: {_REPLY_TIMEOUT_S:g}",
    )
    parser.add_argument("--draft-hang-timeout-s", type=float, metavar="SECONDS")
    parser.set_defaults(run=run, takes_engine_flags=True)


def run(args: argparse.Namespace) -> int:
    """Measure, print and write; 0.

    Raises:
        ConfigError: a flag is not allowed; all that can be told without an engine is told
            before one starts.
    """
    check_str("TARGET", args.target)
    check_int("--repeats", args.repeats, 1, 10_000)
    check_int("--seed", args.seed, 0, _LARGEST_SEED)
    in_flight = read_list("--in-flight", args.in_flight, 1, 65_536)
    draft_tokens = read_list("-k", args.k, 1, MAX_DRAFT_TOKENS)
    context = read_list("--context", args.context, 1, 1 << 24)
    config = _options(args, draft_tokens[-1])
    check_writable(args.output)
    require_scipy()
    require_vllm()
    from minedraft.plugin.profile_engine import ProfiledPair
    from minedraft.plugin.profile_run import Grid, measure

    grid = Grid(
        in_flight=in_flight, draft_tokens=draft_tokens, context=context, repeats=args.repeats
    )
    pair = ProfiledPair(
        target=args.target,
        config=config,
        dtype=args.dtype,
        seed=args.seed,
        max_num_seqs=in_flight[-1],
        max_model_len=grid.max_model_len,
        engine_flags=tuple(args.engine_flags),
    )
    profile = measure(pair, grid, ["minedraft", *sys.argv[1:]], _say)
    # First what cannot be lost any more.
    print(render(profile), flush=True)
    write_profile(profile, args.output)
    return 0


def read_list(flag: str, text: str, low: int, high: int) -> tuple[int, ...]:
    """The integers of a list such as 1,2,4, sorted and without doubles.

    Raises:
        ConfigError: names the flag, the value and what is allowed.
    """
    try:
        values = {int(part) for part in text.split(",")}
    except ValueError as error:
        raise ConfigError.bad_value(flag, text, "integers with commas, as in 1,2,4") from error
    for value in values:
        check_int(flag, value, low, high)
    return tuple(sorted(values))


def render(profile: Profile) -> str:
    """The points of both models, with what each fit makes of them, as a table."""
    lines = [
        f"target {profile.target_model} on {profile.target_device}, {profile.target_dtype}; "
        f"draft {profile.draft_model} on {profile.draft_device}, {profile.draft_dtype}",
        f"overhead {profile.overhead_ms:.2f} ms a step; asking for drafts "
        f"{profile.round_trip_ms:.2f} ms",
        "",
        "V: passes of the target",
        *_table(profile.target),
        "",
        "t / k: passes of the draft model",
        *_table(profile.draft),
    ]
    return "\n".join(lines)


def _table(passes: PassProfile) -> list[str]:
    rows = [_HEAD]
    rows += [
        (
            f"{each.point.num_requests:g}",
            f"{each.point.num_tokens:.4g}",
            f"{each.point.context:.4g}",
            f"{each.point.median_ms:.4g}",
            f"{each.point.low_ms:.4g}-{each.point.high_ms:.4g}",
            f"{each.point.num_samples}",
            f"{each.fit_error:+.1%}",
            f"{each.linear_error:+.1%}",
        )
        for each in passes.residuals
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.rjust, row, widths)) for row in rows]


def _options(args: argparse.Namespace, k: int) -> MineDraftConfig:
    if args.draft_dtype is None and args.dtype in DTYPES and args.dtype != "auto":
        args.draft_dtype = args.dtype
    names = (
        *("draft_model", "draft_device", "draft_dtype", "draft_quantization"),
        *("draft_memory_share", "draft_kv_cache_gib", "draft_block_size"),
        *("draft_max_num_batched_tokens", "draft_enforce_eager", "draft_reply_timeout_s"),
        *("draft_hang_timeout_s", "target_cores"),
    )
    given = {name: value for name in names if (value := getattr(args, name)) is not None}
    fixed = {"mode": "sequential", "num_speculative_tokens": k}
    config = MineDraftConfig.from_mapping(
        {"draft_reply_timeout_s": _REPLY_TIMEOUT_S, **given, **fixed}
    )
    check_model_name("TARGET", args.target)
    check_model_name("draft_model", args.draft_model)
    return config


def _say(text: str) -> None:
    print(f"minedraft profile: {text}", file=sys.stderr, flush=True)
