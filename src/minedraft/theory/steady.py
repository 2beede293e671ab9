"""Closed forms of a steady load: what each mode brings with so many requests in flight.

Owns one formula a mode; chains of draft tokens are `acceptance`'s and `lead`'s, sizes of passes
`load`'s. They hold where the same number of requests decodes all the time, with times that do
not vary: arrivals, full KV pools and faults are the simulator's.

With m = in_flight, b(k) = E[tokens] of k drafts, O the time of a step that nothing hides, R the
way to the drafter and back (`round_trip_ms`), t(m) k draft passes of m tokens, of which the first
takes in one more token for each request whose drafts were all accepted, since the last of them was
never fed:

    none         m / (V(m, m) + O)
    sequential   m b(k) / (t(m) + R + V(m, m(k+1)) + O)
    two-batch    m b(k) / max(2t, 2V, t + R + V + O), each of m/2 requests;  from two requests on
    pearl        m b(k) / (t(missed) + R + V(m, m(k+1)) + O)
    wait-free    m E[tokens of a lead] / (V(m, m + drafts) + O)

With prompts, V has their tokens in it, and the drafter's own time for them counts where it
finds no idle time: beside V in sequential, beside the drafts in two-batch, and in the time for
guesses in the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from minedraft.errors import ConfigError
from minedraft.theory.lead import Lead, lead_of
from minedraft.theory.load import Load, Steady
from minedraft.validation import check_int

MAX_DRAFT_TOKENS = 64
"""Beyond it `best_k` does not look."""


class ClosedForm(Protocol):
    """The formula of one mode."""

    def steady(self, load: Load, k: int) -> Steady:
        """What k draft tokens a request bring; k = 0 drafts nothing.

        Raises:
            ConfigError: k is not from 0 to MAX_DRAFT_TOKENS, or the formula's assumptions
                do not hold for this load.
        """
        ...


class NoneForm:
    """Plain decoding; k is not used."""

    def steady(self, load: Load, k: int) -> Steady:
        """See ClosedForm."""
        _check_k(k)
        step_ms = load.step_ms(load.in_flight, 0, load.in_flight)
        return _round(load, step_ms, 1.0, step_ms)


class SequentialForm:
    """Draft for everyone, then verify everyone."""

    def steady(self, load: Load, k: int) -> Steady:
        """See ClosedForm."""
        _check_k(k)
        tokens = load.acceptance.expected_tokens(k)
        draft_ms = load.draft_ms(load.in_flight, k)
        prompts_ms = load.draft_prompts_ms(load.in_flight * tokens) if k else 0.0
        asking_ms = load.round_trip_ms if k else 0.0
        verify_ms = load.step_ms(load.in_flight, load.in_flight * k, load.in_flight * tokens)
        round_ms = draft_ms + asking_ms + max(verify_ms, prompts_ms)
        return _round(load, round_ms, tokens, verify_ms, draft_ms + prompts_ms)


class TwoBatchForm:
    """Verify one half while the other is drafted; a single request is drafted in turn.

    With an odd number the halves differ by one request. A step is queued while the other one
    runs, so that O and R count only where a half's own way round, draft and verify, is the longest.
    """

    def steady(self, load: Load, k: int) -> Steady:
        """See ClosedForm."""
        _check_k(k)
        if load.in_flight == 1 or k == 0:
            return SequentialForm().steady(load, k)
        tokens = load.acceptance.expected_tokens(k)
        larger = (load.in_flight + 1) // 2
        halves = (larger, load.in_flight - larger)
        draft_ms = [load.draft_ms(each, k) for each in halves]
        verify_ms = [load.verify_ms(each, each * k, each * tokens) for each in halves]
        own_ms = max(map(sum, zip(draft_ms, verify_ms, strict=True)))
        own_ms += load.overhead_ms + load.round_trip_ms
        drafter_ms = sum(draft_ms) + load.draft_prompts_ms(load.in_flight * tokens)
        round_ms = max(drafter_ms, sum(verify_ms), own_ms)
        steady = _round(load, round_ms, tokens, sum(verify_ms) / 2, drafter_ms)
        return replace(steady, pass_requests=larger)


class PearlForm:
    """Everyone is verified with k drafts; those who were not guessed right are waited for.

    Holds if a step leaves the drafter time for k + 1 passes, so that a request that hits has
    all its drafts at once. Every step asks, even if nobody missed.
    """

    def steady(self, load: Load, k: int) -> Steady:
        """See ClosedForm."""
        _check_k(k)
        if k == 0:
            return NoneForm().steady(load, 0)
        tokens = load.acceptance.expected_tokens(k)
        step_ms = load.step_ms(load.in_flight, load.in_flight * k, load.in_flight * tokens)
        lead_ms = (k + 1) * _pass_ms(load, load.in_flight)
        lead_ms += load.draft_prompts_ms(load.in_flight * tokens)
        if lead_ms > step_ms:
            raise ConfigError(
                f"minedraft: pearl has no closed form here: {k + 1} draft passes and prompts take "
                f"{lead_ms:.3g} ms and a step {step_ms:.3g} ms; allowed: passes that fit a step"
            )
        missed = 1.0 - load.acceptance.survival(k + 1)
        wait_ms = k * _mean_over_missed(load, missed)
        round_ms = wait_ms + load.round_trip_ms + step_ms
        return _round(load, round_ms, tokens, step_ms, wait_ms + lead_ms)


class WaitFreeForm:
    """Everyone is verified with what is there.

    The drafter's passes in a step are rounded down to whole ones, so that the form is a lower
    bound where they do not fit exactly. Messages take no time in it: nobody waits for them,
    but a long way leaves the drafter less of a step (about 3 % less throughput, simulated with
    a way there and back of a quarter of V).
    """

    def steady(self, load: Load, k: int) -> Steady:
        """See ClosedForm."""
        _check_k(k)
        if k == 0:
            return NoneForm().steady(load, 0)
        passes = 0
        # More passes make for more drafts and so for a longer step: up to the first number
        # of passes that its own step leaves no time to exceed.
        while passes < 2 * k + 1 and self._fits(load, k, passes + 1):
            passes += 1
        lead = lead_of(load.acceptance, k, passes)
        round_ms = _lead_ms(load, lead)
        # Passes beyond k + 1 bring nothing; a drafter that has no time for these never rests.
        busy_ms = (k + 1) * _pass_ms(load, load.in_flight) + self._prompts_ms(load, lead)
        drafter_ms = round_ms if passes < k + 1 else min(round_ms, busy_ms)
        return _round(load, round_ms, lead.tokens_per_step, round_ms, drafter_ms)

    def _fits(self, load: Load, k: int, passes: int) -> bool:
        lead = lead_of(load.acceptance, k, passes)
        work_ms = passes * _pass_ms(load, load.in_flight) + self._prompts_ms(load, lead)
        return work_ms <= _lead_ms(load, lead)

    def _prompts_ms(self, load: Load, lead: Lead) -> float:
        return load.draft_prompts_ms(load.in_flight * lead.tokens_per_step)


CLOSED_FORMS: Mapping[str, ClosedForm] = {
    "none": NoneForm(),
    "sequential": SequentialForm(),
    "two-batch": TwoBatchForm(),
    "pearl": PearlForm(),
    "wait-free": WaitFreeForm(),
}
"""By mode."""


def best_k(form: ClosedForm, load: Load, highest: int = 16) -> tuple[int, Steady]:
    """The k from 1 to `highest` with the most tokens per second, and what it brings.

    A k whose assumptions do not hold is passed over.

    Raises:
        ConfigError: `highest` is out of range, or no k has a closed form.
    """
    check_int("highest", highest, 1, MAX_DRAFT_TOKENS)
    found: list[tuple[int, Steady]] = []
    refused: ConfigError | None = None
    for k in range(1, highest + 1):
        try:
            found.append((k, form.steady(load, k)))
        except ConfigError as error:
            refused = error
    if not found:
        assert refused is not None
        raise refused
    return max(found, key=lambda each: each[1].tokens_per_s)


def _round(
    load: Load, round_ms: float, tokens: float, pass_ms: float, drafter_ms: float = 0.0
) -> Steady:
    if not round_ms > 0:
        raise ConfigError.bad_value("step time in ms", round_ms, "a time above 0")
    return Steady(
        round_ms=round_ms,
        tokens_per_round=tokens,
        in_flight=load.in_flight,
        drafter_ms=drafter_ms,
        pass_ms=pass_ms,
    )


def _lead_ms(load: Load, lead: Lead) -> float:
    n = load.in_flight
    return load.step_ms(n, n * lead.drafts_per_step, n * lead.tokens_per_step)


def _pass_ms(load: Load, num_requests: float) -> float:
    """A pass over one token of each request."""
    return load.times.draft_pass_ms(num_requests, num_requests)


def _mean_over_missed(load: Load, missed: float) -> float:
    """Mean time of a draft pass for those of m requests that missed, each with the same chance."""
    m = load.in_flight
    chances = (_binomial(m, n, missed) for n in range(m + 1))
    return math.fsum(chance * _pass_ms(load, n) for n, chance in enumerate(chances) if n)


def _binomial(m: int, n: int, chance: float) -> float:
    """Probability that n of m happen; by logarithms, since the factors leave a float's range."""
    if chance in (0.0, 1.0):
        return float(n == m * chance)
    ways = math.lgamma(m + 1) - math.lgamma(n + 1) - math.lgamma(m - n + 1)
    return math.exp(ways + n * math.log(chance) + (m - n) * math.log1p(-chance))


def _check_k(k: int) -> None:
    check_int("k", k, 0, MAX_DRAFT_TOKENS)
