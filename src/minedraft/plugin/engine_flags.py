"""Flags of vLLM's engine, as its own command line takes them.

Owns the parsing; a flag that vLLM does not know is an error of ours, not the end of the process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from vllm.engine.arg_utils import EngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser

from minedraft.config import MineDraftConfig
from minedraft.errors import ConfigError
from minedraft.plugin.engine_config import OPTIONS_KEY


class _Parser(FlexibleArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"minedraft: vLLM's engine: {message}")


def parse_engine_flags(flags: Sequence[str], config: MineDraftConfig) -> EngineArgs:
    """vLLM's arguments from `flags`, with minedraft's options beside the user's additional ones.

    Raises:
        ConfigError: a flag is unknown, or vLLM refuses its value.
    """
    parser = _Parser(prog="minedraft", add_help=False)
    EngineArgs.add_cli_args(parser)
    namespace = parser.parse_args(list(flags))
    try:
        args = EngineArgs.from_cli_args(namespace)
    except (ValueError, OSError) as error:
        raise ConfigError(f"minedraft: vLLM refuses the arguments: {error}") from error
    additional = args.additional_config
    if not isinstance(additional, dict):
        raise ConfigError.bad_value("additional_config", additional, "a JSON object")
    refuse_own_table(additional)
    args.additional_config = {**additional, OPTIONS_KEY: config.to_mapping()}
    return args


def refuse_own_table(additional: Mapping[str, object]) -> None:
    """Raise ConfigError where minedraft's options come by flags and by --additional-config."""
    if OPTIONS_KEY in additional:
        raise ConfigError.bad_value(
            f"additional_config[{OPTIONS_KEY!r}]",
            additional[OPTIONS_KEY],
            "not given beside this command's own flags for the same options",
        )
