"""The wait-free chain against its own two-state form, against coins, and at its ends."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minedraft.errors import ConfigError
from minedraft.theory import Acceptance, Lead, hit_share, lead_of

RATES = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=4).map(
    lambda rates: Acceptance(tuple(rates))
)


def _play(acceptance: Acceptance, k: int, passes: int, steps: int, seed: int) -> Lead:
    """The same rule with coins, token by token."""
    coins = random.Random(seed)
    held = drafts = tokens = plain = position = 0
    for _ in range(steps):
        sent = min(k, held)
        right = 0
        while right <= sent:
            if coins.random() >= acceptance.at((position + right) % (k + 1) + 1):
                break
            right += 1
        drafts += sent
        tokens += min(right, sent) + 1
        plain += sent == 0
        after = min(held + passes, 2 * k + 1) - (sent + 1)
        is_hit = right == sent + 1 and after >= 0
        held, position = (after, position + sent + 1) if is_hit else (0, 0)
    return Lead(drafts / steps, tokens / steps, plain / steps)


@pytest.mark.parametrize("rates", [(0.86,), (0.5,), (0.9, 0.6, 0.3)])
@pytest.mark.parametrize("passes", [0, 1, 2, 3, 5, 9])
def test_chain_agrees_with_coins(rates: tuple[float, ...], passes: int) -> None:
    acceptance, steps = Acceptance(rates), 60_000
    exact, played = lead_of(acceptance, 4, passes), _play(acceptance, 4, passes, steps, seed=3)
    # Runs of hits make neighbours alike: ten standard errors of independent steps.
    assert played.tokens_per_step == pytest.approx(exact.tokens_per_step, abs=0.08)
    assert played.drafts_per_step == pytest.approx(exact.drafts_per_step, abs=0.08)
    assert played.plain_share == pytest.approx(exact.plain_share, abs=0.02)


@given(RATES, st.integers(1, 8), st.integers(0, 8))
def test_enough_passes_leave_two_states(acceptance: Acceptance, k: int, more: int) -> None:
    lead, hits = lead_of(acceptance, k, k + 1 + more), hit_share(acceptance, k)
    drafts = Acceptance(tuple(acceptance.at(each) for each in range(2, k + 2)))
    expected = hits * drafts.expected_tokens(k) + (1 - hits)
    assert lead.drafts_per_step == pytest.approx(k * hits)
    assert lead.tokens_per_step == pytest.approx(expected)
    assert lead.plain_share == pytest.approx(1 - hits)


@given(RATES, st.integers(1, 8), st.integers(0, 20))
def test_a_lead_is_within_its_bounds(acceptance: Acceptance, k: int, passes: int) -> None:
    lead = lead_of(acceptance, k, passes)
    assert 0.0 <= lead.drafts_per_step <= k + 1e-9
    assert 1.0 - 1e-9 <= lead.tokens_per_step <= k + 1 + 1e-9
    assert -1e-9 <= lead.plain_share <= 1.0 + 1e-9


@given(st.integers(1, 8))
def test_a_perfect_drafter_yields_k_and_one_tokens(k: int) -> None:
    assert lead_of(Acceptance((1.0,)), k, k + 1) == Lead(float(k), k + 1.0, 0.0)


def test_a_drafter_without_time_or_luck_yields_plain_decoding() -> None:
    assert lead_of(Acceptance((0.9,)), 4, 0) == Lead(0.0, 1.0, 1.0)
    assert lead_of(Acceptance((0.0,)), 4, 9) == Lead(0.0, 1.0, 1.0)
    # One pass guesses the token that the target is making, never one to verify.
    assert lead_of(Acceptance((1.0,)), 4, 1) == Lead(0.0, 1.0, 1.0)
    assert lead_of(Acceptance((1.0,)), 4, 2).tokens_per_step == 2.0


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ConfigError, match="k = 0"):
        lead_of(Acceptance((0.5,)), 0, 3)
    with pytest.raises(ConfigError, match="passes_per_step"):
        lead_of(Acceptance((0.5,)), 2, -1)
