"""The command line that vLLM's server gets, and what is refused before."""

from __future__ import annotations

import json
from typing import Any

import pytest

from minedraft import ConfigError, MineDraftConfig

pytestmark = pytest.mark.vllm

CONFIG = MineDraftConfig.from_mapping({"draft_model": "D", "num_speculative_tokens": 3})


def _table(flags: list[str]) -> object:
    from minedraft.plugin.serving import serve_command

    words = serve_command("T", CONFIG, flags)
    return json.loads(words[words.index("--additional-config") + 1])


@pytest.mark.parametrize(
    "flags",
    [
        ["--additional-config", '{"other": 1}'],
        ['--additional-config={"other": 1}'],
        ["--additional_config", '{"other": 1}', "--enforce-eager"],
    ],
)
def test_what_others_add_is_kept(flags: list[str]) -> None:
    assert _table(flags) == {"other": 1, "minedraft": CONFIG.to_mapping()}


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--additional-config", "{"], "a JSON object"),
        (["--additional-config", "[1]"], "a JSON object"),
        (["--additional-config", '{"minedraft": {}}'], "not given beside this command's own flags"),
        (["--additional-config.x", "2"], "flag = '--additional-config.x' .* a JSON object"),
        (["--additional_config.minedraft.mode=none"], "--additional-config with a JSON object"),
    ],
)
def test_what_would_be_lost_is_refused(flags: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        _table(flags)


def test_generate_refuses_a_second_table(pairs: dict[str, Any]) -> None:
    from minedraft.plugin.engine_flags import parse_engine_flags

    flags = ["--model", str(pairs["high"].target)]
    flags += ["--additional-config", '{"minedraft": {"mode": "none"}}']
    with pytest.raises(ConfigError, match=r"additional_config\['minedraft'\]"):
        parse_engine_flags(flags, CONFIG)
