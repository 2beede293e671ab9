"""Fixtures for the tests that run vLLM: made-up pairs with low and high acceptance."""

from __future__ import annotations

import pytest

from minedraft.models.made_up import (
    EPSILON_ACCEPTANCE_HIGH,
    EPSILON_ACCEPTANCE_LOW,
    MadeUpPair,
    make_pair,
)
from quick_start import fork_engines


@pytest.fixture(scope="session", autouse=True)
def _quick_start() -> None:
    fork_engines()


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, MadeUpPair]:
    """Made-up pairs with low and high acceptance."""
    folder = tmp_path_factory.mktemp("pairs")
    return {
        "low": make_pair(folder / "low", epsilon=EPSILON_ACCEPTANCE_LOW),
        "high": make_pair(folder / "high", epsilon=EPSILON_ACCEPTANCE_HIGH),
    }
