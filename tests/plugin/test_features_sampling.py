"""Sampling parameters, stops and limits give what plain vLLM gives, in fp32.

Three engines answer the same requests: two-batch, wait-free in the front end's process, and
two-batch with so little room that prompts are chunked, requests are preempted, and long
requests exceed the draft model's context.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import minedraft
from engines import draft_options, random_prompts
from minedraft.models.tokenizer import EOS_ID
from minedraft.trace import read_trace
from scenarios import Answer, MakeScenario, Params, Scenario, ask, running_llm

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

K = 4
LIMIT = 512
DRAFT_LIMIT = 160
ABC = [67, 68, 69]
# Text at the end, so that no answer begins with half a character of its prompt.
BASE = [[*prompt, *ABC] for prompt in random_prompts(10, seed=21, longest=250)]
CRAMPED = "two-batch, cramped"
ENGINES = ["two-batch", "wait-free", CRAMPED]
Base = list[list[Answer]]


def _each(params: Params) -> MakeScenario:
    return lambda base: Scenario(BASE, [params] * len(BASE))


def _max_tokens(base: list[Answer]) -> Scenario:
    counts = range(1, K + 2)
    return Scenario([p for p in BASE for _ in counts], [{"max_tokens": n} for n in counts] * 10)


def _last_position(base: list[Answer]) -> Scenario:
    rng = random.Random(3)
    prompts = [[rng.randrange(3, 500) for _ in range(LIMIT - left)] for left in range(1, 11)]
    return Scenario(prompts, [{"max_tokens": None}] * len(prompts))


def _stop_token_ids(base: list[Answer]) -> Scenario:
    """Stops at every place of a run of drafts: position i for request i."""
    stops = [each.token_ids[6 + index] for index, each in enumerate(base)]
    return Scenario(BASE, [{"stop_token_ids": [stop], "max_tokens": 40} for stop in stops])


def _stop_strings(base: list[Answer]) -> Scenario:
    """Strings that cover the border between two tokens; every other one is kept in the text."""
    params = [
        {"stop": [each.text[9 + i : 12 + i]], "include_stop_str_in_output": bool(i % 2)}
        for i, each in enumerate(base)
    ]
    return Scenario(BASE, params)


def _eos(base: list[Answer]) -> Scenario:
    prompts = random_prompts(32, seed=77, longest=64)
    return Scenario(prompts, [{"ignore_eos": False, "max_tokens": 120}] * len(prompts))


def _bad_words(base: list[Answer]) -> Scenario:
    words = [[each.text[4:6], each.text[10:13]] for each in base]
    return Scenario(BASE, [{"bad_words": [w for w in each if w.strip()]} for each in words])


def _min_tokens(base: list[Answer]) -> Scenario:
    stops = [list(each.token_ids[2:12]) for each in base]
    params = [{"stop_token_ids": s, "min_tokens": 5 + i} for i, s in enumerate(stops)]
    return Scenario(BASE, params)


def _mixed(base: list[Answer]) -> Scenario:
    """Requests of very different kinds in one batch."""
    kinds: list[Params] = [
        {},
        {"repetition_penalty": 1.4},
        {"logprobs": 2},
        {"presence_penalty": 1.5, "frequency_penalty": 0.5},
        {"allowed_token_ids": list(range(10, 90))},
        {"temperature": 0.9, "top_k": 1},
        {"stop_token_ids": list(range(50))},
        {"min_tokens": 20, "ignore_eos": False},
        {"structured_outputs": {"regex": "[a-f]{12}"}, "ignore_eos": False},
        {"max_tokens": 3},
    ]
    return Scenario(BASE, kinds)


SCENARIOS: dict[str, MakeScenario] = {
    "greedy": _each({}),
    "max_tokens of 1 to k + 1": _max_tokens,
    "last position": _last_position,
    "stop token ids": _stop_token_ids,
    "stop strings": _stop_strings,
    "end of sequence": _eos,
    "repetition penalty": _each({"repetition_penalty": 1.3}),
    "presence penalty": _each({"presence_penalty": 1.2}),
    "frequency penalty": _each({"frequency_penalty": 0.8}),
    "bad words": _bad_words,
    "allowed token ids": _each({"allowed_token_ids": list(range(20, 120))}),
    "min tokens": _min_tokens,
    "n of 3": _each({"n": 3, "temperature": 0.8, "top_k": 1}),
    "logprobs": _each({"logprobs": 3, "max_tokens": 32}),
    "many logprobs": _each({"logprobs": 20, "max_tokens": 8}),
    "prompt logprobs": _each({"prompt_logprobs": 2, "logprobs": 0, "max_tokens": 16}),
    "mixed": _mixed,
}

_SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
GRAMMARS: dict[str, Any] = {
    "json": _SCHEMA,
    "regex": r"[a-z]{3,9}-\d{4}(x|y)+z",
    "choice": ["yes", "no", "perhaps not today"],
    "grammar": 'root ::= "SELECT " name " FROM " name\nname ::= [a-z]+',
}
for _kind, _value in GRAMMARS.items():
    SCENARIOS[f"structured {_kind}"] = _each(
        {"structured_outputs": {_kind: _value}, "ignore_eos": False, "max_tokens": 48}
    )


def _with_grammar(params: Params) -> Params:
    from vllm.sampling_params import StructuredOutputsParams

    if "structured_outputs" not in params:
        return params
    grammar = StructuredOutputsParams(**params["structured_outputs"])
    return {**params, "structured_outputs": grammar}


def _run(llm: Any, scenario: Scenario, **more: Any) -> list[list[Answer]]:
    return ask(llm, scenario.prompts, [_with_grammar(each) for each in scenario.params], **more)


@pytest.fixture(scope="module")
def plain(pairs: dict[str, Any]) -> dict[str, tuple[Scenario, list[list[Answer]]]]:
    """Every scenario, as vLLM alone answers it."""
    with running_llm(pairs["high"].target) as llm:
        base = [each[0] for each in _run(llm, SCENARIOS["greedy"]([]))]
        scenarios = {name: make(base) for name, make in SCENARIOS.items()}
        return {name: (each, _run(llm, each)) for name, each in scenarios.items()}


@pytest.fixture(scope="module", params=ENGINES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def trace(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trace") / "trace.jsonl"


@pytest.fixture(scope="module")
def llm(name: str, plain: dict[str, Any], pairs: dict[str, Any], trace: Path) -> Iterator[Any]:
    options = draft_options(pairs["high"], num_speculative_tokens=K, mode=name.split(",")[0])
    engine: dict[str, Any] = {}
    if name == CRAMPED:
        options |= {"draft_max_model_len": DRAFT_LIMIT, "draft_max_num_batched_tokens": 32}
        engine = {
            "num_gpu_blocks_override": 40,
            "max_num_batched_tokens": 64,
            "scheduling_policy": "priority",
            "disable_log_stats": False,
        }
    with pytest.MonkeyPatch.context() as patch:
        if name == "wait-free":
            patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        arguments = minedraft.engine_args(trace=str(trace), **options)
        with running_llm(pairs["high"].target, **engine, **arguments) as llm:
            yield llm


def _close(got: list[dict[int, float]], wanted: list[dict[int, float]]) -> None:
    """The wanted tokens are there, with the same values; ties at the end may fall otherwise."""
    assert len(got) == len(wanted)
    for ours, theirs in zip(got, wanted, strict=True):
        assert sorted(ours.values()) == pytest.approx(sorted(theirs.values()), abs=1e-3)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_equals_plain_vllm(llm: Any, plain: dict[str, Any], scenario: str) -> None:
    asked, wanted = plain[scenario]
    got = _run(llm, asked)
    assert got == wanted
    for ours, theirs in zip(chain(*got), chain(*wanted), strict=True):
        _close(ours.logprobs, theirs.logprobs)
        _close(ours.prompt_logprobs, theirs.prompt_logprobs)


def test_the_scenarios_are_what_they_say(plain: dict[str, Any]) -> None:
    """Guards against requests that no longer stop where they were meant to."""
    answers = {name: list(chain(*found[1])) for name, found in plain.items()}
    for name in ("stop token ids", "stop strings", "min tokens"):
        assert all(each.finish_reason == "stop" for each in answers[name]), name
    ended = [each for each in answers["end of sequence"] if each.finish_reason == "stop"]
    assert len(ended) >= 3
    assert all(each.token_ids[-1] == EOS_ID for each in ended)
    base = answers["greedy"]
    for name in ("repetition penalty", "presence penalty", "frequency penalty", "bad words"):
        assert answers[name] != base, name
    assert {len(each.token_ids) for each in answers["last position"]} == set(range(1, 11))
    for each in answers["structured json"]:
        assert each.finish_reason == "length" or json.loads(each.text, strict=False).keys() == {
            "name",
            "age",
        }
    assert {each.text for each in answers["structured choice"]} <= set(GRAMMARS["choice"])


@pytest.mark.parametrize("params", [{"min_p": 0.1, "temperature": 1.0}, {"logit_bias": {5: 3.0}}])
def test_what_vllm_refuses_with_drafts_is_refused_per_request(
    llm: Any, plain: dict[str, Any], params: Params
) -> None:
    from vllm.exceptions import VLLMValidationError

    with pytest.raises(VLLMValidationError, match="not yet supported with speculative decoding"):
        ask(llm, BASE[:1], [params])
    asked, wanted = plain["greedy"]
    assert _run(llm, asked) == wanted


@pytest.mark.parametrize("seed", [1, 2])
def test_a_seeded_request_alone_repeats_itself(name: str, llm: Any, seed: int) -> None:
    if name == "wait-free":
        pytest.skip("how many drafts are verified, and random numbers drawn, depends on timing")
    params = [{"temperature": 1.0, "seed": seed}]
    first = ask(llm, BASE[1:2], params)
    assert ask(llm, BASE[1:2], params) == first
    assert ask(llm, BASE[1:2], [{"temperature": 1.0, "seed": seed + 10}]) != first


def test_n_sampled_completions_differ(llm: Any) -> None:
    [answers] = ask(llm, BASE[:1], [{"n": 4, "temperature": 1.0, "seed": 3}])
    assert len({each.token_ids for each in answers}) == 4


def test_priorities_and_preemption(name: str, llm: Any, plain: dict[str, Any]) -> None:
    if name != CRAMPED:
        pytest.skip("needs the cramped engine")
    asked, wanted = plain["greedy"]
    before = _metric(llm, "vllm:num_preemptions")
    priorities = [index % 3 for index in range(len(BASE))]
    assert _run(llm, asked, priority=priorities) == wanted
    long = [{"max_tokens": 200}] * len(BASE)
    first = ask(llm, BASE, long, priority=priorities)
    assert ask(llm, BASE, long, priority=priorities[::-1]) == first
    assert _metric(llm, "vllm:num_preemptions") > before, "the pool was not tight"


def test_prefix_cache(name: str, llm: Any, plain: dict[str, Any]) -> None:
    """Hits in the target's cache, after a reset of it, and in the middle of a block."""
    if name != CRAMPED:
        pytest.skip("needs the engine with statistics")
    rng = random.Random(9)
    stem = [rng.randrange(3, 500) for _ in range(100)]
    prompts = [[*stem, *range(5, 6 + index)] for index in range(8)]
    assert llm.reset_prefix_cache()
    cold = ask(llm, prompts, [{}] * 8)
    hits = _metric(llm, "vllm:prefix_cache_hits")
    assert ask(llm, prompts, [{}] * 8) == cold
    assert _metric(llm, "vllm:prefix_cache_hits") >= hits + 8 * 96
    assert llm.reset_prefix_cache()
    assert ask(llm, prompts, [{}] * 8) == cold


def test_only_requests_beyond_the_drafters_context_lose_drafts(
    name: str, llm: Any, trace: Path
) -> None:
    if name != CRAMPED:
        pytest.skip("needs the engine whose draft model has a shorter context")
    short, long = [[7] * 20], [[7] * (DRAFT_LIMIT + 1)]
    assert _drafted(llm, trace, short) > 0
    assert _drafted(llm, trace, long) == 0
    assert _drafted(llm, trace, [*short, *long]) > 0


def _drafted(llm: Any, trace: Path, prompts: list[list[int]]) -> int:
    """Draft tokens that the target verified for these prompts."""
    before = _num_drafted(trace)
    ask(llm, prompts, [{"max_tokens": 24}] * len(prompts))
    return _num_drafted(trace) - before


def _num_drafted(trace: Path) -> int:
    _, steps = read_trace(trace)
    return sum(sum(step.proposed_per_position) for step in steps)


def _metric(llm: Any, name: str) -> int:
    return int(next(each.value for each in llm.get_metrics() if each.name == name))
