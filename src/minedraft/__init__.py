"""minedraft: parallel speculative decoding for vLLM.

Public names only; neither vLLM nor torch is imported here.
"""

from __future__ import annotations

from typing import Any

from minedraft._version import __version__
from minedraft.config import DrafterConfig, MineDraftConfig
from minedraft.emulation import Emulation, LatencyModel
from minedraft.errors import ConfigError, DrafterError, MineDraftError, ProtocolError
from minedraft.methods import Drafter, Needs, Surroundings, Text

__all__ = [
    "ConfigError",
    "Drafter",
    "DrafterConfig",
    "DrafterError",
    "Emulation",
    "LatencyModel",
    "MineDraftConfig",
    "MineDraftError",
    "Needs",
    "ProtocolError",
    "Surroundings",
    "Text",
    "__version__",
    "engine_args",
]


def engine_args(**options: Any) -> dict[str, Any]:
    """Keyword arguments for `vllm.LLM` or vLLM's engine arguments.

    `options` are those of `additional_config["minedraft"]`: mode, num_speculative_tokens,
    draft_model, draft_device and so on (docs/configuration.md). Use it as
    ``LLM(target, **minedraft.engine_args(draft_model=..., num_speculative_tokens=4))``.

    Raises:
        ConfigError: names the option, its value and what is allowed.
    """
    config = MineDraftConfig.from_mapping(options)
    return {
        "additional_config": {"minedraft": config.to_mapping()},
        # Named here too, so that an engine without the plugin refuses to start.
        "scheduler_cls": "minedraft.plugin.scheduler.MineDraftScheduler",
    }
