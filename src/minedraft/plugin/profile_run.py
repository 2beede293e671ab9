"""The measurement behind `minedraft profile`: every cell of a grid, round by round.

Owns the order and the number of runs; engine and drafter are profile_engine's and
profile_drafter's, points and fits minedraft.profiles'.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from vllm.platforms import current_platform

from minedraft.bench.provenance import Provenance, gather, of_run
from minedraft.errors import MineDraftError
from minedraft.plugin.engine_config import active_options
from minedraft.plugin.placement import count_devices
from minedraft.plugin.profile_drafter import profiled_drafter
from minedraft.plugin.profile_engine import ProfiledEngine, ProfiledPair, profiled_engine
from minedraft.plugin.runtime import preload_openmp
from minedraft.profiles import Cell, PassProfile, Profile, Sample, Samples, to_points
from minedraft.validation import check_int

Say = Callable[[str], None]
_ROUNDS = 2
"""Of all cells, one after the other: a machine that slows down slows all of them."""
_MOST_ROUNDS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """What is measured; each is a rising list without doubles."""

    in_flight: tuple[int, ...]
    draft_tokens: tuple[int, ...]
    context: tuple[int, ...]
    """Tokens of the prompts."""
    repeats: int
    """Samples wanted of each cell."""

    def __post_init__(self) -> None:
        check_int("repeats", self.repeats, 1)

    @property
    def cells(self) -> list[Cell]:
        """All of them; those without drafts first."""
        return [
            Cell(num_requests=requests, num_draft_tokens=k, prompt_tokens=context)
            for k in (0, *self.draft_tokens)
            for context in self.context
            for requests in self.in_flight
        ]

    def num_tokens(self, k: int) -> int:
        """Output of a request in one round of a cell with k drafts.

        One token comes with the prompt, and one step, of up to k + 1 tokens, may come before
        the other prompts are over. Then there must be two steps, of which the first is left
        out, and a round's share of the samples if no draft is accepted.
        """
        share = -(-self.repeats // _ROUNDS)
        return 2 + (k + 1) + max(share, k + 1)

    @property
    def max_model_len(self) -> int:
        """Tokens of the longest request, drafts included."""
        k = self.draft_tokens[-1]
        return self.context[-1] + self.num_tokens(k) + k + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    cells: dict[Cell, Samples]
    prompts: list[Sample]
    """Of the draft model."""
    vllm_config: Any


def measure(pair: ProfiledPair, grid: Grid, command: Sequence[str], say: Say) -> Profile:
    """Start the pair's engine, run the grid, end it, and fit what was seen.

    One engine in mode sequential runs all cells: a request may ask for fewer drafts, or none,
    and target and drafter do not compute at the same time. So all times are of the same devices.

    Raises:
        ConfigError: a flag or the configuration is refused, before anything starts.
        MineDraftError: the engine did not start, or a cell gave no sample.
    """
    preload_openmp()
    started = datetime.now(UTC)
    common = gather(command)
    measured = _run(pair, grid, say)
    provenance = of_run(
        common,
        started=started,
        duration_s=(datetime.now(UTC) - started).total_seconds(),
        versions={},
        devices=[],
    )
    return _profile(pair, measured, provenance)


def _run(pair: ProfiledPair, grid: Grid, say: Say) -> _Measured:
    with tempfile.TemporaryDirectory(prefix="minedraft-profile-") as folder:
        say(f"starting {pair.target}")
        with profiled_engine(pair, Path(folder) / "trace.jsonl") as engine:
            cells = _run_cells(engine, grid, say)
            vllm_config = engine.llm.llm_engine.vllm_config
    return _Measured(
        cells=cells, prompts=_run_prompts(vllm_config, pair, grid, say), vllm_config=vllm_config
    )


def _run_cells(engine: ProfiledEngine, grid: Grid, say: Say) -> dict[Cell, Samples]:
    say("warming up")
    # What a first pass costs, such as kernels that are chosen by size, is no part of the times.
    for cell in (grid.cells[0], grid.cells[-1]):
        engine.run(cell, grid.num_tokens(cell.num_draft_tokens))
    found = {cell: Samples() for cell in grid.cells}
    for number in range(1, _MOST_ROUNDS + 1):
        # Accepted drafts leave fewer steps in a round.
        open_cells = [
            cell
            for cell, seen in found.items()
            if number <= _ROUNDS or len(seen.steps) < grid.repeats
        ]
        for at, cell in enumerate(open_cells, start=1):
            say(f"round {number}, cell {at} of {len(open_cells)}: {_name(cell)}")
            found[cell].extend(engine.run(cell, grid.num_tokens(cell.num_draft_tokens)))
            if not cell.num_draft_tokens:
                # Requests that end with their prompt decode beside nobody else's.
                found[cell].extend(engine.run(cell, 1))
    for cell, seen in found.items():
        if not seen.steps:
            raise MineDraftError(
                f"minedraft: no step of {_name(cell)} held them all with all their drafts; "
                "a KV cache may be too small for them, or the drafter slower than "
                "draft_reply_timeout_s"
            )
    return found


def _run_prompts(vllm_config: Any, pair: ProfiledPair, grid: Grid, say: Say) -> list[Sample]:
    say("starting the drafter alone, for prompts")
    found: list[Sample] = []
    with profiled_drafter(vllm_config, pair.seed) as drafter:
        cells = [cell for cell in grid.cells if not cell.num_draft_tokens]
        for number in range(_ROUNDS + 1):
            for cell in cells:
                if not drafter.takes(cell.num_requests, cell.prompt_tokens):
                    if not number:
                        say(f"no prompts of {_name(cell)}: {drafter.limits}")
                    continue
                say(f"round {number} of {_ROUNDS}: {_name(cell)}")
                seen = drafter.run(cell.num_requests, cell.prompt_tokens)
                # Round 0 warms up.
                found += seen if number else []
    return found


def _profile(pair: ProfiledPair, measured: _Measured, provenance: Provenance) -> Profile:
    cells = measured.cells
    plain = [each for cell, each in cells.items() if not cell.num_draft_tokens]
    drafted = [each for cell, each in cells.items() if cell.num_draft_tokens]
    steps = [each.steps for each in cells.values()]
    prompts = _by_size(sample for each in plain for sample in each.prompts)
    overhead_ms = median(gap for each in plain for gap in each.gaps_ms)
    asked_ms = median(gap for each in drafted for gap in each.gaps_ms)
    config = active_options(measured.vllm_config)
    assert config.drafter is not None
    assert config.drafter.model is not None
    num_target = count_devices(measured.vllm_config, None)["target"]
    num_draft = count_devices(measured.vllm_config, config.drafter)["drafter"]
    return Profile(
        target_model=pair.target,
        draft_model=config.drafter.model,
        target_device=_target_device(num_target),
        draft_device=str(config.drafter.device),
        num_target_devices=num_target,
        # A drafter without cores of its own is one device still.
        num_draft_devices=max(1, num_draft),
        target_dtype=str(measured.vllm_config.model_config.dtype).removeprefix("torch."),
        draft_dtype=config.drafter.dtype,
        overhead_ms=overhead_ms,
        # Both are medians with errors of their own.
        round_trip_ms=max(0.0, asked_ms - overhead_ms),
        target=PassProfile.of(to_points([*steps, *prompts])),
        draft=PassProfile.of(
            to_points([*(each.drafts for each in drafted), *_by_size(measured.prompts)])
        ),
        provenance=provenance,
    )


def _by_size(samples: Iterable[Sample]) -> list[list[Sample]]:
    groups: dict[Sample, list[Sample]] = defaultdict(list)
    for each in samples:
        groups[replace(each, ms=0.0)].append(each)
    return [groups[size] for size in sorted(groups, key=lambda size: size.num_tokens)]


def _target_device(count: int) -> str:
    name = "CPU core" if current_platform.is_cpu() else current_platform.get_device_name()
    return f"{count} x {name}"


def _name(cell: Cell) -> str:
    return (
        f"{cell.num_requests} in flight, k = {cell.num_draft_tokens}, context {cell.prompt_tokens}"
    )
