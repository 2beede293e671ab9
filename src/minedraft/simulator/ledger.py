"""What is kept of requests that are done: their times and lengths, as columns of numbers.

Owns the columns, 40 bytes a request; figures are computed elsewhere.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import overload

from minedraft.bench.metrics import RequestTimes
from minedraft.simulator.request import SimRequest


class Ledger(Sequence[RequestTimes]):
    """Finished requests in the order in which they finished, as benchmarks know them."""

    def __init__(self) -> None:
        self._arrival_ms = array("d")
        self._first_token_ms = array("d")
        self._finish_ms = array("d")
        self._num_prompt_tokens = array("q")
        self._num_output_tokens = array("q")
        self._deliveries: list[list[tuple[float, int]]] = []
        """Of each request, if any were kept."""

    def add(self, request: SimRequest) -> None:
        """Note a request that has all its tokens."""
        assert request.first_token_ms is not None and request.finish_ms is not None
        self._arrival_ms.append(request.arrival_ms)
        self._first_token_ms.append(request.first_token_ms)
        self._finish_ms.append(request.finish_ms)
        self._num_prompt_tokens.append(request.num_prompt_tokens)
        self._num_output_tokens.append(request.num_output_tokens)
        if request.deliveries:
            self._deliveries.append(request.deliveries)

    @property
    def first_arrival_ms(self) -> float:
        """Of the requests that are done."""
        return min(self._arrival_ms)

    @property
    def last_finish_ms(self) -> float:
        """Of the requests that are done."""
        return max(self._finish_ms)

    def __len__(self) -> int:
        return len(self._arrival_ms)

    def __iter__(self) -> Iterator[RequestTimes]:
        return map(self._at, range(len(self)))

    @overload
    def __getitem__(self, at: int) -> RequestTimes: ...

    @overload
    def __getitem__(self, at: slice) -> list[RequestTimes]: ...

    def __getitem__(self, at: int | slice) -> RequestTimes | list[RequestTimes]:
        if isinstance(at, slice):
            return [self._at(each) for each in range(len(self))[at]]
        return self._at(range(len(self))[at])

    def _at(self, at: int) -> RequestTimes:
        deliveries = self._deliveries[at] if self._deliveries else []
        return RequestTimes(
            id=str(at),
            arrival_s=self._arrival_ms[at] / 1e3,
            first_token_s=self._first_token_ms[at] / 1e3,
            finish_s=self._finish_ms[at] / 1e3,
            token_s=[(time_ms / 1e3, count) for time_ms, count in deliveries],
            num_prompt_tokens=self._num_prompt_tokens[at],
            num_output_tokens=self._num_output_tokens[at],
            finish_reason="length",
        )
