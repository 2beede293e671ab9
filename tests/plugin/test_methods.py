"""Drafts without a draft model in running engines: lookup in texts, and drafters of others."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engines import Engine, Run, random_prompts, running_engine
from minedraft.errors import ConfigError
from minedraft.trace import read_trace, summarize
from scenarios import running_llm
from vllm_lookup import lookups

pytestmark = pytest.mark.vllm

PROMPTS = [prompt * 3 for prompt in random_prompts(16, seed=9, longest=60)]
LOOKUP = {"prompt_lookup_min": 1, "prompt_lookup_max": 3}
CASES = [
    ("ngram", "sequential"),
    ("ngram", "two-batch"),
    ("ngram", "pearl"),
    ("ngram", "wait-free"),
    ("suffix", "two-batch"),
    ("strangers:Echo", "two-batch"),
    ("strangers:Echo", "wait-free"),
    ("phrase_book:PhraseBook", "two-batch"),
    ("phrase_book:PhraseBook", "wait-free"),
]
OPTIONS: dict[str, dict[str, Any]] = {"ngram": LOOKUP, "strangers:Echo": {"times": 3}}
K = 4


@pytest.fixture(scope="module")
def plain(pairs: dict[str, Any]) -> Run:
    with running_llm(pairs["high"].target) as llm:
        return Engine(llm, Path()).run(PROMPTS)


@pytest.fixture(scope="module", autouse=True)
def _examples_can_be_imported() -> Iterator[None]:
    """By the drafter's process, forked from this one or not."""
    folder = str(Path(__file__).resolve().parents[2] / "examples" / "drafters")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", folder, prepend=os.pathsep)
        yield


@pytest.fixture(scope="module", params=CASES, ids=" ".join)
def case(request: pytest.FixtureRequest) -> tuple[str, str]:
    method, mode = request.param
    if method == "suffix":
        pytest.importorskip("arctic_inference.suffix_decoding")
    return str(method), str(mode)


@pytest.fixture(scope="module")
def engine(
    case: tuple[str, str], pairs: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    method, mode = case
    options = {"draft_method": method, "draft_options": OPTIONS.get(method, {})}
    trace = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    with running_engine(
        pairs["high"].target, trace, mode=mode, num_speculative_tokens=K, **options
    ) as running:
        yield running


def test_output_is_the_targets(engine: Engine, plain: Run) -> None:
    assert engine.run(PROMPTS) == plain
    assert engine.run(PROMPTS, seed=2) == plain
    header, steps = read_trace(engine.trace)
    summary = summarize(header, steps)
    assert summary.num_drafts > 20
    assert summary.acceptance_per_position[0] > 0


@pytest.mark.parametrize("mode", ["two-batch", "vllm-sd"])
def test_a_benchmark_asks_both_for_the_same(mode: str, tmp_path: Path) -> None:
    from minedraft.bench.spec import RunSpec
    from minedraft.plugin.bench_engine import engine_arguments

    table = {"mode": mode, "target": "T", "dataset": {"name": "jsonl", "path": "p.jsonl"}}
    lookup = {"draft_method": "ngram", "draft_options": LOOKUP, "num_speculative_tokens": K}
    found = engine_arguments(RunSpec.from_mapping({**table, **lookup}), tmp_path / "t.jsonl")
    if mode == "vllm-sd":
        wanted = {"method": "ngram", "num_speculative_tokens": K, **LOOKUP}
        assert found["speculative_config"] == wanted
        with pytest.raises(ConfigError, match="one that vLLM has"):
            strange = {**table, "draft_method": "strangers:Echo"}
            engine_arguments(RunSpec.from_mapping(strange), tmp_path / "t.jsonl")
    else:
        options = found["additional_config"]["minedraft"]
        assert {name: options[name] for name in ("draft_method", "draft_options")} == {
            name: lookup[name] for name in ("draft_method", "draft_options")
        }
        assert "draft_model" not in options


def test_drafts_in_an_engine_are_those_of_vllms_proposer(
    pairs: dict[str, Any], plain: Run, tmp_path: Path
) -> None:
    """Token by token, for every text that was drafted for."""
    notes, trace = tmp_path / "notes.jsonl", tmp_path / "trace.jsonl"
    with running_engine(
        pairs["high"].target,
        trace,
        mode="sequential",
        num_speculative_tokens=K,
        draft_method="strangers:NotingNgram",
        draft_options={"path": str(notes), **LOOKUP},
    ) as running:
        assert running.run(PROMPTS) == plain
    asked = [json.loads(line) for line in notes.read_text().splitlines()]
    whole = [prompt + tokens for prompt, tokens in zip(PROMPTS, plain.token_ids, strict=True)]
    for tokens, _, _ in asked:
        assert any(each[: len(tokens)] == tokens for each in whole), "a text that never was"
    lengths = {len(tokens) for tokens, wanted, _ in asked if wanted}
    assert len(lengths) > len(plain.token_ids[0]) // 2
    theirs = lookups([(tokens, *LOOKUP.values(), wanted) for tokens, wanted, _ in asked])
    assert [draft for _, _, draft in asked] == theirs
    assert sum(map(bool, theirs)) > 100
