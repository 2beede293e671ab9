"""Answers that begin with reasoning give what plain vLLM gives, in fp32.

The grammar of a structured output applies from the end of the reasoning on, which falls at
every place of a run of drafts: the prompts are one answer, cut off at different lengths before
the token that this tokenizer calls the end of reasoning.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import pytest

import minedraft
from engines import draft_options, random_prompts
from minedraft.models.made_up import MadeUpPair
from scenarios import Answer, Params, Scenario, ask, running_llm
from thinking import END, START, marks_that_end, pair_with_marks

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

K = 4
BASES = [[40 + number, 41, 42, 43, 44] for number in range(6)]
OTHERS = random_prompts(6, seed=91, longest=150)
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Rome"]}, "name": {"type": "string", "maxLength": 6}},
    "required": ["city", "name"],
    "additionalProperties": False,
}
CHOICES = ["yes", "no", "perhaps not today"]
GRAMMARS: list[Params] = [
    {"json": SCHEMA},
    {"regex": r"[a-z]{3,9}-\d{4}(x|y)+z"},
    {"choice": CHOICES},
]
#: The two kinds of parsers that vLLM's grammars know: by token ids, and by a state machine.
ENGINES = [("deepseek_r1", "two-batch"), ("deepseek_r1", "wait-free"), ("qwen3", "two-batch")]


@dataclass(frozen=True, slots=True)
class Thinking:
    """A pair with marks, and prompts after which reasoning ends so many tokens later."""

    pair: MadeUpPair
    marks: dict[str, int]
    prompts: dict[int, list[int]]


@pytest.fixture(scope="module")
def thinking(pairs: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Thinking:
    with running_llm(pairs["high"].target) as llm:
        until_eos = {"max_tokens": 80, "ignore_eos": False}
        answers = ask(llm, BASES, [until_eos] * len(BASES))
    found = ((base, each[0].token_ids) for base, each in zip(BASES, answers, strict=True))
    base, answer, marks = next(
        (base, answer, marks)
        for base, answer in found
        if (marks := marks_that_end(answer[:-1], base, after=3 * K)) is not None
    )
    end = answer.index(marks[END])
    pair = pair_with_marks(pairs["high"], tmp_path_factory.mktemp("marks"), marks)
    # The newest token of a prompt is never END, so reasoning goes on in each of them.
    prompts = {end - cut: [*base, *answer[:cut]] for cut in range(end - 3 * K, end + 1)}
    return Thinking(pair, marks, prompts)


def _grammars(thinking: Thinking, **more: Any) -> Scenario:
    """Each prompt with each grammar, and prompts of which most never end their reasoning."""
    prompts = [prompt for prompt in thinking.prompts.values() for _ in GRAMMARS] + OTHERS
    grammars = cycle(GRAMMARS)
    params = [{"structured_outputs": next(grammars), **more} for _ in prompts]
    return Scenario(prompts, params)


def _budgets(thinking: Thinking, **more: Any) -> Scenario:
    """Reasoning that vLLM ends after 0 to k + 2 tokens, if it has not ended itself."""
    started = [[*each, thinking.marks[START], 50] for each in OTHERS[:3]]
    params = [{"thinking_token_budget": budget, **more} for budget in range(K + 3)]
    return Scenario([p for p in started for _ in params], params * len(started))


SCENARIOS = {
    "grammars": lambda thinking: _grammars(thinking),
    "grammars, sampled": lambda thinking: _grammars(thinking, temperature=0.8, top_k=1),
    "budgets": lambda thinking: _budgets(thinking),
    "budgets and grammars": lambda thinking: _budgets(thinking, structured_outputs=GRAMMARS[1]),
}


def _run(llm: Any, scenario: Scenario) -> list[Answer]:
    from vllm.sampling_params import StructuredOutputsParams

    params: list[Params] = []
    for each in scenario.params:
        options = {"ignore_eos": False, "max_tokens": 36, **each}
        if grammar := each.get("structured_outputs"):
            options["structured_outputs"] = StructuredOutputsParams(**grammar)
        params.append(options)
    return [each[0] for each in ask(llm, scenario.prompts, params)]


@pytest.fixture(scope="module")
def by_vllm() -> dict[str, dict[str, list[Answer]]]:
    """Plain vLLM's answers by parser and scenario, filled when first asked for."""
    return {}


@pytest.fixture(scope="module", params=ENGINES, ids=", ".join)
def case(request: pytest.FixtureRequest) -> tuple[str, str]:
    parser, mode = request.param
    return str(parser), str(mode)


@pytest.fixture(scope="module")
def plain(case: tuple[str, str], thinking: Thinking, by_vllm: Any) -> dict[str, list[Answer]]:
    parser = case[0]
    if parser not in by_vllm:
        with running_llm(thinking.pair.target, reasoning_parser=parser) as llm:
            by_vllm[parser] = {name: _run(llm, make(thinking)) for name, make in SCENARIOS.items()}
    return dict(by_vllm[parser])


@pytest.fixture(scope="module")
def llm(
    case: tuple[str, str], thinking: Thinking, plain: Any, tmp_path_factory: Any
) -> Iterator[Any]:
    parser, mode = case
    options = draft_options(thinking.pair, num_speculative_tokens=K, mode=mode)
    arguments = minedraft.engine_args(**options)
    with running_llm(thinking.pair.target, reasoning_parser=parser, **arguments) as llm:
        yield llm


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_equals_plain_vllm(
    llm: Any, plain: dict[str, list[Answer]], thinking: Thinking, scenario: str
) -> None:
    assert _run(llm, SCENARIOS[scenario](thinking)) == plain[scenario]


def test_the_scenarios_are_what_they_say(
    case: tuple[str, str], plain: dict[str, list[Answer]], thinking: Thinking
) -> None:
    """Guards against reasoning that ends elsewhere, and grammars that are not applied after it."""
    end = thinking.marks[END]
    answers = plain["grammars"][: len(thinking.prompts) * len(GRAMMARS)]
    wanted = [left for left in thinking.prompts for _ in GRAMMARS]
    assert [each.token_ids.index(end) for each in answers] == wanted
    after = [each.text.partition(END)[2] for each in answers]
    stopped = [each.finish_reason == "stop" for each in answers]
    assert sum(stopped) > len(answers) // 4
    assert all(text.lstrip()[:1] == "{" for text in after[0::3])
    for text, is_whole in zip(after[0::3], stopped[0::3], strict=True):
        assert not is_whole or json.loads(text, strict=False).keys() == {"city", "name"}
    assert set(after[2::3]) <= set(CHOICES)
    assert any(end not in each.token_ids for each in plain["grammars"])
    budgets = [each.token_ids.index(end) for each in plain["budgets"]]
    assert len(set(budgets)) > K, "budgets do not end the reasoning"
