"""Medusa heads in running engines: the target's output, and vLLM's own acceptance."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engines import Engine, Run, random_prompts, running_engine
from heads import make_medusa
from minedraft.errors import ConfigError
from minedraft.heads import write_texts
from minedraft.trace import Summary, read_trace, summarize
from scenarios import running_llm

pytestmark = pytest.mark.vllm

PROMPTS = random_prompts(24, seed=4)
K = 3


@pytest.fixture(scope="module")
def target(pairs: dict[str, Any]) -> Path:
    found: Path = pairs["high"].target
    return found


@pytest.fixture(scope="module")
def plain(target: Path) -> Run:
    with running_llm(target) as llm:
        return Engine(llm, Path()).run(PROMPTS)


@pytest.fixture(scope="module")
def medusa(target: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).eval()
    texts = write_texts(model, PROMPTS, num_tokens=60, layers=None, temperature=0.0, seed=1)
    return make_medusa(target, tmp_path_factory.mktemp("heads") / "medusa", list(texts), K)


def _options(head: Path, **more: Any) -> dict[str, Any]:
    return {
        "draft_method": "medusa",
        "draft_model": str(head),
        "num_speculative_tokens": K,
        **more,
    }


@pytest.fixture(scope="module")
def vllms_own(target: Path, medusa: Path, plain: Run) -> list[float]:
    """Accepted over drafted by position, of vLLM's proposer in the target's process."""
    spec = {"method": "medusa", "model": str(medusa), "num_speculative_tokens": K}
    with running_llm(target, speculative_config=spec, disable_log_stats=False) as llm:
        assert Engine(llm, Path()).run(PROMPTS) == plain
        found = {each.name: each for each in llm.get_metrics() if "spec_decode" in each.name}
    drafts = found["vllm:spec_decode_num_drafts"].value
    return [each / drafts for each in found["vllm:spec_decode_num_accepted_tokens_per_pos"].values]


@pytest.fixture(scope="module", params=["sequential", "two-batch", "wait-free"])
def engine(
    request: pytest.FixtureRequest,
    target: Path,
    medusa: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Engine]:
    trace = tmp_path_factory.mktemp("trace") / f"{request.param}.jsonl"
    with running_engine(target, trace, mode=request.param, **_options(medusa)) as running:
        yield running


def _summary(engine: Engine) -> Summary:
    return summarize(*read_trace(engine.trace))


def test_output_is_the_targets(engine: Engine, plain: Run, vllms_own: list[float]) -> None:
    assert engine.run(PROMPTS) == plain
    summary = _summary(engine)
    # A token by chance is one of 512: heads this small know a few, if their states are right.
    assert vllms_own[0] > 0.02
    if summary.mode == "wait-free":
        # A draft loses its first token to the target that did not wait for it.
        assert summary.num_drafts > 0
    else:
        assert summary.num_drafts > 100
        assert summary.acceptance_per_position == pytest.approx(vllms_own, abs=0.003)


def test_output_is_the_targets_when_requests_come_one_by_one(engine: Engine, plain: Run) -> None:
    """The second run of the same prompts, which the target's cache knows."""
    assert engine.run(PROMPTS, seed=3) == plain


def test_aborts(engine: Engine, plain: Run) -> None:
    run = engine.run(PROMPTS, seed=5, abort=range(0, 24, 3))
    kept = [at for at in range(24) if at % 3]
    assert [run.token_ids[at] for at in kept] == [plain.token_ids[at] for at in kept]


def test_a_small_pool_of_the_target(target: Path, medusa: Path, plain: Run, tmp_path: Path) -> None:
    """Requests are preempted and computed again: their rows come twice."""
    with running_engine(
        target,
        tmp_path / "t.jsonl",
        mode="two-batch",
        engine={"num_gpu_blocks_override": 24},
        **_options(medusa, tetris_extra_tokens=1, num_speculative_tokens=1),
    ) as running:
        assert running.run(PROMPTS) == plain
        assert _summary(running).num_accepted_tokens > 0


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [("model_type", "llama", "not a 'llama'"), ("hidden_size", 32, "64 values; these take 32")],
)
def test_what_are_no_heads_for_the_target_is_refused(
    field: str, value: object, says: str, target: Path, medusa: Path, tmp_path: Path
) -> None:
    head = shutil.copytree(medusa, tmp_path / "other")
    config = json.loads((head / "config.json").read_text())
    (head / "config.json").write_text(json.dumps(config | {field: value}))
    with (
        pytest.raises(ConfigError, match=says),
        running_engine(target, tmp_path / "t.jsonl", **_options(head)),
    ):
        pass


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"num_speculative_tokens": K + 1}, f"num_speculative_tokens = {K + 1} .* at most {K}"),
        ({"mode": "pearl"}, "mode = 'pearl'"),
        ({"draft_sample_method": "probabilistic"}, "draft_sample_method = 'probabilistic'"),
        (
            {
                "emulate": {
                    "target": {"fixed_ms": 1.0},
                    "draft": {"fixed_ms": 1.0},
                    "hidden_state_bytes": 8,
                }
            },
            "emulate.hidden_state_bytes = 8 .* at least 256",
        ),
        ({"draft_kv_cache_gib": 0.1}, "draft_kv_cache_gib = 0.1"),
    ],
)
def test_what_medusa_cannot_do_is_refused(
    options: dict[str, Any], says: str, target: Path, medusa: Path, tmp_path: Path
) -> None:
    with (
        pytest.raises(ConfigError, match=says),
        running_engine(target, tmp_path / "t.jsonl", **_options(medusa, **options)),
    ):
        pass
