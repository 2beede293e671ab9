"""Policies: who is verified and who is drafted next. This file is their factory."""

from __future__ import annotations

from collections.abc import Callable

from minedraft.errors import ConfigError
from minedraft.policies.base import Drafting, DraftState, Policy, States, StepPlan
from minedraft.policies.none import NonePolicy
from minedraft.policies.pearl import PearlPolicy
from minedraft.policies.sequential import SequentialPolicy
from minedraft.policies.two_batch import TwoBatchPolicy
from minedraft.policies.wait_free import WaitFreePolicy

__all__ = [
    "DraftState",
    "Drafting",
    "NonePolicy",
    "PearlPolicy",
    "Policy",
    "SequentialPolicy",
    "States",
    "StepPlan",
    "TwoBatchPolicy",
    "WaitFreePolicy",
    "make_policy",
]

_POLICIES: dict[str, Callable[[], Policy]] = {
    "none": NonePolicy,
    "sequential": SequentialPolicy,
    "two-batch": TwoBatchPolicy,
    "pearl": PearlPolicy,
    "wait-free": WaitFreePolicy,
}


def make_policy(name: str) -> Policy:
    """A new policy of that name; ConfigError if there is none."""
    if name not in _POLICIES:
        raise ConfigError.bad_value("mode", name, ", ".join(_POLICIES))
    return _POLICIES[name]()
