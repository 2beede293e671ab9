"""Drawn drafts in a running engine: exact in distribution, and accepted more often.

For the long run: MINEDRAFT_SAMPLES=50000 scripts/test tests/plugin/test_sampled_drafts.py
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engines import Engine, draft_options, random_prompts, running_engine

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

SAMPLES = int(os.environ.get("MINEDRAFT_SAMPLES", "1500"))
ALPHA = 0.001
TOP_K = 3
LENGTH = 3
PROMPTS = random_prompts(2, seed=8, longest=33)
TEMPERATURES = (0.7, 1.0)
#: What one engine is asked for in turn: drafts per step and request (the engine's own is 4).
LIMITS = (1, 4)


@pytest.fixture(scope="module", params=["greedy", "probabilistic"])
def engine(
    request: pytest.FixtureRequest,
    pairs: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Engine]:
    trace = tmp_path_factory.mktemp("trace") / f"{request.param}.jsonl"
    options = draft_options(pairs["high"], draft_sample_method=request.param)
    many = {"max_num_seqs": 64}
    with running_engine(pairs["high"].target, trace, engine=many, **options) as running:
        yield running


@pytest.fixture(scope="module")
def expected(pairs: dict[str, Any]) -> list[dict[tuple[int, ...], np.ndarray[Any, Any]]]:
    """For each prompt: the target's logits after the prompt and each likely continuation."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(pairs["high"].target, dtype=torch.float32)
    found: list[dict[tuple[int, ...], np.ndarray[Any, Any]]] = []
    for prompt in PROMPTS:
        logits: dict[tuple[int, ...], np.ndarray[Any, Any]] = {}
        level: list[tuple[int, ...]] = [()]
        for _ in range(LENGTH):
            for head in level:
                with torch.no_grad():
                    output = model(torch.tensor([[*prompt, *head]])).logits[0, -1]
                logits[head] = output.to(torch.float64).numpy()
            level = [
                (*head, int(token)) for head in level for token in np.argsort(-logits[head])[:TOP_K]
            ]
        found.append(logits)
    return found


def _probability(
    tokens: tuple[int, ...], logits: dict[tuple[int, ...], np.ndarray[Any, Any]], temperature: float
) -> float:
    total = 1.0
    for at, token in enumerate(tokens):
        row = logits[tokens[:at]]
        top = np.argsort(-row)[:TOP_K]
        weights = np.exp((row[top] - row[top[0]]) / temperature)
        total *= dict(zip(top.tolist(), weights / weights.sum(), strict=True))[token]
    return total


def _cells(logits: dict[tuple[int, ...], Any], temperature: float) -> dict[tuple[int, ...], float]:
    cells: dict[tuple[int, ...], float] = {}
    heads: list[tuple[int, ...]] = [()]
    for _ in range(LENGTH):
        heads = [(*head, int(token)) for head, token in product(heads, range(TOP_K))]
    for ranks in heads:
        tokens: tuple[int, ...] = ()
        for rank in ranks:
            tokens = (*tokens, int(np.argsort(-logits[tokens])[rank]))
        cells[tokens] = _probability(tokens, logits, temperature)
    return cells


@pytest.mark.parametrize("limit", LIMITS)
def test_output_has_the_targets_distribution(
    engine: Engine, expected: list[dict[tuple[int, ...], Any]], limit: int
) -> None:
    """Two prompts and two temperatures share every step, so that rows of all kinds mix."""
    from scipy.stats import chisquare
    from vllm import SamplingParams

    kinds = list(product(range(len(PROMPTS)), TEMPERATURES))
    params = {
        temperature: SamplingParams(
            temperature=temperature,
            top_k=TOP_K,
            max_tokens=LENGTH,
            ignore_eos=True,
            extra_args={"minedraft_num_speculative_tokens": limit},
        )
        for temperature in TEMPERATURES
    }
    outputs = engine.llm.generate(
        [{"prompt_token_ids": PROMPTS[prompt]} for prompt, _ in kinds] * SAMPLES,
        [params[temperature] for _, temperature in kinds] * SAMPLES,
        use_tqdm=False,
    )
    for at, (prompt, temperature) in enumerate(kinds):
        cells = _cells(expected[prompt], temperature)
        counts = dict.fromkeys(cells, 0)
        for output in outputs[at :: len(kinds)]:
            counts[tuple(output.outputs[0].token_ids)] += 1
        observed, wanted = np.array(list(counts.values())), np.array(list(cells.values())) * SAMPLES
        small = wanted < 5
        observed = np.append(observed[~small], observed[small].sum())
        wanted = np.append(wanted[~small], wanted[small].sum())
        if wanted[-1] < 5:
            observed[-2] += observed[-1]
            wanted[-2] += wanted[-1]
            observed, wanted = observed[:-1], wanted[:-1]
        p_value = chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue
        assert p_value > ALPHA, f"prompt {prompt}, temperature {temperature}: p = {p_value}"


def _acceptance(pair: Any, trace: Path, method: str) -> float:
    options = draft_options(pair, draft_sample_method=method, mode="two-batch")
    with running_engine(pair.target, trace, **options) as engine:
        engine.run(
            random_prompts(16, seed=3), max_tokens=150, sampling={"temperature": 1.0, "seed": 7}
        )
    rate = engine.summary().acceptance_rate
    assert rate is not None
    return rate


def test_drawn_drafts_are_accepted_more_often(pairs: dict[str, Any], tmp_path: Path) -> None:
    rates = {
        method: _acceptance(pairs["high"], tmp_path / f"{method}.jsonl", method)
        for method in ("greedy", "probabilistic")
    }
    print(f"accepted at temperature 1: {rates}")
    assert rates["probabilistic"] > rates["greedy"]
