"""The kernel that spreads sampling parameters over draft tokens."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.vllm


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([4, 4], [3, 3, 3, 3, 1, 1, 1, 1]),
        ([0, 2], [1, 1]),
        ([3, 0], [3, 3, 3]),
        ([0, 0], []),
    ],
)
def test_expand(dtype: str, counts: list[int], expected: list[int]) -> None:
    import torch

    from minedraft.plugin.cpu_kernels import expand

    kind = getattr(torch, dtype)
    output = torch.full((sum(counts),), 77, dtype=kind)
    ends = torch.cumsum(torch.tensor(counts, dtype=torch.int32), 0, dtype=torch.int32)
    expand(output, torch.tensor([3, 0], dtype=kind), ends, 0, 1)
    assert output.tolist() == expected
