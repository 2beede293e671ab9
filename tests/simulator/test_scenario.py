"""Scenario files: what is read, and what is refused with the field and what is allowed."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from minedraft.emulation import PassTimes
from minedraft.errors import ConfigError
from minedraft.profiles import PassProfile, Profile, write_profile
from minedraft.simulator import MarkovChains, read_scenarios
from minedraft.simulator.prediction import ProfiledModels
from profiles import DRAFT as MEASURED_DRAFT
from profiles import TARGET as MEASURED_TARGET
from profiles import make_profile, point
from simulated import run, scenario

TARGET = {"target": {"fixed_ms": 30.0}}
DRAFT = {"draft": {"fixed_ms": 5.0}}


def _requests(count: int, output_tokens: int) -> dict[str, int]:
    return {"count": count, "prompt_tokens": 1, "output_tokens": output_tokens}


TEXT = """
mode = ["none", "sequential", "wait-free"]
num_speculative_tokens = [2, 4]
acceptance = [0.9, 0.8]
seed = 7

[[engines]]
count = 2
target = { fixed_ms = 30, per_token_ms = 0.1 }

[[drafters]]
draft = { fixed_ms = 5 }

[requests]
count = 3
prompt_tokens = { low = 5, high = 9 }
output_tokens = [4, 8]

[load]
kind = "poisson"
rate_per_s = 2.5
"""


def test_lists_of_modes_and_lengths_are_all_run(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(TEXT)
    found = read_scenarios(path)
    assert [(each.mode, each.num_speculative_tokens) for each in found] == [
        ("none", 2),
        ("sequential", 2),
        ("sequential", 4),
        ("wait-free", 2),
        ("wait-free", 4),
    ]
    assert found[0].num_engines == 2
    assert (found[0].num_drafters, found[1].num_drafters) == (0, 1)
    lengths = found[0].requests
    assert {lengths.prompt_tokens.of(0, draw / 100) for draw in range(100)} == set(range(5, 10))
    assert [lengths.output_tokens.of(number, 0.5) for number in range(3)] == [4, 8, 4]


def test_acceptance_may_go_by_stretches() -> None:
    table = {"easy": 0.9, "hard": 0.1, "to_hard": 0.1, "to_easy": 0.2}
    assert scenario(acceptance=table).acceptance == MarkovChains(**table)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"mode": "fast"}, "mode"),
        ({"num_speculative_tokens": 0}, "num_speculative_tokens"),
        ({"acceptance": [1.2]}, r"acceptance\[0\]"),
        ({"acceptance": []}, "acceptance"),
        ({"acceptance": 0.5}, "acceptance"),
        ({"acceptance": {"easy": 0.9}}, "has no hard"),
        ({"acceptance": {"easy": 2, "hard": 0.1, "to_hard": 0.1, "to_easy": 0.2}}, "easy"),
        ({"engines": []}, "engines"),
        ({"engines": [{}]}, "has no target"),
        ({"engines": [{"target": {"fixed_ms": -1.0}}]}, "fixed_ms = -1.0"),
        ({"engines": [{**TARGET, "count": 0}]}, "engines.count"),
        ({"engines": [{**TARGET, "speed": 3}]}, "speed"),
        ({"engines": [{**TARGET, "num_kv_blocks": 2}]}, "at least 6"),
        ({"engines": {"target": {}}}, r"\[\[engines\]\]"),
        ({"drafters": []}, "needs at least one"),
        ({"drafters": [{**DRAFT, "max_model_len": 0}]}, "drafters.max_model_len"),
        ({"requests": {"count": 1, "prompt_tokens": 1}}, "has no output_tokens"),
        ({"requests": {"count": 1, "prompt_tokens": 0, "output_tokens": 1}}, "prompt_tokens"),
        (
            {"requests": {"count": 1, "prompt_tokens": {"low": 5, "high": 4}, "output_tokens": 1}},
            "prompt_tokens.high",
        ),
        ({"requests": {"count": 1, "prompt_tokens": [], "output_tokens": 1}}, "prompt_tokens"),
        ({"load": {"kind": "burst"}}, "load.kind"),
        ({"link": {"delay_ms": -1.0}}, "link.delay_ms"),
        ({"link": {"latency": 1.0}}, "latency"),
        ({"failures": [{"drafter": 1, "at_s": 0.0, "for_s": 1.0}]}, "failures.drafter"),
        ({"failures": [{"drafter": 0, "at_s": 0.0, "for_s": 0.0}]}, "failures.for_s"),
        ({"failures": [{"drafter": 0, "at_s": 0.0}]}, "has no for_s"),
        ({"engines": [{"target": {"fixed_ms": 0.0}}]}, "target: ms of a pass over one token = 0"),
        ({"drafters": [{"draft": {"fixed_ms": 0.0}}]}, "draft: ms of a pass over one token = 0"),
        ({"link": {"mb_per_s": 5e-324}}, "link.mb_per_s"),
        ({"engines": [{**TARGET, "count": 10_001}]}, "engines.count.*10000"),
        ({"requests": _requests(10_000_001, 1)}, "requests.count.*10000000"),
        ({"requests": _requests(1_000_000, 20_001)}, "output_tokens = 20001.*at most 20000"),
        ({"seed": -1}, "seed"),
        ({"speed": 1}, "speed"),
    ],
)
def test_bad_scenarios_are_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        scenario(**changes)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    missing, broken = tmp_path / "missing.toml", tmp_path / "broken.toml"
    broken.write_text("mode = [")
    for path in (missing, broken):
        with pytest.raises(ConfigError, match=path.name):
            read_scenarios(path)
    broken.write_text("seed = 1")
    with pytest.raises(ConfigError, match="has no mode"):
        read_scenarios(broken)


def _written(folder: Path) -> str:
    path = folder / "pair.json"
    write_profile(make_profile(), path)
    return str(path)


def _pass_ms(times: PassTimes) -> float:
    """Of a size within those that were measured."""
    return times.pass_ms(24, 4, 800)


def test_a_profile_takes_the_place_of_a_latency_model(tmp_path: Path) -> None:
    name = {"profile": _written(tmp_path)}
    found = scenario(
        engines=[{"target": name, "overhead_ms": 9.0}, TARGET], drafters=[{"draft": name}]
    )
    assert _pass_ms(found.engines[0].target) == pytest.approx(_pass_ms(MEASURED_TARGET))
    assert _pass_ms(found.drafters[0].draft) == pytest.approx(_pass_ms(MEASURED_DRAFT))
    assert [each.overhead_ms for each in found.engines] == [9.0, 0.0]
    assert found.engines[1].target.fixed_ms == 30.0
    assert found.link.delay_ms == 0.0


def _bent_profile() -> Profile:
    """Of a target whose passes take 10 ms up to 8 tokens, and 2 ms more for each beyond."""
    sizes = [(b, b * n, 128) for b in (1, 2, 4) for n in (1, 2, 4, 8, 16)]
    bent = [point(b, n, c, 10.0 + 2.0 * max(0, n - 8)) for b, n, c in sizes]
    return make_profile(target=PassProfile.of(bent))


def test_a_scenario_takes_the_broken_line_of_a_profile(tmp_path: Path) -> None:
    """The straight one is far off at both ends."""
    path = tmp_path / "pair.json"
    profile = _bent_profile()
    write_profile(profile, path)
    name = {"profile": str(path)}
    found = scenario(engines=[{"target": name}], drafters=[DRAFT]).engines[0].target
    for size, ms in (((1, 1, 128), 10.0), ((4, 4, 512), 10.0), ((64, 4, 512), 122.0)):
        assert found.pass_ms(*size) == pytest.approx(ms, rel=0.02)
    assert profile.latency_model("target").pass_ms(1, 1, 128) < 7.0
    assert profile.latency_model("target").pass_ms(64, 4, 512) < 80.0
    assert ProfiledModels(profile).models(None)[0] == found


def test_a_profile_without_a_fixed_time_is_taken(tmp_path: Path) -> None:
    """Fits of old had none where the time was all in the requests."""
    path = tmp_path / "pair.json"
    write_profile(make_profile(), path)
    table = json.loads(path.read_text())
    table["target"]["fit"] |= {"fixed_ms": 0.0, "per_request_ms": 30.0}
    path.write_text(json.dumps(table))
    found = scenario(engines=[{"target": {"profile": str(path)}}], drafters=[DRAFT])
    assert found.engines[0].target.pass_ms(1, 1, 0) == 30.0
    with pytest.raises(ConfigError, match="ms of a pass over one token = 0"):
        scenario(engines=[{"target": {"fixed_ms": 0.0}}], drafters=[DRAFT])


def test_a_profile_for_all_fills_in_what_is_not_named(tmp_path: Path) -> None:
    found = scenario(
        profile=_written(tmp_path),
        engines=[{"count": 2}, {**TARGET, "count": 1}, {"overhead_ms": 7.0}],
        drafters=[{"max_num_seqs": 9}],
    )
    named = MEASURED_TARGET, found.engines[1].target, MEASURED_TARGET
    assert [_pass_ms(each.target) for each in found.engines] == pytest.approx(
        [_pass_ms(each) for each in named]
    )
    assert found.engines[1].target.fixed_ms == 30.0
    assert [each.overhead_ms for each in found.engines] == [1.5, 0.0, 7.0]
    assert found.num_engines == 4
    assert found.drafters[0].max_num_seqs == 9
    assert _pass_ms(found.drafters[0].draft) == pytest.approx(_pass_ms(MEASURED_DRAFT))
    assert found.link.delay_ms == pytest.approx(0.2)
    own_link = scenario(
        profile=_written(tmp_path), engines=[{}], drafters=[DRAFT], link={"delay_ms": 3.0}
    )
    assert own_link.link.delay_ms == 3.0


def test_a_profiled_run_takes_the_times_of_the_device(tmp_path: Path) -> None:
    outcomes = [
        run(mode="sequential", **devices)[0].tokens_per_s
        for devices in (
            {"profile": _written(tmp_path), "engines": [{}], "drafters": [{}]},
            {
                "engines": [{"target": asdict(MEASURED_TARGET), "overhead_ms": 1.5}],
                "drafters": [{"draft": asdict(MEASURED_DRAFT)}],
                "link": {"delay_ms": 0.2},
            },
        )
    ]
    assert outcomes[0] == pytest.approx(outcomes[1])


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"profile": 5}, "profile = 5"),
        ({"profile": "nowhere.json"}, "cannot read profile 'nowhere.json'"),
        ({"profile": "{file}"}, "every group names its own"),
        ({"profile": "{file}", "engines": {}}, "engines"),
        ({"profile": "{file}", "engines": [3]}, r"engines\[0\]"),
        ({"engines": [{"target": {"profile": "{file}", "fixed_ms": 3}}]}, "fixed_ms"),
        ({"engines": [{"target": {"profile": None}}]}, "target.profile = None"),
        ({"drafters": [{"draft": {"profile": "nowhere.json"}}]}, "nowhere.json"),
    ],
)
def test_bad_profiles_are_refused(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    file = _written(tmp_path)
    text = json.dumps(changes).replace("{file}", file)
    with pytest.raises(ConfigError, match=named):
        scenario(**json.loads(text))
