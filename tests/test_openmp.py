"""How a process is told of Intel's OpenMP library."""

from __future__ import annotations

from pathlib import Path

import pytest

from minedraft import openmp


@pytest.mark.parametrize(
    ("name", "loaded", "expected"),
    [
        ("libiomp5.so", "", "{}"),
        ("libiomp5.so", "libother.so", "{}:libother.so"),
        ("libiomp5.so", "/lib/libiomp5.so", None),
        ("libiomp5.so", "/lib/libtcmalloc.so:/lib/libgomp-1.so", None),
        ("libiomp5.so", "/lib/libomp.so", None),
        ("lib iomp5.so", "", None),
        ("", "", None),
    ],
)
def test_preload_value(
    name: str,
    loaded: str,
    expected: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = tmp_path / (name or "missing.so")
    if name:
        library.touch()
    monkeypatch.setattr(openmp, "_LIBRARY", library)
    monkeypatch.setenv("LD_PRELOAD", loaded)
    assert openmp.preload_value() == (expected and expected.format(library))
