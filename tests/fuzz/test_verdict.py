"""What counts as a difference, and how it is put."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzzing.plan import Life, Sampling
from fuzzing.verdict import Completion, RunResult, differences

LIFE = Life(name="r1", number=0, prompt=(1,), sampling=Sampling(max_tokens=4))
PLAIN = Completion(token_ids=(5, 6, 7, 8), finish_reason="length")


def _texts(got: Completion, wanted: Completion = PLAIN, *, aborted: bool = False) -> list[str]:
    result = RunResult(outputs={LIFE: (got,)}, aborted=frozenset({LIFE} if aborted else ()))
    return [problem.text for problem in differences(result, {LIFE: wanted})]


def test_equal_is_equal() -> None:
    assert _texts(PLAIN) == []


def test_the_first_token_that_differs_is_named() -> None:
    (text,) = _texts(replace(PLAIN, token_ids=(5, 6, 9, 9)))
    assert "request r1: output token 2 is 9, plain decoding gives 7" in text


@pytest.mark.parametrize("tokens", [(5, 6, 7), (), (5, 6, 7, 8, 9)])
def test_fewer_or_more_tokens_differ(tokens: tuple[int, ...]) -> None:
    (text,) = _texts(replace(PLAIN, token_ids=tokens))
    assert f"output token {min(len(tokens), 4)} is" in text
    assert "missing" in text


def test_an_aborted_request_may_be_shorter_and_no_more() -> None:
    cut = Completion(token_ids=(5, 6))
    assert _texts(cut, aborted=True) == []
    assert _texts(cut) != []
    assert _texts(Completion(token_ids=(5, 7)), aborted=True) != []
    assert _texts(Completion(token_ids=(5, 6, 7, 8, 9)), aborted=True) != []


def test_the_end_must_be_the_same() -> None:
    (text,) = _texts(replace(PLAIN, finish_reason="stop", stop_reason=8))
    assert "ended by 'stop' (8); plain decoding ended by 'length' (None)" in text


def test_every_one_of_n_is_compared() -> None:
    life = replace(LIFE, sampling=Sampling(max_tokens=4, n=2, temperature=1.0))
    wrong = replace(PLAIN, token_ids=(5, 6, 7, 9))
    for outputs, count in (((PLAIN, PLAIN), 0), ((PLAIN, wrong), 1), ((PLAIN,), 1)):
        assert len(differences(RunResult(outputs={life: outputs}), {life: PLAIN})) == count


def test_log_probabilities_may_differ_by_rounding_only() -> None:
    plain = replace(PLAIN, logprobs=(-0.5, -0.25, -1.0, -2.0))
    assert _texts(replace(plain, logprobs=(-0.5, -0.25, -1.0, -2.00001)), plain) == []
    (text,) = _texts(replace(plain, logprobs=(-0.5, -0.25, -1.1, -2.0)), plain)
    assert "log probability 2 is -1.1" in text
    assert len(_texts(PLAIN, plain)) == 1


def test_tokens_after_a_stop_string_are_vllms_own_way() -> None:
    """The text is cut where it should be, the tokens of that step are all there."""
    life = replace(LIFE, sampling=Sampling(max_tokens=9, stop=("x",)))
    wanted = Completion(token_ids=(5, 6), finish_reason="stop", stop_reason="x", text="a")
    for tokens, text, count in (((5, 6, 7), "a", 0), ((5, 6, 7), "ab", 1), ((5, 7, 7), "a", 1)):
        got = replace(wanted, token_ids=tokens, text=text)
        assert len(differences(RunResult(outputs={life: (got,)}), {life: wanted})) == count
