"""Where a model runs: ``cuda:N``, or some cores of the CPU.

Owns the notation; it looks at no hardware.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from minedraft.errors import ConfigError

_PATTERN = re.compile(r"(?P<kind>cuda|cpu)(?::(?P<ids>[0-9]{1,6}(?:[-,][0-9]{1,6})*))?")
_NOTATION = "'cuda:N', 'cpu', 'cpu:N', 'cpu:N-M' or 'cpu:N,M'"
_CORES = re.compile(r"(?a:\d{1,6}(?:-\d{1,6})?)(?:,(?a:\d{1,6}(?:-\d{1,6})?))*")
_MAX_CORE = 4095


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device; `cores` is None for "those that the target does not take"."""

    kind: str
    index: int | None = None
    cores: tuple[int, ...] | None = None

    @classmethod
    def parse(cls, text: object, field: str = "draft_device") -> Device:
        """Read the notation above; ConfigError names `field` and what is allowed."""
        found = _PATTERN.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise ConfigError.bad_value(field, text, _NOTATION)
        kind, ids = found["kind"], found["ids"]
        if kind == "cuda":
            if ids is None or not ids.isdigit():
                raise ConfigError.bad_value(field, text, "one GPU, as in 'cuda:4'")
            return cls(kind="cuda", index=int(ids))
        return cls(kind="cpu", cores=None if ids is None else _parse_cores(ids, field, text))

    def of_replica(self, rank: int, count: int) -> Device:
        """The device of replica `rank` of `count`: the GPU so many further on, or its share of
        the cores."""
        if self.index is not None:
            return replace(self, index=self.index + rank)
        if self.cores is None:
            return self
        return replace(self, cores=share_of_cores(self.cores, rank, count))

    def __str__(self) -> str:
        if self.kind == "cuda":
            return f"cuda:{self.index}"
        return "cpu" if self.cores is None else "cpu:" + ",".join(map(str, self.cores))


def share_of_cores(cores: tuple[int, ...], rank: int, count: int) -> tuple[int, ...]:
    """Cores of one of `count` that share them, in a row and as even as can be; all, if there
    are too few."""
    if len(cores) < count:
        return cores
    return cores[rank * len(cores) // count : (rank + 1) * len(cores) // count]


def parse_cores(text: str, field: str) -> tuple[int, ...]:
    """Cores from '0', '0,2' or '0-3,8', sorted and without doubles; ConfigError if malformed."""
    return _parse_cores(text, field, text)


def _parse_cores(text: str, field: str, value: object) -> tuple[int, ...]:
    if _CORES.fullmatch(text) is None:
        raise ConfigError.bad_value(field, value, "cores as in '0', '0,2' or '0-3'")
    cores: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if low > high or high > _MAX_CORE:
            raise ConfigError.bad_value(field, value, f"core ranges N-M with N <= M <= {_MAX_CORE}")
        cores.update(range(low, high + 1))
    return tuple(sorted(cores))
