"""Targets and drafters of other kinds than the plain pair: what they answer is the target's own.

One plain engine serves as reference for adapters, embedded prompts, and a draft model with a larger
vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import minedraft
from engines import draft_options, random_prompts
from minedraft.trace import read_trace
from scenarios import Answer, ask, running_llm
from variants import padded_vocabulary, random_adapter

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

PROMPTS = random_prompts(10, seed=41, longest=200)
EXTRAS: dict[str, Any] = {
    "enable_lora": True,
    "max_lora_rank": 8,
    "max_loras": 2,
    "enable_prompt_embeds": True,
}
Answers = list[list[Answer]]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the same engine answers with and without adapters and embedded prompts."""

    bare: Answers
    adapted: Answers
    embedded: Answers


@pytest.fixture(scope="module")
def adapters(pairs: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    from vllm.lora.request import LoRARequest

    folder = tmp_path_factory.mktemp("adapters")
    target = pairs["high"].target
    paths = [random_adapter(target, folder / f"adapter{seed}", seed=seed) for seed in (1, 2)]
    return [LoRARequest(path.name, index + 1, str(path)) for index, path in enumerate(paths)]


def _embedded(target: Path, prompts: list[list[int]]) -> list[Any]:
    """Every other prompt as the embeddings of its tokens."""
    import torch
    from safetensors.torch import load_file

    table = load_file(target / "model.safetensors")["model.embed_tokens.weight"]
    return [
        {"prompt_embeds": table[torch.tensor(prompt)]} if index % 2 else prompt
        for index, prompt in enumerate(prompts)
    ]


def _ask_all(llm: Any, target: Path, adapters: list[Any]) -> Asked:
    params: list[dict[str, Any]] = [{}] * len(PROMPTS)
    # Each with one: vLLM 0.32 for CPUs adapts requests without adapter that stand beside others.
    chosen = [adapters[index % 2] for index in range(len(PROMPTS))]
    return Asked(
        ask(llm, PROMPTS, params),
        ask(llm, PROMPTS, params, lora_request=chosen),
        ask(llm, _embedded(target, PROMPTS), params),
    )


@pytest.fixture(scope="module")
def plain(pairs: dict[str, Any], adapters: list[Any]) -> Asked:
    target = pairs["high"].target
    with running_llm(target, **EXTRAS) as llm:
        return _ask_all(llm, target, adapters)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trace") / "trace.jsonl"


@pytest.fixture(scope="module")
def asked(
    plain: Asked,
    pairs: dict[str, Any],
    adapters: list[Any],
    trace: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Asked]:
    """Two batches, and a draft model that guesses ids which the target does not have."""
    target = pairs["high"].target
    draft = padded_vocabulary(pairs["high"].draft, tmp_path_factory.mktemp("draft") / "padded", 64)
    options = draft_options(pairs["high"], draft_model=str(draft), trace=str(trace))
    with running_llm(target, **EXTRAS, **minedraft.engine_args(**options)) as llm:
        yield _ask_all(llm, target, adapters)


def test_a_drafter_with_a_padded_vocabulary(asked: Asked, plain: Asked, trace: Path) -> None:
    assert asked.bare == plain.bare
    _, steps = read_trace(trace)
    assert sum(sum(each.accepted_per_position) for each in steps) > 100
    assert any(each.proposed_per_position[-1] < each.proposed_per_position[0] for each in steps), (
        "no draft was cut at an id that the target does not have"
    )


def test_adapters_on_the_target_and_none_on_the_drafter(asked: Asked, plain: Asked) -> None:
    assert asked.adapted == plain.adapted
    for adapted, bare in zip(plain.adapted, plain.bare, strict=True):
        assert adapted != bare


def test_prompts_given_as_embeddings(asked: Asked, plain: Asked) -> None:
    assert [each[0].token_ids for each in asked.embedded] == [
        each[0].token_ids for each in plain.embedded
    ]


def test_a_target_on_two_workers(plain: Asked, pairs: dict[str, Any], tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    options = draft_options(pairs["high"], trace=str(trace))
    arguments = minedraft.engine_args(**options)
    with running_llm(pairs["high"].target, tensor_parallel_size=2, **arguments) as llm:
        assert ask(llm, PROMPTS, [{}] * len(PROMPTS)) == plain.bare
    _, steps = read_trace(trace)
    assert sum(sum(each.accepted_per_position) for each in steps) > 100
