"""Labs for fuzzed runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fuzzing.plan import EngineSettings, RequestPlan, RunPlan, Sampling


@pytest.fixture(scope="session")
def results() -> Path:
    """Where plans that fail are left: beside those of scripts/fuzz."""
    return Path(__file__).resolve().parents[2] / "results" / "fuzz"


@pytest.fixture(scope="session")
def found_plans() -> Callable[[str], list[Path]]:
    """Shrunk plans that found something, by where they failed: 'toy' or 'real'."""
    folder = Path(__file__).resolve().parent / "found"
    return lambda kind: sorted(folder.glob(f"{kind}-*.json"))


@pytest.fixture(scope="module")
def toy_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    from fuzzing.lab import ToyLab

    return ToyLab(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def small_plan() -> Callable[..., RunPlan]:
    """A plan of plain requests with prompts of these lengths."""

    def make(*lengths: int) -> RunPlan:
        requests = (
            RequestPlan(
                name=f"r{at}", prompt=(7,) * length, sampling=Sampling(max_tokens=10), arrival=at
            )
            for at, length in enumerate(lengths)
        )
        return RunPlan(seed=0, engine=EngineSettings(mode="two-batch"), requests=tuple(requests))

    return make
