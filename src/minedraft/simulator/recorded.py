"""The acceptance of a run that took place, from its trace.

Owns which steps of a trace say something about it; the file is `trace.reader`'s, the
arithmetic `theory.Acceptance`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from minedraft.errors import ConfigError
from minedraft.policies import Drafting, make_policy
from minedraft.theory import Acceptance
from minedraft.trace.reader import read_trace
from minedraft.trace.records import StepRecord
from minedraft.validation import check_str

_ALLOWED = "a trace, as minedraft writes it, with steps whose drafts are all of one length"


def recorded_acceptance(where: str, path: object) -> Acceptance:
    """The acceptance by position in the trace at `path`; `where` is the field that names it.

    A record counts draft tokens by position, over all requests of its step. Where the drafts of
    a step differ in length it does not say how many of those that end were right so far, and
    how many could have been tried further; such steps are left out. In mode wait-free a draft
    begins anywhere in the drafter's chain of guesses, so that its positions are not the
    chain's: of such a trace one rate is taken, that of all tokens tried.

    Raises:
        ConfigError: the file cannot be read, is no trace, or no step of it says how many of
            its drafts were right.
    """
    check_str(where, path)
    name = str(path)
    try:
        header, steps = read_trace(Path(name))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"minedraft: {where} = {name!r} cannot be read: {error}; allowed: {_ALLOWED}"
        ) from error
    found = acceptance_of(header.mode, steps)
    if found is None:
        raise ConfigError.bad_value(where, name, _ALLOWED)
    return found


def acceptance_of(mode: str, steps: Sequence[StepRecord]) -> Acceptance | None:
    """The acceptance by position in the steps of a run of `mode`; None if they do not say it."""
    told = [each for each in steps if _has_one_length(each)]
    if not told:
        return None
    proposed = _summed([each.proposed_per_position for each in told])
    accepted = _summed([each.accepted_per_position for each in told])
    if make_policy(mode).drafting is Drafting.UNASKED:
        # Of the tokens behind the first, those behind a right one were tried.
        tried = proposed[0] + sum(map(min, proposed[1:], accepted))
        return Acceptance((sum(accepted) / tried,))
    return Acceptance.from_counts(proposed, accepted)


def _has_one_length(step: StepRecord) -> bool:
    """Whether drafts were verified, and all were equally long."""
    return len(set(filter(None, step.proposed_per_position))) == 1


def _summed(counts: list[list[int]]) -> list[int]:
    longest = max(map(len, counts))
    return [
        sum(each[position] for each in counts if position < len(each))
        for position in range(longest)
    ]
