"""Command-line flags for minedraft's own options, shared by the subcommands.

Owns names and help texts; ranges are MineDraftConfig's.
"""

from __future__ import annotations

import argparse
import difflib
import json
from collections.abc import Sequence
from importlib.util import find_spec

from minedraft.config import DTYPES, MODES, SAMPLE_METHODS, MineDraftConfig, option_names
from minedraft.errors import ConfigError
from minedraft.model_names import check_model_name

# vLLM has no flag that begins so: whatever does is a misspelt one of ours.
_OUR_PREFIXES = ("--draft", "--emul", "--target-", "--num-spec", "--tetris", "--trace")


def add_options(parser: argparse.ArgumentParser, *, default_mode: str = "two-batch") -> None:
    """Add the flags; only those that are given reach the configuration."""
    group = parser.add_argument_group("minedraft")
    group.add_argument("--mode", choices=MODES, default=default_mode, help="default: %(default)s")
    group.add_argument(
        "-k", "--num-speculative-tokens", type=int, metavar="K", help="drafts per request and step"
    )
    group.add_argument("--draft-model", "--draft", metavar="DRAFT", help="draft model, or head")
    group.add_argument(
        "--draft-method",
        metavar="METHOD",
        help="a head: eagle, eagle3; without a model: ngram, suffix, or a class as in "
        "package.module:Class",
    )
    group.add_argument(
        "--draft-options", type=_read_json, metavar="JSON", help="of the method, as a JSON object"
    )
    group.add_argument(
        "--draft-device", metavar="DEVICE", help="cuda:N, cpu, or cores of the CPU as in cpu:1"
    )
    group.add_argument("--draft-dtype", choices=DTYPES, help="default: the model's own")
    group.add_argument("--draft-quantization", metavar="METHOD")
    group.add_argument("--draft-revision", metavar="REVISION")
    group.add_argument("--draft-max-model-len", type=int, metavar="TOKENS")
    group.add_argument("--draft-memory-share", type=float, metavar="SHARE", help="of its GPU")
    group.add_argument("--draft-kv-cache-gib", type=float, metavar="GIB")
    group.add_argument("--draft-block-size", type=int, metavar="TOKENS")
    group.add_argument("--draft-max-num-batched-tokens", type=int, metavar="TOKENS")
    group.add_argument("--draft-sample-method", choices=SAMPLE_METHODS)
    group.add_argument("--draft-num-candidates", type=int, metavar="TOKENS")
    group.add_argument("--draft-enforce-eager", action="store_true", default=None)
    group.add_argument("--draft-start-timeout-s", type=float, metavar="SECONDS")
    group.add_argument("--draft-reply-timeout-s", type=float, metavar="SECONDS")
    group.add_argument("--draft-hang-timeout-s", type=float, metavar="SECONDS")
    group.add_argument(
        "--tetris-extra-tokens", type=int, metavar="E", help="drafts beyond k, to choose from"
    )
    group.add_argument("--tetris-capacity", type=int, metavar="TOKENS", help="verified in a step")
    group.add_argument("--tetris-min-requests", type=int, metavar="N")
    group.add_argument("--target-cores", metavar="CORES", help="CPU only, as in 0-3")
    group.add_argument("--trace", metavar="TRACE.jsonl", help="write one line per step")
    group.add_argument("--emulate", metavar="FILE.toml", help="modelled device times")
    group.add_argument(
        "--allow-untested-vllm", action="store_true", default=None, help="go on with any vLLM"
    )


def read_options(args: argparse.Namespace) -> MineDraftConfig:
    """The configuration of the given flags; ConfigError names the option at fault."""
    given = {"mode": args.mode, **given_options(args)}
    if given.get("mode") == "none":
        given = {name: each for name, each in given.items() if not name.startswith("draft_")}
    if given.get("mode") != "none" and not {"draft_model", "draft_method"} & set(given):
        raise ConfigError(
            f"minedraft: --draft-model is missing; mode {given.get('mode')!r} needs a draft model, "
            "or a --draft-method without one"
        )
    config = MineDraftConfig.from_mapping(given)
    check_model_name("TARGET", args.target)
    if config.drafter is not None and config.drafter.model is not None:
        check_model_name("draft_model", config.drafter.model)
    return config


def given_options(args: argparse.Namespace) -> dict[str, object]:
    """minedraft's options that flags name, the mode left out."""
    values = {name: getattr(args, name) for name in option_names() if name != "mode"}
    return {name: value for name, value in values.items() if value is not None}


def _read_json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON: {error}") from error


def refuse_misspelt(flags: Sequence[str]) -> None:
    """Raise ConfigError for a flag meant for vLLM that can only be one of ours, misspelt.

    `flags` are spelt with dashes.
    """
    ours = [f"--{name.replace('_', '-')}" for name in option_names()]
    for flag in flags:
        name = flag.partition("=")[0]
        if not name.startswith(_OUR_PREFIXES):
            continue
        if name in ours:
            raise ConfigError(f"minedraft: this command has no {name}; see its --help")
        near = difflib.get_close_matches(name, ours, n=1) or ours
        raise ConfigError(f"minedraft: there is no flag {name}; did you mean {', '.join(near)}?")


def require_vllm() -> None:
    """Raise ConfigError if vLLM is not installed; it is not imported."""
    if find_spec("vllm") is None:
        raise ConfigError(
            "minedraft: vLLM is not installed; install minedraft[cpu] or minedraft[gpu]"
        )
