"""Owns the tests of counting acceptance; not those of any draft's quality."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from minedraft.models.agreement import Acceptance, greedy_text, measure_acceptance
from minedraft.models.made_up import MadeUpPair

PROMPT = [10, 20, 30, 40]


def test_rates_of_counts() -> None:
    counted = Acceptance(steps=10, accepted_at=(8, 6, 2, 0))
    assert counted.rate == pytest.approx(0.4)
    assert counted.rate_at == pytest.approx((0.8, 0.6, 0.2, 0.0))
    assert counted.tokens_per_step == pytest.approx(2.6)


def test_no_steps_give_zero() -> None:
    counted = Acceptance(steps=0, accepted_at=(0, 0))
    assert (counted.rate, counted.rate_at, counted.tokens_per_step) == (0.0, (0.0, 0.0), 1.0)


def test_a_model_accepts_its_own_text(pair: MadeUpPair) -> None:
    model = AutoModelForCausalLM.from_pretrained(pair.draft)
    text = greedy_text(model, PROMPT, max_tokens=22)
    # One token comes from the prefill, then steps of four drafts and one more.
    assert measure_acceptance(model, [(PROMPT, text)], k=4) == Acceptance(
        steps=4, accepted_at=(4, 4, 4, 4)
    )


def test_the_first_wrong_guess_ends_a_step(pair: MadeUpPair) -> None:
    model = AutoModelForCausalLM.from_pretrained(pair.draft)
    text = greedy_text(model, PROMPT, max_tokens=3)
    wrong = (text[2] + 1) % 512
    counted = measure_acceptance(model, [(PROMPT, [*text[:2], wrong])], k=2)
    assert counted == Acceptance(steps=1, accepted_at=(1, 0))


def test_counts_equal_those_without_a_cache(pair: MadeUpPair) -> None:
    target = AutoModelForCausalLM.from_pretrained(pair.target)
    draft = AutoModelForCausalLM.from_pretrained(pair.draft)
    text = greedy_text(target, PROMPT, max_tokens=48)
    counted = measure_acceptance(draft, [(PROMPT, text)], k=3)
    assert counted == _counted_plainly(draft, [*PROMPT, *text], start=len(PROMPT) + 1, k=3)


def _counted_plainly(draft: torch.nn.Module, ids: list[int], *, start: int, k: int) -> Acceptance:
    steps, accepted_at = 0, [0] * k
    while start + k <= len(ids):
        steps, accepted = steps + 1, 0
        while accepted < k:
            logits = draft(torch.tensor([ids[: start + accepted]])).logits
            if int(logits[0, -1].argmax()) != ids[start + accepted]:
                break
            accepted_at[accepted] += 1
            accepted += 1
        start += accepted + 1
    return Acceptance(steps=steps, accepted_at=tuple(accepted_at))


def test_text_stops_at_the_stop_id(pair: MadeUpPair) -> None:
    model = AutoModelForCausalLM.from_pretrained(pair.target)
    text = greedy_text(model, PROMPT, max_tokens=12)
    stop = text[5]
    assert greedy_text(model, PROMPT, max_tokens=12, stop_id=stop) == text[: text.index(stop) + 1]


def test_no_drafts_are_refused(pair: MadeUpPair) -> None:
    with pytest.raises(ValueError, match="k=0"):
        measure_acceptance(None, [], k=0)
