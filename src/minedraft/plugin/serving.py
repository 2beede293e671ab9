"""Running vLLM's own server with minedraft's options filled in.

Owns the command line that vLLM gets; everything behind it is vLLM's.
"""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Sequence

from minedraft.config import MineDraftConfig
from minedraft.errors import ConfigError, MineDraftError
from minedraft.plugin.admission import first_lines
from minedraft.plugin.engine_config import OPTIONS_KEY, SCHEDULER
from minedraft.plugin.engine_flags import refuse_own_table
from minedraft.plugin.runtime import preload_openmp

_ADDITIONAL = "--additional-config"


def serve_command(target: str, config: MineDraftConfig, flags: Sequence[str]) -> list[str]:
    """Arguments of ``vllm`` that serve `target` with minedraft.

    Raises:
        ConfigError: `flags` hold an --additional-config that is no JSON object, or that says
            again what `config` says.
    """
    kept, additional = _take_additional(flags)
    additional[OPTIONS_KEY] = config.to_mapping()
    return [
        "serve",
        target,
        *kept,
        _ADDITIONAL,
        json.dumps(additional),
        "--scheduler-cls",
        SCHEDULER,
    ]


def serve(target: str, config: MineDraftConfig, flags: Sequence[str]) -> int:
    """Run vLLM's server in this process until it ends."""
    command = serve_command(target, config, flags)
    preload_openmp()
    from vllm.entrypoints.cli.serve import cmd_init
    from vllm.entrypoints.serve.utils.api_utils import cli_env_setup
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    # Not vllm.entrypoints.cli.main: it asks for the metadata of a package "vllm", which the
    # CPU build does not have under that name.
    sys.argv = ["vllm", *command]
    cli_env_setup()
    parser = FlexibleArgumentParser(prog="minedraft")
    subparsers = parser.add_subparsers(required=True, dest="subparser")
    (subcommand,) = cmd_init()
    subcommand.subparser_init(subparsers)
    args = parser.parse_args(command)
    subcommand.validate(args)
    try:
        subcommand.cmd(args)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise ConfigError.bad_value("--port", args.port, "a port that nothing uses") from error
    except OverflowError as error:
        raise ConfigError.bad_value("--port", args.port, "a port from 0 to 65535") from error
    except ConfigError:
        raise
    # What vLLM raises for arguments that its own checks refuse.
    except ValueError as error:
        raise MineDraftError(
            f"minedraft: the server did not start: {first_lines(error)}"
        ) from error
    return 0


def _take_additional(flags: Sequence[str]) -> tuple[list[str], dict[str, object]]:
    """The flags without --additional-config, and what it held."""
    kept: list[str] = []
    text = "{}"
    rest = iter(flags)
    for flag in rest:
        name, has_value, value = flag.partition("=")
        if name.replace("_", "-").startswith(f"{_ADDITIONAL}."):
            # vLLM would take it for the whole table, and ours were gone.
            raise ConfigError.bad_value("flag", name, f"{_ADDITIONAL} with a JSON object")
        if name.replace("_", "-") != _ADDITIONAL:
            kept.append(flag)
            continue
        text = value if has_value else next(rest, "")
    try:
        table = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError.bad_value(
            "additional_config", text, f"a JSON object ({error})"
        ) from error
    if not isinstance(table, dict):
        raise ConfigError.bad_value("additional_config", text, "a JSON object")
    refuse_own_table(table)
    return kept, table
