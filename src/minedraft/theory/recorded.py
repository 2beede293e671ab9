"""The acceptance of a run that took place, from the records of its steps.

Owns which steps say something about it, and how often a position was tried; it reads no file.
"""

from __future__ import annotations

from collections.abc import Sequence

from minedraft.policies import Drafting, make_policy
from minedraft.theory.acceptance import Acceptance
from minedraft.trace.records import StepRecord


def acceptance_of(mode: str, steps: Sequence[StepRecord]) -> Acceptance | None:
    """The acceptance by position in the steps of a run of `mode`; None if they do not say it.

    A record counts draft tokens by position, over all requests of its step: a position was tried
    by those whose token before it was right. Where the drafts of a step differ in length it does
    not say how many of those that end were right so far, and how many could have been tried
    further; such steps are left out. In mode wait-free a draft begins anywhere in the drafter's
    chain of guesses, so that its positions are not the chain's: of such a run one rate is taken,
    that of all tokens tried. A position that was never tried ends the list.

    Raises:
        ConfigError: the mode is unknown.
    """
    tried: list[int] = []
    right: list[int] = []
    for step in steps:
        if _has_one_length(step):
            _add(tried, _chances(step))
            _add(right, step.accepted_per_position)
    if make_policy(mode).drafting is Drafting.UNASKED:
        tried, right = [sum(tried)], [sum(right)]
    rates = []
    for chances, count in zip(tried, right, strict=True):
        if not chances:
            break
        rates.append(count / chances)
    return Acceptance(tuple(rates)) if rates else None


def _chances(step: StepRecord) -> list[int]:
    """At each position, the drafts whose tokens before it were right."""
    proposed, accepted = step.proposed_per_position, step.accepted_per_position
    return [*proposed[:1], *map(min, proposed[1:], accepted)]


def _has_one_length(step: StepRecord) -> bool:
    """Whether drafts were verified, and all were equally long."""
    return len(set(filter(None, step.proposed_per_position))) == 1


def _add(sums: list[int], counts: Sequence[int]) -> None:
    sums.extend([0] * (len(counts) - len(sums)))
    for position, count in enumerate(counts):
        sums[position] += count
