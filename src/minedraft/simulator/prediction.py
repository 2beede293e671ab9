"""The runs of a benchmark, simulated, beside what was measured of them.

Owns which scenario stands for a run, and the one constant that is fitted: the target's overhead
of a step, so that plain decoding comes out as measured. Runs of the other modes are predicted.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Protocol

from minedraft.bench.load import LoadSpec
from minedraft.bench.results import Result
from minedraft.bench.spec import MODES as BENCH_MODES
from minedraft.bench.study import Setting
from minedraft.config import MODES
from minedraft.emulation import Emulation, PassTimes
from minedraft.errors import ConfigError
from minedraft.profiles import Profile
from minedraft.simulator.link import LinkModel
from minedraft.simulator.run import simulate
from minedraft.simulator.scenario import (
    DrafterGroup,
    EngineGroup,
    Lengths,
    RequestModel,
    Scenario,
)
from minedraft.theory import Acceptance

FIGURE = "output_tokens_per_s"
"""What is predicted: output tokens over the makespan, prompts included."""
_PLAIN = "none"
_NUM_HALVINGS = 40
_NUM_SEEDS = 9
_TIE = 0.01
_LOADS = ("offline", "closed-loop", "trace")
_MOST_OVERHEAD_MS = 1e3
_BATCHED_TOKENS = 4096
"""vLLM's own limit of a step on a CPU, for the class that benchmarks start."""
_BATCHED = "max_num_batched_tokens"
_OF_A_MODE = ("mode", "draft", "num_speculative_tokens", "draft_device", "tetris", "repeat")


class PassModels(Protocol):
    """Where the times of a run's passes come from."""

    def models(self, spec_emulate: dict[str, Any] | None) -> tuple[PassTimes, PassTimes]:
        """Those of target and draft model.

        Raises:
            ConfigError: the times of such a run are not known.
        """
        ...

    @property
    def link(self) -> LinkModel:
        """The way between engine and drafter."""
        ...


class EmulatedModels:
    """The latency models that the run itself was emulated with."""

    link = LinkModel()

    def models(self, spec_emulate: dict[str, Any] | None) -> tuple[PassTimes, PassTimes]:
        """See PassModels."""
        if spec_emulate is None:
            raise ConfigError("minedraft: a run with real models needs --profile")
        emulation = Emulation.from_mapping(spec_emulate)
        return emulation.target, emulation.draft


@dataclass(frozen=True, slots=True)
class ProfiledModels:
    """The fits of a profile; emulated runs keep their own models."""

    profile: Profile

    @property
    def link(self) -> LinkModel:
        """See PassModels."""
        return LinkModel(delay_ms=self.profile.round_trip_ms / 2)

    def models(self, spec_emulate: dict[str, Any] | None) -> tuple[PassTimes, PassTimes]:
        """See PassModels."""
        if spec_emulate is not None:
            return EmulatedModels().models(spec_emulate)
        return self.profile.target.fit, self.profile.draft.fit


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One setting, in output tokens per second."""

    setting: Setting
    measured: float
    """Median of the repeats."""
    predicted: float
    overhead_ms: float
    """What was fitted on plain decoding; 0 by a virtual clock."""

    @property
    def is_fitted(self) -> bool:
        """Whether the constant comes from this very setting."""
        return self.setting.spec.mode == _PLAIN and not self.setting.spec.has_virtual_clock

    @property
    def is_fit_at_its_bound(self) -> bool:
        """Whether no overhead makes plain decoding as slow, or as fast, as measured."""
        return not 1e-6 < self.overhead_ms < 0.999 * _MOST_OVERHEAD_MS

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted / self.measured


@dataclass(frozen=True, slots=True)
class Group:
    """Settings that differ in how they draft alone."""

    predictions: tuple[Prediction, ...]

    def is_order_right(self, tie: float = _TIE) -> bool:
        """Whether of any two settings the faster one is so by prediction too.

        Two whose measured throughput differs by a share of `tie` or less may come either way.
        """
        pairs = itertools.permutations(self.predictions, 2)
        apart = ((a, b) for a, b in pairs if a.measured > b.measured * (1 + tie))
        return all(faster.predicted > slower.predicted for faster, slower in apart)


def predict(settings: Sequence[Setting], models: PassModels) -> list[Group]:
    """Groups in the order of `settings`; those of vLLM's own drafting, and with
    TETRIS, which the simulator does not have, are left out.

    Raises:
        ConfigError: a group has no run of plain decoding to fit the overhead on, the times of a
            run are not known, or a result says nothing of requests or acceptance.
    """
    return [_group(each, models) for each in _groups(settings)]


def _groups(settings: Sequence[Setting]) -> Iterator[list[Setting]]:
    groups: dict[str, list[Setting]] = {}
    for setting in settings:
        if setting.spec.mode in MODES and setting.spec.tetris is None:
            groups.setdefault(_key(setting), []).append(setting)
    yield from groups.values()


def _key(setting: Setting) -> str:
    fields = {
        name: value
        for name, value in setting.spec.to_full_mapping().items()
        if name not in _OF_A_MODE
    }
    if fields["emulate"] is not None:
        # A mode that does not draft has the draft passes and the acceptance of nothing.
        # A virtual clock knows no overhead.
        fields["emulate"] = [fields["emulate"]["target"], fields["emulate"].get("clock")]
    return json.dumps(fields, sort_keys=True)


def _group(settings: Sequence[Setting], models: PassModels) -> Group:
    plain = next((each for each in settings if each.spec.mode == _PLAIN), None)
    if plain is None:
        named = ", ".join(each.spec.mode for each in settings)
        raise ConfigError(
            f"minedraft: there is no result of mode {_PLAIN!r} beside {named}, to fit the overhead "
            f"of a step on; allowed: an experiment whose modes (of {', '.join(BENCH_MODES)}) "
            f"hold {_PLAIN!r}"
        )
    overhead_ms = 0.0 if plain.spec.has_virtual_clock else _fit_overhead_ms(plain, models)
    return Group(
        tuple(
            Prediction(
                setting=each,
                measured=_measured(each),
                predicted=_predicted(scenario_of(each, models, overhead_ms)),
                overhead_ms=overhead_ms,
            )
            for each in settings
        )
    )


def _predicted(scenario: Scenario) -> float:
    """The median over seeds: a run's end depends on the coins of its last requests."""
    seeds = range(scenario.seed, scenario.seed + _NUM_SEEDS)
    return median(simulate(replace(scenario, seed=seed)).tokens_per_s for seed in seeds)


def _measured(setting: Setting) -> float:
    values = setting.values(FIGURE)
    if not values:
        raise ConfigError(f"minedraft: a result of mode {setting.spec.mode!r} has no {FIGURE}")
    return median(values.values())


def _fit_overhead_ms(plain: Setting, models: PassModels) -> float:
    """The overhead at which plain decoding is as fast as measured; 0 if it is slower anyway."""
    wanted = _measured(plain)
    low, high = 0.0, _MOST_OVERHEAD_MS
    for _ in range(_NUM_HALVINGS):
        middle = (low + high) / 2
        found = simulate(scenario_of(plain, models, middle)).tokens_per_s
        low, high = (middle, high) if found > wanted else (low, middle)
    return low


def scenario_of(setting: Setting, models: PassModels, overhead_ms: float) -> Scenario:
    """The scenario that stands for a setting: its load, its lengths, its acceptance.

    Raises:
        ConfigError: see `predict`.
    """
    spec = setting.spec
    load = LoadSpec.from_mapping(spec.load)
    if load.kind not in _LOADS:
        # Its arrivals would be others than the engine's, and be taken for overhead.
        raise ConfigError.bad_value("load.kind", load.kind, " or ".join(map(repr, _LOADS)))
    emulate = None if spec.emulate is None else dict(spec.emulate)
    target, draft = models.models(emulate)
    drafters = () if spec.mode == _PLAIN else (DrafterGroup(draft=draft),)
    return Scenario(
        name=f"{spec.mode} as measured",
        mode=spec.mode,
        num_speculative_tokens=spec.num_speculative_tokens,
        acceptance=_acceptance(setting, emulate),
        engines=(
            EngineGroup(
                target=target,
                overhead_ms=overhead_ms,
                max_queued_steps=1 if spec.has_virtual_clock else None,
                max_num_seqs=spec.max_num_seqs,
                max_num_batched_tokens=_batched_tokens(setting),
            ),
        ),
        drafters=drafters,
        requests=_requests(setting),
        load=load,
        link=models.link,
        seed=spec.seed,
    )


def _batched_tokens(setting: Setting) -> int:
    given = {name.replace("-", "_"): value for name, value in setting.spec.engine.items()}
    return int(given.get(_BATCHED, _BATCHED_TOKENS))


def _acceptance(setting: Setting, emulate: dict[str, Any] | None) -> Acceptance:
    """Replayed from the runs, or the one that they were emulated with."""
    if setting.spec.mode == _PLAIN:
        return Acceptance((0.0,))
    if emulate is not None and emulate.get("acceptance"):
        return Acceptance(tuple(emulate["acceptance"]))
    known = [each.outcome.acceptance for each in _results(setting) if each.outcome.acceptance]
    if not known:
        raise ConfigError(
            f"minedraft: a result of mode {setting.spec.mode!r} says nothing of acceptance by "
            "position; run the experiment again with this version"
        )
    return Acceptance(tuple(median(rates) for rates in zip(*known, strict=False)))


def _requests(setting: Setting) -> RequestModel:
    """Those of the first repeat, in their order: prompts are drawn with the seed of the run."""
    requests = _results(setting)[0].outcome.requests
    if not requests:
        raise ConfigError(f"minedraft: a result of mode {setting.spec.mode!r} has no requests")
    prompts, outputs = (
        Lengths(values=tuple(int(each[name]) for each in requests))
        for name in ("num_prompt_tokens", "num_output_tokens")
    )
    return RequestModel(count=len(requests), prompt_tokens=prompts, output_tokens=outputs)


def _results(setting: Setting) -> list[Result]:
    return list(setting.by_repeat.values())
