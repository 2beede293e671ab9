"""What passes between a benchmark and the process that runs one engine for it.

Owns the form of request and answer; neither starts a process nor runs an engine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from minedraft.bench.spec import RunSpec
from minedraft.errors import ConfigError
from minedraft.validation import as_mapping, check_str

OUTPUT = "output"
"""Key beside the run's fields: the file that receives the answer."""


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one run gave."""

    figures: dict[str, float | str | None]
    """Name to value; the unit is in the name."""
    requests: list[dict[str, Any]] = []
    tokens_sha256: str | None = None
    """Of all output tokens: equal if two runs gave the same output."""
    steps_sha256: str | None = None
    """Of the course of steps, without times."""
    acceptance: list[float] = []
    """Share of drafts at each position that were right where all before them were; empty if
    nothing was drafted, or by vLLM's own method."""
    versions: dict[str, str] = {}
    devices: list[str] = []


def encode_request(spec: RunSpec, output: Path) -> str:
    """The JSON that a worker reads: every field of the run, and the file for its answer."""
    return json.dumps({**spec.to_full_mapping(), OUTPUT: str(output)})


def decode_request(text: str | bytes) -> tuple[RunSpec, Path]:
    """The run and the file for its answer.

    Raises:
        ConfigError: names the field, its value and what is allowed.
    """
    try:
        request: Mapping[str, Any] = as_mapping("the request", json.loads(text))
    except ValueError as error:
        raise ConfigError(f"minedraft: the request cannot be read: {error}") from error
    check_str(OUTPUT, request.get(OUTPUT))
    run = {name: value for name, value in request.items() if name != OUTPUT}
    return RunSpec.from_mapping(run), Path(request[OUTPUT])


def decode_outcome(data: bytes) -> RunOutcome:
    """The answer; ValueError if it cannot be read."""
    return msgspec.json.decode(data, type=RunOutcome)
