"""Predictions of a benchmark: what is fitted, what follows, and what is refused.

The measured runs are simulated ones, whose overhead is known.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench_runs import PROVENANCE, make_run
from minedraft.bench.experiment import Experiment, ReportPlan
from minedraft.bench.message import RunOutcome
from minedraft.bench.results import ResultsFolder
from minedraft.bench.spec import RunSpec
from minedraft.bench.study import load_study
from minedraft.cli.main import main
from minedraft.config import MODES
from minedraft.emulation import LatencyModel
from minedraft.errors import ConfigError
from minedraft.profiles import write_profile
from minedraft.simulator import (
    DrafterGroup,
    EmulatedModels,
    EngineGroup,
    Lengths,
    ProfiledModels,
    RequestModel,
    Scenario,
    predict,
    simulate,
)
from minedraft.theory import Acceptance
from profiles import DRAFT, TARGET, make_profile

OVERHEAD_MS = 2.5
EMULATE = {
    "target": {"fixed_ms": 20.0, "per_token_ms": 0.2},
    "draft": {"fixed_ms": 4.0},
    "acceptance": [0.8],
}
LENGTHS = [(20 + 7 * at % 40, 30 + at % 3) for at in range(64)]


def _runs(*modes: str, **changes: Any) -> list[RunSpec]:
    return [make_run(mode, max_num_seqs=4, **{"emulate": EMULATE, **changes}) for mode in modes]


def _measure(
    spec: RunSpec, models: tuple[LatencyModel, LatencyModel], factor: float = 1.0
) -> RunOutcome:
    """What an engine with the known overhead would give, `factor` times as fast."""
    prompts, outputs = (Lengths(values=column) for column in zip(*LENGTHS, strict=True))
    is_plain = spec.mode == "none"
    scenario = Scenario(
        name="measured",
        mode=spec.mode,
        num_speculative_tokens=spec.num_speculative_tokens,
        acceptance=Acceptance((0.8,)),
        engines=(EngineGroup(target=models[0], overhead_ms=OVERHEAD_MS, max_num_seqs=4),),
        drafters=() if is_plain else (DrafterGroup(draft=models[1]),),
        requests=RequestModel(count=len(LENGTHS), prompt_tokens=prompts, output_tokens=outputs),
        seed=7,
    )
    return RunOutcome(
        figures={"output_tokens_per_s": simulate(scenario).tokens_per_s * factor},
        requests=[
            {"num_prompt_tokens": prompt, "num_output_tokens": output} for prompt, output in LENGTHS
        ],
        acceptance=[] if is_plain else [0.8],
    )


def _fill(path: Path, outcomes: list[tuple[RunSpec, RunOutcome]]) -> Path:
    folder = ResultsFolder(path=path)
    runs = tuple(spec for spec, _ in outcomes)
    folder.adopt(Experiment(name="e", description="-", runs=runs, report=ReportPlan()))
    for spec, outcome in outcomes:
        folder.write(spec, PROVENANCE, outcome)
    return path


EMULATED = (LatencyModel(fixed_ms=20.0, per_token_ms=0.2), LatencyModel(fixed_ms=4.0))


def test_the_overhead_is_found_on_plain_decoding_and_the_rest_follows(tmp_path: Path) -> None:
    runs = [(spec, _measure(spec, EMULATED)) for spec in _runs(*MODES)]
    (group,) = predict(load_study(_fill(tmp_path, runs)).settings, EmulatedModels())
    assert group.is_order_right()
    assert [each.is_fitted for each in group.predictions] == [mode == "none" for mode in MODES]
    for each in group.predictions:
        assert each.overhead_ms == pytest.approx(OVERHEAD_MS, abs=0.01)
        # Other coins than those of the measured run.
        assert each.ratio == pytest.approx(1.0, abs=0.06)


def test_settings_apart_and_modes_that_are_not_simulated(tmp_path: Path) -> None:
    slower = {**EMULATE, "target": {"fixed_ms": 50.0}}
    other = (LatencyModel(fixed_ms=50.0), EMULATED[1])
    runs = [(spec, _measure(spec, EMULATED)) for spec in _runs("none", "sequential")]
    runs += [(spec, _measure(spec, other)) for spec in _runs("none", "pearl", emulate=slower)]
    tetris = make_run("sequential", max_num_seqs=4, emulate=EMULATE, tetris={"extra_tokens": 1})
    runs.append((tetris, RunOutcome(figures={"output_tokens_per_s": 1.0})))
    first, second = predict(load_study(_fill(tmp_path, runs)).settings, EmulatedModels())
    assert [each.setting.spec.mode for each in first.predictions] == ["none", "sequential"]
    assert [each.setting.spec.mode for each in second.predictions] == ["none", "pearl"]
    assert all(each.overhead_ms == pytest.approx(2.5, abs=0.01) for each in second.predictions)


def test_real_runs_take_their_times_from_a_profile(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    profile = make_profile(round_trip_ms=0.0)
    measured = [(spec, _measure(spec, (TARGET, DRAFT))) for spec in _runs(*MODES, emulate=None)]
    settings = load_study(_fill(tmp_path, measured)).settings
    (group,) = predict(settings, ProfiledModels(profile))
    for each in group.predictions:
        assert each.ratio == pytest.approx(1.0, abs=0.06), each.setting.spec.mode
    with pytest.raises(ConfigError, match="real models needs --profile"):
        predict(settings, EmulatedModels())


def test_the_command_says_how_far_off_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fast = {"wait-free": 0.5}
    runs = [(spec, _measure(spec, EMULATED, fast.get(spec.mode, 1.0))) for spec in _runs(*MODES)]
    folder = _fill(tmp_path, runs)
    assert main(["bench", "predict", str(folder), "--within", "0.07"]) == 1
    out = capsys.readouterr().out
    assert "3 of 4 predictions are within 7%" in out
    assert "the order of the settings is right in 0 of 1 groups" in out
    assert main(["bench", "predict", str(folder), "--within", "0"]) == 2
    assert "--within = 0" in capsys.readouterr().err


def test_the_command_with_a_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("scipy")
    write_profile(make_profile(round_trip_ms=0.0), tmp_path / "pair.json")
    runs = [
        (spec, _measure(spec, (TARGET, DRAFT))) for spec in _runs("none", "wait-free", emulate=None)
    ]
    flags = ["--profile", str(tmp_path / "pair.json"), "--within", "0.07"]
    assert main(["bench", "predict", str(_fill(tmp_path / "r", runs)), *flags]) == 0
    assert "1 of 1 predictions are within 7%" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("mode", "changes", "says"),
    [
        ("none", {"figures": {}}, "mode 'none' has no output_tokens_per_s"),
        ("none", {"requests": []}, "mode 'none' has no requests"),
        ("pearl", {"acceptance": []}, "mode 'pearl' says nothing of acceptance"),
    ],
)
def test_results_that_say_too_little(
    mode: str, changes: dict[str, Any], says: str, tmp_path: Path
) -> None:
    pytest.importorskip("scipy")
    runs = []
    for spec in _runs("none", "pearl", emulate=None):
        outcome = _measure(spec, (TARGET, DRAFT))
        runs.append(
            (spec, msgspec.structs.replace(outcome, **changes) if spec.mode == mode else outcome)
        )
    with pytest.raises(ConfigError, match=says):
        predict(load_study(_fill(tmp_path, runs)).settings, ProfiledModels(make_profile()))


def test_without_plain_decoding_nothing_can_be_fitted(tmp_path: Path) -> None:
    (spec,) = _runs("pearl")
    settings = load_study(_fill(tmp_path, [(spec, _measure(spec, EMULATED))])).settings
    with pytest.raises(ConfigError, match="no result of mode 'none' beside pearl"):
        predict(settings, EmulatedModels())


def test_repeats_are_taken_together(tmp_path: Path) -> None:
    runs = []
    for spec in _runs("none", "sequential"):
        for repeat, factor in enumerate((0.5, 1.0, 1.2)):
            runs.append((replace(spec, repeat=repeat), _measure(spec, EMULATED, factor)))
    (group,) = predict(load_study(_fill(tmp_path, runs)).settings, EmulatedModels())
    assert len(group.predictions) == 2
    assert group.predictions[0].overhead_ms == pytest.approx(OVERHEAD_MS, abs=0.01)


def test_random_arrivals_are_refused(tmp_path: Path) -> None:
    load = {"kind": "poisson", "rate_per_s": 2.0}
    (spec,) = _runs("none", load=load)
    settings = load_study(_fill(tmp_path, [(spec, _measure(spec, EMULATED))])).settings
    with pytest.raises(ConfigError, match=r"load\.kind = 'poisson' is not allowed"):
        predict(settings, EmulatedModels())


def test_a_fit_that_cannot_be_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [(spec, _measure(spec, EMULATED, 1.5)) for spec in _runs("none", "sequential")]
    assert main(["bench", "predict", str(_fill(tmp_path, runs))]) == 1
    out = capsys.readouterr().out
    assert "(no fit)" in out and "0 of 2 predictions" in out


def test_near_ties_may_come_either_way(tmp_path: Path) -> None:
    runs = [(spec, _measure(spec, EMULATED)) for spec in _runs("none", "sequential")]
    (group,) = predict(load_study(_fill(tmp_path, runs)).settings, EmulatedModels())
    none, sequential = group.predictions
    other = replace(sequential, measured=none.measured * 0.995, predicted=none.predicted * 1.1)
    assert replace(group, predictions=(none, other)).is_order_right()
    assert not replace(group, predictions=(none, other)).is_order_right(tie=0.001)
