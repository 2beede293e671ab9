"""Real models, real prompts, requests arriving one by one: greedy fp32 output is the target's own.

By default SmolLM2-135M-Instruct with its draft, a few prompts. For the long run:
    MINEDRAFT_PROMPTS=64 MINEDRAFT_TOKENS=96 scripts/test -m real_model
and for another pair: MINEDRAFT_TARGET=FOLDER MINEDRAFT_DRAFT=FOLDER.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from engines import Engine, running_engine
from minedraft.prompts import read_prompts

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.real_model]

_ROOT = Path(__file__).parents[2]
_PROMPTS = int(os.environ.get("MINEDRAFT_PROMPTS", "5"))
_TOKENS = int(os.environ.get("MINEDRAFT_TOKENS", "24"))
_LONGEST = 1500
_ENGINE = {"max_model_len": 2048, "kv_cache_memory_bytes": 2**30, "block_size": 128}


@pytest.fixture(scope="module")
def pair() -> tuple[Path, Path]:
    if "MINEDRAFT_TARGET" in os.environ:
        return Path(os.environ["MINEDRAFT_TARGET"]), Path(os.environ["MINEDRAFT_DRAFT"])
    from minedraft.models.smollm2 import ensure_smollm2_pair

    return ensure_smollm2_pair(_ROOT / "models")


@pytest.fixture(scope="module")
def prompts(pair: tuple[Path, Path]) -> list[list[int]]:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(pair[0])
    path = _ROOT / "examples" / "prompts" / "spec_bench_64.jsonl"
    texts = [each.text for each in read_prompts(path, _PROMPTS)]
    if tokenizer.chat_template is not None:
        texts = [
            tokenizer.apply_chat_template(
                [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
            )
            for text in texts
        ]
    ids = [list(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
    return [each[:_LONGEST] for each in ids]


def _run(engine: Engine, prompts: list[list[int]]) -> list[list[int]]:
    run = engine.run(prompts, max_tokens=_TOKENS, seed=1, sampling={"ignore_eos": False})
    return run.token_ids


@pytest.fixture(scope="module")
def expected(
    pair: tuple[Path, Path], prompts: list[list[int]], tmp_path_factory: pytest.TempPathFactory
) -> list[list[int]]:
    trace = tmp_path_factory.mktemp("trace") / "none.jsonl"
    with running_engine(pair[0], trace, engine=_ENGINE, mode="none") as engine:
        return _run(engine, prompts)


@pytest.mark.parametrize("mode", ["sequential", "two-batch", "wait-free"])
def test_output_is_the_targets_own(
    mode: str,
    pair: tuple[Path, Path],
    prompts: list[list[int]],
    expected: list[list[int]],
    tmp_path: Path,
) -> None:
    options = {"draft_model": str(pair[1]), "draft_dtype": "float32", "num_speculative_tokens": 4}
    trace = tmp_path / "trace.jsonl"
    with running_engine(pair[0], trace, engine=_ENGINE, mode=mode, **options) as engine:
        got = _run(engine, prompts)
    summary = engine.summary()
    print(mode, summary)
    assert got == expected
    assert summary.num_accepted_tokens > 0
    assert summary.num_output_tokens == sum(map(len, got)), "the trace is not whole"
