"""Drafters without a model of their own in vLLM: lookup in texts, and those of other people.

It imports no vLLM, so that their process starts at once.
"""

from minedraft.methods.base import Drafter, Needs, Surroundings, Text
from minedraft.methods.double import DoubleDrafter
from minedraft.methods.registry import (
    EAGLE_HEADS,
    HEADS,
    MEDUSA,
    MODEL,
    WITH_MODEL,
    check_installed,
    check_method,
    make_drafter,
)

__all__ = [
    "EAGLE_HEADS",
    "HEADS",
    "MEDUSA",
    "MODEL",
    "WITH_MODEL",
    "DoubleDrafter",
    "Drafter",
    "Needs",
    "Surroundings",
    "Text",
    "check_installed",
    "check_method",
    "make_drafter",
]
