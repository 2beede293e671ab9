"""EAGLE heads in running engines: the target's output, and vLLM's own acceptance."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engines import Engine, Run, random_prompts, running_engine
from heads import make_eagle, make_eagle3
from minedraft.errors import ConfigError
from minedraft.trace import Summary, read_trace, summarize
from processes import MARK, marked
from quick_start import spawned_engines
from scenarios import running_llm

pytestmark = pytest.mark.vllm

PROMPTS = random_prompts(24, seed=4)
K = 4


@pytest.fixture(scope="module")
def plain(pairs: dict[str, Any]) -> Run:
    with running_llm(pairs["high"].target) as llm:
        return Engine(llm, Path()).run(PROMPTS)


@pytest.fixture(scope="module")
def eagle(pairs: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_eagle(pairs["high"].target, tmp_path_factory.mktemp("heads") / "eagle")


def _options(head: Path, **more: Any) -> dict[str, Any]:
    return {
        "draft_method": "eagle",
        "draft_model": str(head),
        "draft_block_size": 32,
        "draft_kv_cache_gib": 0.1,
        "num_speculative_tokens": K,
        **more,
    }


def _summary(engine: Engine) -> Summary:
    return summarize(*read_trace(engine.trace))


@pytest.fixture(scope="module")
def vllms_own(pairs: dict[str, Any], eagle: Path, plain: Run) -> list[float]:
    return _vllms_own(pairs["high"].target, eagle, "eagle", plain)


def _vllms_own(target: Path, head: Path, method: str, plain: Run) -> list[float]:
    """Accepted over drafted by position, of vLLM's drafter in the target's process."""
    spec = {"method": method, "model": str(head), "num_speculative_tokens": K}
    with running_llm(target, speculative_config=spec, disable_log_stats=False) as llm:
        assert Engine(llm, Path()).run(PROMPTS) == plain
        found = {each.name: each for each in llm.get_metrics() if "spec_decode" in each.name}
    drafts = found["vllm:spec_decode_num_drafts"].value
    return [each / drafts for each in found["vllm:spec_decode_num_accepted_tokens_per_pos"].values]


@pytest.fixture(scope="module", params=["sequential", "two-batch", "pearl", "wait-free"])
def engine(
    request: pytest.FixtureRequest,
    pairs: dict[str, Any],
    eagle: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Engine]:
    trace = tmp_path_factory.mktemp("trace") / f"{request.param}.jsonl"
    with running_engine(
        pairs["high"].target, trace, mode=request.param, **_options(eagle)
    ) as running:
        yield running


def test_output_is_the_targets(engine: Engine, plain: Run, vllms_own: list[float]) -> None:
    assert engine.run(PROMPTS) == plain
    summary = _summary(engine)
    assert summary.num_drafts > 100
    if summary.mode in ("sequential", "two-batch"):
        # One wrong hidden state lowers it: see what a tenth of one does to the guesses.
        assert summary.acceptance_per_position == pytest.approx(vllms_own, abs=0.01)
    else:
        # Guesses that run ahead of the target continue from the head's own states.
        assert summary.acceptance_per_position[0] > 0.5 * vllms_own[0]


@pytest.fixture(scope="module")
def eagle3(pairs: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    # All but a few of the tokens, so that places in its vocabulary are not the target's.
    draft_ids = torch.tensor([each for each in range(512) if each % 20])
    folder = tmp_path_factory.mktemp("heads") / "eagle3"
    return make_eagle3(pairs["high"].target, folder, draft_ids)


def test_eagle3_has_the_acceptance_that_it_has_inside_vllm(
    pairs: dict[str, Any], eagle3: Path, plain: Run, tmp_path: Path
) -> None:
    own = _vllms_own(pairs["high"].target, eagle3, "eagle3", plain)
    with running_engine(
        pairs["high"].target,
        tmp_path / "t.jsonl",
        mode="two-batch",
        **_options(eagle3, draft_method="eagle3"),
    ) as running:
        assert running.run(PROMPTS) == plain
        assert _summary(running).acceptance_per_position == pytest.approx(own, abs=0.01)
    assert own[0] > 0.03


def test_output_is_the_targets_when_requests_come_one_by_one(engine: Engine, plain: Run) -> None:
    """The second run of the same prompts, which both caches know."""
    assert engine.run(PROMPTS, seed=3) == plain


def test_aborts(engine: Engine, plain: Run) -> None:
    run = engine.run(PROMPTS, seed=5, abort=range(0, 24, 3))
    kept = [at for at in range(24) if at % 3]
    assert [run.token_ids[at] for at in kept] == [plain.token_ids[at] for at in kept]


def test_a_drafter_that_was_killed_drafts_again(
    pairs: dict[str, Any], eagle: Path, plain: Run, tmp_path: Path
) -> None:
    """It has no hidden state of what came before, and goes on without."""
    mark = f"heads-{os.getpid()}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARK, mark)
        trace, target = tmp_path / "t.jsonl", pairs["high"].target
        with (
            spawned_engines(),
            running_engine(target, trace, mode="two-batch", **_options(eagle)) as running,
        ):
            assert running.run(PROMPTS[:8]) == _part(plain, 8)
            (pid,) = [pid for pid, name in marked(mark).items() if "drafter_main" in name]
            os.kill(pid, signal.SIGKILL)
            time.sleep(0.2)
            deadline = time.monotonic() + 120
            while time.monotonic() < deadline:
                assert running.run(PROMPTS) == plain
                steps = read_trace(running.trace)[1]
                if any(step.drafter_losses and sum(step.accepted_per_position) for step in steps):
                    return
    pytest.fail("the drafter did not come back")


def test_rows_that_have_no_room_are_missed_and_no_more(
    pairs: dict[str, Any], eagle: Path, plain: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from minedraft.plugin import head_rows

    monkeypatch.setattr(head_rows, "_MOST_BYTES", 16 * 1024)  # of 64 rows
    monkeypatch.setattr(head_rows.RowSender, "_note_dropped", _note_in(tmp_path / "dropped"))
    with running_engine(
        pairs["high"].target, tmp_path / "t.jsonl", mode="two-batch", **_options(eagle)
    ) as running:
        assert running.run(PROMPTS) == plain
        assert _summary(running).num_accepted_tokens > 0
    assert int((tmp_path / "dropped").read_text()) > 0


def _note_in(path: Path) -> Any:
    def note(sender: Any) -> None:
        path.write_text(str(sender._writer.num_dropped))

    return note


def test_a_head_that_knows_fewer_positions_than_its_target(
    pairs: dict[str, Any], eagle: Path, plain: Run, tmp_path: Path
) -> None:
    head = shutil.copytree(eagle, tmp_path / "short")
    config = json.loads((head / "config.json").read_text())
    (head / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 64}))
    with running_engine(
        pairs["high"].target, tmp_path / "t.jsonl", mode="two-batch", **_options(head)
    ) as running:
        assert running.run(PROMPTS) == plain
        summary = _summary(running)
    assert summary.num_accepted_tokens > 0
    assert summary.drafter_losses == 0


@pytest.mark.parametrize("chunk", [48, 512])
def test_acceptance_does_not_suffer_from_caches_and_chunks(
    chunk: int, pairs: dict[str, Any], eagle: Path, tmp_path: Path
) -> None:
    """The second time the target finds the prompts in its cache and gives no states for them."""
    prompts = [[*prompt, *prompt[:3]] for prompt in random_prompts(8, seed=8, longest=200)]
    rates = []
    with running_engine(
        pairs["high"].target,
        tmp_path / "t.jsonl",
        mode="two-batch",
        engine={"max_num_batched_tokens": chunk},
        **_options(eagle),
    ) as running:
        first = running.run(prompts)
        drafts = _summary(running)
        rates.append(drafts.num_accepted_tokens / drafts.num_drafts)
        assert running.run(prompts) == first
        both = _summary(running)
        rates.append(
            (both.num_accepted_tokens - drafts.num_accepted_tokens)
            / (both.num_drafts - drafts.num_drafts)
        )
    assert rates[1] == pytest.approx(rates[0], rel=0.1)


def test_a_small_pool_of_the_target(
    pairs: dict[str, Any], eagle: Path, plain: Run, tmp_path: Path
) -> None:
    """Requests are preempted and computed again: their rows come twice."""
    with running_engine(
        pairs["high"].target,
        tmp_path / "t.jsonl",
        mode="two-batch",
        engine={"num_gpu_blocks_override": 24},
        **_options(eagle),
    ) as running:
        assert running.run(PROMPTS) == plain


def test_a_small_pool_of_the_drafter(
    pairs: dict[str, Any], eagle: Path, plain: Run, tmp_path: Path
) -> None:
    with running_engine(
        pairs["high"].target,
        tmp_path / "t.jsonl",
        mode="wait-free",
        **_options(eagle, draft_kv_cache_gib=0.0006),
    ) as running:
        assert running.run(PROMPTS) == plain
        assert _summary(running).num_accepted_tokens > 0


def test_rows_of_an_emulated_target(
    pairs: dict[str, Any], eagle: Path, plain: Run, tmp_path: Path
) -> None:
    """As long as those of the target that is not there; the values in them are the real one's."""
    emulate = {
        "target": {"fixed_ms": 1.0},
        "draft": {"fixed_ms": 0.1},
        "hidden_state_bytes": 16 * 1024,
    }
    with running_engine(
        pairs["high"].target,
        tmp_path / "t.jsonl",
        mode="sequential",
        **_options(eagle, emulate=emulate),
    ) as running:
        assert running.run(PROMPTS) == plain
        summary = _summary(running)
    assert summary.num_accepted_tokens > 0
    assert summary.hidden_state_bytes is not None
    assert summary.hidden_state_bytes >= 16 * 1024
    assert summary.hidden_state_share is not None
    assert 0 < summary.hidden_state_share < 1


def test_what_is_no_head_is_refused(pairs: dict[str, Any], tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match="draft_method 'eagle'"),
        running_engine(
            pairs["high"].target, tmp_path / "t.jsonl", **_options(pairs["high"].target.parent)
        ),
    ):
        pass


def _part(run: Run, count: int) -> Run:
    return Run(run.token_ids[:count], run.finish_reasons[:count])
