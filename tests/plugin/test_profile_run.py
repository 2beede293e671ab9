"""The measurement of a profile without an engine: what is left out of it is said."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from minedraft.config import DrafterConfig
from minedraft.plugin import profile_run
from minedraft.plugin.profile_drafter import ProfiledDrafter
from minedraft.plugin.profile_engine import ProfiledPair
from minedraft.plugin.profile_run import Grid, _run_prompts
from minedraft.profiles import Sample

pytestmark = pytest.mark.vllm


class _Drafter(ProfiledDrafter):
    """A drafter of 64 tokens in a pass that takes no time."""

    def __init__(self) -> None:
        connection: Any = SimpleNamespace(hello=SimpleNamespace(max_model_len=1000))
        super().__init__(connection, DrafterConfig(model="D", max_num_batched_tokens=64), 0)

    def run(self, num_requests: int, prompt_tokens: int) -> list[Sample]:
        return [Sample(num_requests, num_requests * prompt_tokens, prompt_tokens, 1.0)]


def test_prompts_that_fit_into_no_pass_are_left_out_and_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextmanager
    def started(vllm_config: Any, seed: int) -> Iterator[ProfiledDrafter]:
        yield _Drafter()

    monkeypatch.setattr(profile_run, "profiled_drafter", started)
    said: list[str] = []
    grid = Grid(in_flight=(1, 2), draft_tokens=(2,), context=(40, 128), repeats=1)
    pair = cast("ProfiledPair", SimpleNamespace(seed=0))
    found = _run_prompts(None, pair, grid, said.append)
    assert {(each.num_requests, each.context) for each in found} == {(1, 40)}
    left_out = [each for each in said if each.startswith("no prompts of ")]
    assert [each.split(":")[0] for each in left_out] == [
        "no prompts of 2 in flight, k = 0, context 40",
        "no prompts of 1 in flight, k = 0, context 128",
        "no prompts of 2 in flight, k = 0, context 128",
    ], "once each"
    assert all("64 tokens (draft_max_num_batched_tokens)" in each for each in left_out)
