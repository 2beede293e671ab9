"""Greedy output in fp32 is the target's own, whatever the mode, load and acceptance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engines import Engine, Run, draft_options, random_prompts, running_engine
from minedraft.trace import read_trace, summarize
from scenarios import running_llm

pytestmark = pytest.mark.vllm

PROMPTS = random_prompts(24, seed=5)
ACCEPTANCE_TOKENS = 180
LENGTHS = [(7 * index) % 60 + 1 for index in range(len(PROMPTS))]


@dataclass(frozen=True, slots=True)
class Reference:
    """Plain decoding by vLLM alone: no scheduler, worker or config of ours."""

    whole: Run
    uneven: Run


# KV pools so small that the target preempts and the drafter cannot hold every request.
_PRESSURE = "two-batch under pressure"
_RACE_UNDER_PRESSURE = "wait-free under pressure"
CASES = [
    ("low", "sequential"),
    ("low", "two-batch"),
    ("low", "wait-free"),
    ("high", "none"),
    ("high", "pearl"),
    ("high", _PRESSURE),
    ("high", _RACE_UNDER_PRESSURE),
]


@pytest.fixture(scope="module")
def references() -> dict[str, Reference]:
    """References by the name of the pair, made when first asked for."""
    return {}


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def case(request: pytest.FixtureRequest) -> tuple[str, str]:
    pair, mode = request.param
    return str(pair), str(mode)


@pytest.fixture(scope="module")
def reference(
    pairs: dict[str, Any], case: tuple[str, str], references: dict[str, Reference]
) -> Reference:
    if case[0] not in references:
        references[case[0]] = _make_reference(pairs[case[0]])
    return references[case[0]]


def _make_reference(pair: Any) -> Reference:
    with running_llm(pair.target) as llm:
        engine = Engine(llm, Path())
        return Reference(engine.run(PROMPTS), engine.run(PROMPTS, max_tokens=LENGTHS))


@pytest.fixture(scope="module")
def engine(
    case: tuple[str, str],
    reference: Reference,
    pairs: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Engine]:
    pair, mode = pairs[case[0]], case[1].split(" ")[0]
    options = {} if mode == "none" else draft_options(pair)
    engine: dict[str, Any] = {}
    if case[1] in (_PRESSURE, _RACE_UNDER_PRESSURE):
        options["draft_kv_cache_gib"], engine = 0.0006, {"num_gpu_blocks_override": 40}
    trace = tmp_path_factory.mktemp("trace") / f"{mode}.jsonl"
    with running_engine(pair.target, trace, engine=engine, mode=mode, **options) as running:
        yield running


def test_all_at_once(engine: Engine, reference: Reference) -> None:
    assert engine.run(PROMPTS) == reference.whole


@pytest.fixture(scope="module")
def accepted_by_vllm(pairs: dict[str, Any]) -> list[float]:
    """Accepted drafts at position 1..k, per draft, by vLLM's in-process method and counters."""
    pair = pairs["low"]
    spec = {"method": "draft_model", "model": str(pair.draft), "num_speculative_tokens": 4}
    with running_llm(pair.target, disable_log_stats=False, speculative_config=spec) as llm:
        Engine(llm, Path()).run(PROMPTS, max_tokens=ACCEPTANCE_TOKENS)
        counters = {each.name: each for each in llm.get_metrics()}
    drafts = counters["vllm:spec_decode_num_drafts"].value
    accepted = counters["vllm:spec_decode_num_accepted_tokens_per_pos"].values
    return [each / drafts for each in accepted]


def test_acceptance_equals_that_of_vllm(
    case: tuple[str, str], engine: Engine, accepted_by_vllm: list[float]
) -> None:
    """A drafter that loses context, or drafts from the wrong position, shows here."""
    if case not in (("low", "sequential"), ("low", "two-batch")):
        pytest.skip("needs k drafts for every request in every step")
    before = len(read_trace(engine.trace)[1])
    engine.run(PROMPTS, max_tokens=ACCEPTANCE_TOKENS)
    header, steps = read_trace(engine.trace)
    summary = summarize(header, steps[before:])
    assert summary.num_drafts > 2000
    assert summary.acceptance_per_position == pytest.approx(accepted_by_vllm, abs=0.01)


@pytest.mark.parametrize("seed", [1])
def test_arriving_one_by_one(engine: Engine, reference: Reference, seed: int) -> None:
    assert engine.run(PROMPTS, seed=seed) == reference.whole


def test_uneven_lengths(engine: Engine, reference: Reference) -> None:
    assert engine.run(PROMPTS, max_tokens=LENGTHS, seed=3) == reference.uneven


def test_aborts_do_not_touch_the_others(engine: Engine, reference: Reference) -> None:
    aborted = range(0, len(PROMPTS), 3)
    got = engine.run(PROMPTS, seed=4, abort=list(aborted))
    for index, tokens in enumerate(got.token_ids):
        if index in aborted:
            assert tokens == []
        else:
            assert tokens == reference.whole.token_ids[index]


def test_one_request_alone(engine: Engine, reference: Reference) -> None:
    assert engine.run(PROMPTS[:1]).token_ids == reference.whole.token_ids[:1]


def test_top_k_of_one_is_greedy(engine: Engine, reference: Reference) -> None:
    """Through the random sampler; steps without drafts once ended vLLM's engine here."""
    sampling = {"temperature": 0.8, "top_k": 1}
    assert engine.run(PROMPTS, seed=5, sampling=sampling) == reference.whole
