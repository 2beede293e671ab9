"""Wait-free drafting as a Markov chain: how many good guesses a request holds when it is verified.

Owns the chain of one request; step times and other requests are `steady`'s.

A drafter that is never waited for holds s guesses beyond the committed tokens when a step
begins, at most 2k + 1. The step verifies h = min(k, s) of them while the drafter adds n. If
all h are accepted and the next guess is the bonus token, the rest stays; else it is dropped:

    s -> min(s + n, 2k + 1) - (h + 1)   if the next h + 1 guesses are right and that is >= 0
    s -> 0                              otherwise

With n >= k + 1 only two states are left, a hit (h = k) and a miss (h = 0, a plain decode):
hit -> hit with a_1 ... a_{k+1}, miss -> hit with a_1, so that

    P(hit) = a_1 / (1 + a_1 - a_1 ... a_{k+1})

Positions count from the last token that the drafter was told after a miss, and begin anew
after k + 1 of them: the first one is spent on the token of the plain decode, so that the
drafts of a hit are at positions 2 ... k + 1. With equal rates that is all the same.
Source: issue 5; the rule is that of `drafter.wait_free_client` and `drafter.book`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

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


class _State(NamedTuple):
    held: int
    position: int
    """Guesses used since the last miss, modulo k + 1."""


def hit_share(acceptance: Acceptance, k: int) -> float:
    """P(hit) of the two-state chain: the share of steps with k drafts, for k >= 1."""
    check_int("k", k, 1)
    first, stay = acceptance.at(1), acceptance.survival(k + 1)
    return first / (1.0 + first - stay)


def lead_of(acceptance: Acceptance, k: int, passes_per_step: int) -> Lead:
    """The stationary chain, if the drafter makes `passes_per_step` >= 0 passes in a step."""
    check_int("k", k, 1)
    check_int("passes_per_step", passes_per_step, 0)
    shares = _stationary(acceptance, k, passes_per_step)
    drafts = tokens = plain = 0.0
    for state, share in shares.items():
        survival = _survival(acceptance, k, state)
        drafts += share * min(k, state.held)
        tokens += share * (1.0 + sum(survival[:-1]))
        plain += share * (state.held == 0)
    return Lead(drafts_per_step=drafts, tokens_per_step=tokens, plain_share=plain)


def _survival(acceptance: Acceptance, k: int, state: _State) -> list[float]:
    """Probability that the first j of a state's next guesses are right, j = 1 ... h + 1."""
    products: list[float] = []
    product = 1.0
    for ahead in range(min(k, state.held) + 1):
        product *= acceptance.at((state.position + ahead) % (k + 1) + 1)
        products.append(product)
    return products


def _stationary(acceptance: Acceptance, k: int, passes: int) -> dict[_State, float]:
    """Share of steps that begin in each state.

    Every run of hits begins after a miss and takes one course, so that the chain is a renewal
    process: the share of a state is how likely a run gets that far, over the mean length of a
    run. A course that comes back to a state goes round for ever: a geometric series.
    """
    visits: dict[_State, float] = {}
    state, reached = _State(0, 0), 1.0
    while state not in visits:
        visits[state] = reached
        sent = min(k, state.held)
        left = min(state.held + passes, 2 * k + 1) - (sent + 1)
        if left < 0:
            break
        reached *= _survival(acceptance, k, state)[-1]
        state = _State(left, (state.position + sent + 1) % (k + 1))
    else:
        visits = _with_loop(visits, state, reached)
    total = sum(visits.values())
    return {state: each / total for state, each in visits.items()}


def _with_loop(visits: dict[_State, float], start: _State, again: float) -> dict[_State, float]:
    """The visits of a run which comes back to `start` with probability `again`.

    Raised by the series 1 + r + r^2 + ..., r = again / visits[start], from `start` on; with
    r = 1 no run ends, and only the loop is left.
    """
    order = list(visits)
    loop = set(order[order.index(start) :])
    ratio = again / visits[start] if visits[start] else 0.0
    if ratio >= 1.0:
        return {state: visits[state] for state in loop}
    return {state: visits[state] / (1 - ratio if state in loop else 1.0) for state in order}
