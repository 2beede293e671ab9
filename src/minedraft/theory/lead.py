"""Wait-free drafting as a Markov chain: how many good guesses a request holds when it is verified.

Owns the chain of one request; step times and other requests are `steady`'s.

A drafter that is never waited for holds s guesses beyond the committed tokens when a step
begins, at most 2k + 1. The step verifies h = min(k, s) of them while the drafter adds n. If
all h are accepted and the next guess is the bonus token, the rest stays; else it is dropped:

    s -> min(s + n, 2k + 1) - (h + 1)   with probability a_1 ... a_{h+1}, if that is >= 0
    s -> 0                              otherwise

With n >= k + 1 only two states are left, a hit (h = k) and a miss (h = 0, a plain decode):
hit -> hit with a_1 ... a_{k+1}, miss -> hit with a_1, so that

    P(hit) = a_1 / (1 + a_1 - a_1 ... a_{k+1})

Source: issue 5; the rule is that of `drafter.wait_free_client` and `drafter.book`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from minedraft.theory.acceptance import Acceptance
from minedraft.validation import check_int


@dataclass(frozen=True, slots=True)
class Lead:
    """What a request's steps bring on average, in the long run."""

    drafts_per_step: float
    """Draft tokens verified."""
    tokens_per_step: float
    """Tokens gained, the correction or bonus token included."""
    plain_share: float
    """Share of its steps without any draft."""


def hit_share(acceptance: Acceptance, k: int) -> float:
    """P(hit) of the two-state chain: the share of steps with k drafts, for k >= 1."""
    check_int("k", k, 1)
    first, stay = acceptance.at(1), acceptance.survival(k + 1)
    return first / (1.0 + first - stay)


def lead_of(acceptance: Acceptance, k: int, passes_per_step: int) -> Lead:
    """The stationary chain, if the drafter makes `passes_per_step` >= 0 passes in a step."""
    check_int("k", k, 1)
    check_int("passes_per_step", passes_per_step, 0)
    drafts = tokens = plain = 0.0
    for held, share in _stationary(acceptance, k, passes_per_step).items():
        sent = min(k, held)
        drafts += share * sent
        tokens += share * acceptance.expected_tokens(sent)
        plain += share if sent == 0 else 0.0
    return Lead(drafts_per_step=drafts, tokens_per_step=tokens, plain_share=plain)


def _stationary(acceptance: Acceptance, k: int, passes: int) -> Mapping[int, float]:
    """Share of steps that begin with s guesses held, by s.

    Every run of hits begins at 0 and takes one course, so that the chain is a renewal process:
    the share of a state is how likely a run gets that far, over the mean length of a run. A
    course that comes back to a state goes round for ever, which is a geometric series.
    """
    visits: dict[int, float] = {}
    held, reached = 0, 1.0
    while held not in visits:
        visits[held] = reached
        sent = min(k, held)
        left = min(held + passes, 2 * k + 1) - (sent + 1)
        if left < 0:
            break
        held, reached = left, reached * acceptance.survival(sent + 1)
    else:
        visits = _with_loop(visits, held, reached)
    total = sum(visits.values())
    return {state: each / total for state, each in visits.items()}


def _with_loop(visits: dict[int, float], start: int, again: float) -> dict[int, float]:
    """The visits of a run which comes back to `start` with probability `again`.

    Raised by the series 1 + r + r^2 + ..., r = again / visits[start], from `start` on; with
    r = 1 no run ends, and only the loop is left.
    """
    order = list(visits)
    loop = order[order.index(start) :]
    ratio = again / visits[start] if visits[start] else 0.0
    if ratio >= 1.0:
        return {state: visits[state] for state in loop}
    return {state: visits[state] / (1 - ratio if state in loop else 1.0) for state in order}
