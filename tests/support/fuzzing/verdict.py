"""What a run gave, and where that differs from plain decoding.

Owns the comparison and its wording; it runs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fuzzing.plan import Life

_LOGPROB_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The output of one request, or of one of its `n`."""

    token_ids: tuple[int, ...]
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    logprobs: tuple[float, ...] | None = None
    """Of the tokens themselves."""
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong with a run."""

    kind: str
    """'difference', 'lost request', 'leak', 'lost drafter' or 'crash'."""
    text: str
    life: Life | None = None
    position: int | None = None
    """The first token that differs."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What every life gave; those in `aborted` were cut off, those in neither never began."""

    outputs: Mapping[Life, Sequence[Completion]] = field(default_factory=dict)
    aborted: frozenset[Life] = frozenset()
    problems: tuple[Problem, ...] = ()
    figures: Mapping[str, int] = field(default_factory=dict)
    """Counts that say whether the run did what it was made for."""


def differences(result: RunResult, wanted: Mapping[Life, Completion]) -> list[Problem]:
    """Every life whose output is not that of plain decoding."""
    found = []
    for life, completions in result.outputs.items():
        is_aborted = life in result.aborted
        if not is_aborted and len(completions) != life.sampling.n:
            text = f"request {life}: {len(completions)} outputs, {life.sampling.n} wanted"
            found.append(Problem(kind="difference", text=text, life=life))
        for got in completions:
            problem = _difference(life, got, wanted[life], is_aborted)
            if problem is not None:
                found.append(problem)
    return found


def _difference(
    life: Life, got: Completion, wanted: Completion, is_aborted: bool
) -> Problem | None:
    if life.sampling.stop and not is_aborted:
        got = _up_to_the_stop(got, wanted)
    expected = wanted.token_ids[: len(got.token_ids)] if is_aborted else wanted.token_ids
    if got.token_ids != expected:
        return _token_difference(life, got, wanted, expected)
    if is_aborted:
        return None
    if (got.finish_reason, got.stop_reason) != (wanted.finish_reason, wanted.stop_reason):
        text = (
            f"request {life}: equal tokens, but it ended by {got.finish_reason!r} "
            f"({got.stop_reason!r}); plain decoding ended by {wanted.finish_reason!r} "
            f"({wanted.stop_reason!r})"
        )
        return Problem(kind="difference", text=text, life=life)
    if got.text != wanted.text:
        text = f"request {life}: equal tokens, but text {got.text!r}, not {wanted.text!r}"
        return Problem(kind="difference", text=text, life=life)
    return _logprob_difference(life, got, wanted)


def _up_to_the_stop(got: Completion, wanted: Completion) -> Completion:
    """Without the tokens after the stop string that came in the same step.

    vLLM looks for stop strings in the text, step by step, and cuts the text alone.
    """
    end = len(wanted.token_ids)
    logprobs = None if got.logprobs is None else got.logprobs[:end]
    return replace(got, token_ids=got.token_ids[:end], logprobs=logprobs)


def _token_difference(
    life: Life, got: Completion, wanted: Completion, expected: Sequence[int]
) -> Problem:
    at = first_difference(got.token_ids, expected)
    text = (
        f"request {life}: output token {at} is {_token(got.token_ids, at)}, plain decoding gives "
        f"{_token(wanted.token_ids, at)} ({len(got.token_ids)} tokens against "
        f"{len(wanted.token_ids)}; ended by {got.finish_reason!r} against "
        f"{wanted.finish_reason!r})"
    )
    return Problem(kind="difference", text=text, life=life, position=at)


def _logprob_difference(life: Life, got: Completion, wanted: Completion) -> Problem | None:
    if got.logprobs is None and wanted.logprobs is None:
        return None
    ours, plain = got.logprobs or (), wanted.logprobs or ()
    pairs = zip(ours, plain, strict=False)
    close = [math.isclose(one, two, abs_tol=_LOGPROB_TOLERANCE) for one, two in pairs]
    if len(ours) == len(plain) and all(close):
        return None
    at = close.index(False) if False in close else len(close)
    text = (
        f"request {life}: equal tokens, but log probability {at} is {_token(ours, at)}, plain "
        f"decoding gives {_token(plain, at)} ({len(ours)} of them against {len(plain)})"
    )
    return Problem(kind="difference", text=text, life=life)


def first_difference(one: Sequence[int], other: Sequence[int]) -> int:
    """The first position at which two sequences differ, or where the shorter one ends."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _token(tokens: Sequence[float], at: int) -> str:
    return str(tokens[at]) if at < len(tokens) else "missing"
