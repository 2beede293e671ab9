"""Owns the made-up pair that the model tests share; not what is asked of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from minedraft.models.made_up import EPSILON_ACCEPTANCE_HIGH, MadeUpPair, make_pair


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> MadeUpPair:
    folder: Path = tmp_path_factory.mktemp("models") / "pair"
    return make_pair(folder, epsilon=EPSILON_ACCEPTANCE_HIGH)
