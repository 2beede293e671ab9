"""Policies: who is verified and who is drafted next. This file is their factory."""

from __future__ import annotations

from collections.abc import Callable

from minedraft.errors import ConfigError
from minedraft.policies.base import DraftState, Policy, States, StepPlan
from minedraft.policies.none import NonePolicy
from minedraft.policies.sequential import SequentialPolicy
from minedraft.policies.two_batch import TwoBatchPolicy

__all__ = [
    "DraftState",
    "NonePolicy",
    "Policy",
    "SequentialPolicy",
    "States",
    "StepPlan",
    "TwoBatchPolicy",
    "make_policy",
]

_POLICIES: dict[str, Callable[[], Policy]] = {
    "none": NonePolicy,
    "sequential": SequentialPolicy,
    "two-batch": TwoBatchPolicy,
}


def make_policy(name: str) -> Policy:
    """A new policy of that name; ConfigError if there is none."""
    if name not in _POLICIES:
        raise ConfigError.bad_value("mode", name, ", ".join(_POLICIES))
    return _POLICIES[name]()
