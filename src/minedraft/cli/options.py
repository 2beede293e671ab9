"""Command-line flags for minedraft's own options, shared by the subcommands.

Owns names and help texts; ranges are MineDraftConfig's.
"""

from __future__ import annotations

import argparse

from minedraft.config import DTYPES, MODES, MineDraftConfig
from minedraft.errors import ConfigError

_FLAGS = (
    "mode",
    "num_speculative_tokens",
    "draft_model",
    "draft_device",
    "draft_dtype",
    "draft_quantization",
    "draft_max_model_len",
    "draft_memory_share",
    "draft_kv_cache_gib",
    "draft_block_size",
    "target_cores",
    "trace",
    "emulate",
    "allow_untested_vllm",
)


def add_options(parser: argparse.ArgumentParser, *, default_mode: str = "two-batch") -> None:
    """Add the flags; only those that are given reach the configuration."""
    group = parser.add_argument_group("minedraft")
    group.add_argument("--mode", choices=MODES, default=default_mode, help="default: %(default)s")
    group.add_argument(
        "-k", "--num-speculative-tokens", type=int, metavar="K", help="drafts per request and step"
    )
    group.add_argument("--draft-model", "--draft", metavar="DRAFT", help="draft model")
    group.add_argument(
        "--draft-device", metavar="DEVICE", help="cuda:N, cpu, or cores of the CPU as in cpu:1"
    )
    group.add_argument("--draft-dtype", choices=DTYPES, help="default: the model's own")
    group.add_argument("--draft-quantization", metavar="METHOD")
    group.add_argument("--draft-max-model-len", type=int, metavar="TOKENS")
    group.add_argument("--draft-memory-share", type=float, metavar="SHARE", help="of its GPU")
    group.add_argument("--draft-kv-cache-gib", type=float, metavar="GIB")
    group.add_argument("--draft-block-size", type=int, metavar="TOKENS")
    group.add_argument("--target-cores", metavar="CORES", help="CPU only, as in 0-3")
    group.add_argument("--trace", metavar="TRACE.jsonl", help="write one line per step")
    group.add_argument("--emulate", metavar="FILE.toml", help="modelled device times")
    group.add_argument(
        "--allow-untested-vllm", action="store_true", default=None, help="go on with any vLLM"
    )


def read_options(args: argparse.Namespace) -> MineDraftConfig:
    """The configuration of the given flags; ConfigError names the option at fault."""
    given = {name: getattr(args, name) for name in _FLAGS if getattr(args, name, None) is not None}
    if given.get("mode") == "none":
        given = {name: each for name, each in given.items() if not name.startswith("draft_")}
    if given.get("mode") != "none" and "draft_model" not in given:
        raise ConfigError(
            f"minedraft: --draft-model is missing; mode {given.get('mode')!r} needs a draft model"
        )
    return MineDraftConfig.from_mapping(given)
