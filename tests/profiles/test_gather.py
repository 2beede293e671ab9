"""From traces to samples: held to the simulator, whose devices' times are known exactly."""

from __future__ import annotations

from dataclasses import asdict

import msgspec
import pytest

from minedraft.errors import ConfigError
from minedraft.profiles import Cell, Sample, gather, to_points
from minedraft.trace import StepRecord
from profiles import DRAFT, TARGET
from simulated import run

OVERHEAD_MS, DELAY_MS = 1.5, 0.2


def _steps(cell: Cell, rate: float = 0.7) -> list[StepRecord]:
    """A cell's run, with the messages' time known."""
    _, sink = run(
        mode="sequential" if cell.num_draft_tokens else "none",
        num_speculative_tokens=max(1, cell.num_draft_tokens),
        acceptance=[rate],
        engines=[{"target": asdict(TARGET), "overhead_ms": OVERHEAD_MS}],
        drafters=[{"draft": asdict(DRAFT)}],
        requests={
            "count": cell.num_requests,
            "prompt_tokens": cell.prompt_tokens,
            "output_tokens": 60,
        },
        link={"delay_ms": DELAY_MS},
    )
    return list(sink)


def _cell(requests: int, k: int, context: int = 100) -> Cell:
    return Cell(num_requests=requests, num_draft_tokens=k, prompt_tokens=context)


@pytest.mark.parametrize("k", [0, 1, 4])
@pytest.mark.parametrize("requests", [1, 3])
def test_times_and_sizes_are_those_of_the_devices(requests: int, k: int) -> None:
    cell = _cell(requests, k)
    found = gather(_steps(cell), cell)
    assert len(found.steps) >= 10
    for each in (*found.steps, *found.prompts):
        kv_tokens = each.num_requests * each.context
        known = TARGET.pass_ms(each.num_tokens, each.num_requests, kv_tokens)
        assert each.ms == pytest.approx(known, abs=1e-3)
    assert {each.num_tokens for each in found.steps} == {requests * (k + 1)}
    # Without drafts the first request decodes beside the other prompts.
    alone = sum(each.num_requests for each in found.prompts)
    assert alone == (requests if k else 1)
    assert all(each.num_tokens == each.num_requests * 100 for each in found.prompts)
    assert len(found.drafts) == (len(found.steps) if k else 0)
    for each in found.drafts:
        known = DRAFT.pass_ms(each.num_tokens, requests, requests * each.context)
        assert each.ms == pytest.approx(known, abs=1e-3)
    between_ms = OVERHEAD_MS + (2 * DELAY_MS if k else 0)
    assert found.gaps_ms == pytest.approx([between_ms] * len(found.steps), abs=1e-3)


def test_an_accepted_draft_costs_the_next_one_a_token() -> None:
    for rate, per_pass in ((0.0, 2.0), (1.0, 2 * (1 + 1 / 4))):
        found = gather(_steps(_cell(2, 4), rate), _cell(2, 4))
        assert {each.num_tokens for each in found.drafts} == {per_pass}


def test_steps_of_fewer_requests_or_drafts_do_not_count() -> None:
    steps = _steps(_cell(2, 4))
    assert gather(steps, _cell(3, 4)).steps == []
    assert gather(steps, _cell(2, 3)).steps == []
    assert gather(steps, _cell(2, 0)).steps == []
    # One request is done before the other: what follows is no step of two.
    num_full = sum(each.num_decode_tokens == 10 for each in steps)
    assert len(gather(steps, _cell(2, 4)).steps) == num_full - 1
    assert any(each.num_requests == 1 and not each.num_prefill_requests for each in steps)


def test_chunks_of_prompts_do_not_count() -> None:
    first = next(each for each in _steps(_cell(2, 0)) if each.num_prefill_tokens)
    assert len(gather([first], _cell(2, 0)).prompts) == 1
    chunk = msgspec.structs.replace(first, num_prefill_tokens=150)
    mixed = msgspec.structs.replace(first, num_requests=1)
    assert gather([chunk, mixed], _cell(2, 0)).prompts == []
    assert gather([], _cell(2, 0)).steps == []


def test_points_are_means_of_sizes_and_quartiles_of_times() -> None:
    group = [Sample(2, 2 + each, 100 + each, ms) for each, ms in enumerate((9.0, 1.0, 5.0, 3.0))]
    (found,) = to_points([[], group])
    assert (found.num_requests, found.num_tokens, found.context) == (2, 3.5, 101.5)
    assert (found.low_ms, found.median_ms, found.high_ms) == (2.5, 4.0, 6.0)
    assert found.num_samples == 4
    (alone,) = to_points([[Sample(1, 1, 9, 7.0)]])
    assert (alone.low_ms, alone.median_ms, alone.high_ms, alone.num_samples) == (7.0, 7.0, 7.0, 1)


def test_cells_are_checked() -> None:
    with pytest.raises(ConfigError, match="num_requests = 0"):
        _cell(0, 1)
    with pytest.raises(ConfigError, match="num_draft_tokens = -1"):
        _cell(1, -1)
