"""Scenarios of vLLM's own tests of speculative decoding that the other files do not cover.

docs/vllm_scenarios.md has the whole list. Two engines: one that drafts with the target itself
and counts, and one with many drafts and a context that ends before the requests do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import minedraft
from engines import draft_options, random_prompts
from minedraft.trace import read_trace
from scenarios import Answer, Params, ask, running_llm

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

PROMPTS = [each[:64] for each in random_prompts(12, seed=71)]
LIMIT = 128
DRAFT_LIMIT = 80
#: Without a fixed end, so that the text is known beforehand and crosses the drafter's limit.
LETTERS = "a b c d e " * 8


@dataclass(frozen=True, slots=True)
class Case:
    """Arguments for plain vLLM and for minedraft, and minedraft's options."""

    engine: dict[str, Any]
    options: dict[str, Any]
    drafts_with_the_target: bool = False


CASES = {
    "draft model is the target": Case(
        {"logprobs_mode": "processed_logprobs", "disable_log_stats": False},
        {"mode": "two-batch", "num_speculative_tokens": 3},
        drafts_with_the_target=True,
    ),
    "ten drafts, short context": Case(
        {"logprobs_mode": "raw_logits", "max_model_len": LIMIT, "disable_log_stats": False},
        {
            "mode": "sequential",
            "num_speculative_tokens": 10,
            "draft_max_model_len": DRAFT_LIMIT,
        },
    ),
}


@pytest.fixture(scope="module", params=CASES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


Asked = dict[str, list[Answer]]


def _ask_all(llm: Any) -> Asked:
    from vllm.sampling_params import StructuredOutputsParams

    letters = StructuredOutputsParams(regex=LETTERS)
    kinds: dict[str, Params] = {
        "to the end": {"max_tokens": None},
        "logprobs": {"logprobs": 3, "max_tokens": 24},
        "logprobs with a penalty": {"logprobs": 3, "max_tokens": 24, "repetition_penalty": 1.4},
        "letters": {"structured_outputs": letters, "ignore_eos": False, "max_tokens": 120},
    }
    if llm.llm_engine.model_config.max_model_len > LIMIT:
        kinds["to the end"] = {"max_tokens": 90}
    return {
        kind: [each[0] for each in ask(llm, PROMPTS, [params] * len(PROMPTS))]
        for kind, params in kinds.items()
    }


@pytest.fixture(scope="module")
def plain(name: str, pairs: dict[str, Any]) -> Asked:
    with running_llm(pairs["high"].target, **CASES[name].engine) as llm:
        return _ask_all(llm)


@dataclass(frozen=True, slots=True)
class Found:
    """All answers, vLLM's counters of drafts after them, and the trace.

    `greedy` is (proposed, accepted) drafts of the first, plainly greedy requests alone.
    """

    answers: Asked
    counters: dict[str, Any]
    trace: Path
    greedy: tuple[int, int]


@pytest.fixture(scope="module")
def found(
    name: str, plain: Asked, pairs: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Found]:
    case, pair = CASES[name], pairs["high"]
    trace = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    options = draft_options(pair, trace=str(trace), **case.options)
    if case.drafts_with_the_target:
        options["draft_model"] = str(pair.target)
    with running_llm(pair.target, **case.engine, **minedraft.engine_args(**options)) as llm:
        ask(llm, PROMPTS, [{"max_tokens": 90}] * len(PROMPTS))
        greedy = _totals(trace)
        answers = _ask_all(llm)
        counters = {each.name: each for each in llm.get_metrics()}
    yield Found(answers, counters, trace, greedy)


def _totals(trace: Path) -> tuple[int, int]:
    """Proposed and accepted drafts so far."""
    _, steps = read_trace(trace)
    return (
        sum(sum(step.proposed_per_position) for step in steps),
        sum(sum(step.accepted_per_position) for step in steps),
    )


@pytest.mark.parametrize("kind", ["to the end", "logprobs", "logprobs with a penalty", "letters"])
def test_equals_plain_vllm(found: Found, plain: Asked, kind: str) -> None:
    assert found.answers[kind] == plain[kind]
    for ours, theirs in zip(found.answers[kind], plain[kind], strict=True):
        assert len(ours.logprobs) == len(theirs.logprobs)
        pairs = zip(ours.logprobs, theirs.logprobs, strict=True)
        for values, wanted in ((sorted(a.values()), sorted(b.values())) for a, b in pairs):
            assert values == pytest.approx(wanted, abs=1e-3)


def test_the_requests_are_what_they_say(name: str, plain: Asked) -> None:
    """Guards against answers that end before a limit does, and modes that change nothing."""
    assert all(each.finish_reason == "length" for each in plain["to the end"])
    assert {each.text for each in plain["letters"]} >= {LETTERS}
    if name == "ten drafts, short context":
        long = [len(p) + len(a.token_ids) for p, a in zip(PROMPTS, plain["letters"], strict=True)]
        assert max(long) > DRAFT_LIMIT
        return
    values = [
        sorted(chain(*(each.values() for answer in plain[kind] for each in answer.logprobs)))
        for kind in ("logprobs", "logprobs with a penalty")
    ]
    assert values[0] != values[1]


def test_a_draft_model_that_is_the_target_is_always_right(name: str, found: Found) -> None:
    if not CASES[name].drafts_with_the_target:
        pytest.skip("needs the engine that drafts with the target")
    proposed, accepted = found.greedy
    assert proposed > 500
    # The last step of a request may verify more than it has room for.
    assert accepted > 0.95 * proposed


def test_vllm_counts_what_the_trace_counts(found: Found) -> None:
    proposed, accepted = _totals(found.trace)
    counters = found.counters
    assert counters["vllm:spec_decode_num_draft_tokens"].value == proposed
    assert counters["vllm:spec_decode_num_accepted_tokens"].value == accepted
    _, steps = read_trace(found.trace)
    per_position = [
        sum(each) for each in zip(*(s.accepted_per_position for s in steps), strict=True)
    ]
    assert counters["vllm:spec_decode_num_accepted_tokens_per_pos"].values == per_position
