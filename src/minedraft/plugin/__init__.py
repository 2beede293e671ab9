"""The vLLM side of minedraft: the only package that imports vLLM.

`register` is the entry point that vLLM calls in every process.
"""

from __future__ import annotations

__all__ = ["register"]


def register() -> None:
    """Make `additional_config["minedraft"]` known to vLLM; safe to call again."""
    from vllm.engine.arg_utils import EngineArgs

    from minedraft.plugin.engine_config import wrap_create_engine_config

    original = EngineArgs.create_engine_config
    if not getattr(original, "is_minedraft", False):
        wrapper = wrap_create_engine_config(original)
        wrapper.is_minedraft = True  # type: ignore[attr-defined]
        EngineArgs.create_engine_config = wrapper
