"""The plan command: its answer, its files, and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minedraft.bench.paper_settings import SETTINGS
from minedraft.cli.main import main
from minedraft.hardware import GPUS
from minedraft.profiles import write_profile
from profiles import TARGET, make_profile

_LOAD = ["--in-flight", "16", "--prompt-tokens", "200", "--output-tokens", "256"]
_PAIR = ["--target", "Qwen3-32B", "--draft", "Qwen3-0.6B", "--device", "L40"]
GIVEN = ["plan", *_PAIR, "--num-target-devices", "4", *_LOAD]


def test_recommendation_table_and_remarks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(GIVEN) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0].startswith("Recommended for throughput: wait-free, k = 3, on target + drafter")
    assert "Qwen3-32B on 4 L40, drafted by Qwen3-0.6B on 1 L40" in lines[1]
    for mode in ("none", "sequential", "two-batch", "pearl", "wait-free"):
        assert any(line.startswith(f"{mode} ") for line in lines), mode
    assert "times the next best" in out
    assert "Per device:" in out
    assert "before it is the bottleneck: 1:1" in out
    assert "none is measured" in out


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_the_paper(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    setting, path = SETTINGS[name], tmp_path / "plan.json"
    gpu = next(short for short, gpu in GPUS.items() if gpu == setting.pair.target.gpu)
    flags = ["--target", setting.pair.target.model.name, "--draft", setting.pair.draft.model.name]
    flags += ["--device", gpu.lower(), "--num-target-devices", "4", *_LOAD[2:]]
    flags += ["--in-flight", str(setting.requests), "--max-k", "5", "--json", str(path)]
    assert main(["plan", *flags]) == 0
    out, found = capsys.readouterr().out, json.loads(path.read_text())
    assert found["acceptance"] == list(setting.acceptance)
    paper = {row["mode"]: row for row in found["paper_convention"]}
    fair = {row["mode"]: row for row in found["rows"]}
    assert paper["two-batch"]["in_flight"] == 2 * setting.requests
    assert paper["two-batch"]["tokens_per_s"] > paper["sequential"]["tokens_per_s"]
    loses = fair["two-batch"]["tokens_per_s"] <= fair["sequential"]["tokens_per_s"]
    assert ("but would not at equal requests in flight" in out) == loses
    best = max(found["rows"], key=lambda row: row["tokens_per_s"])
    assert found["recommended"] == best


def test_acceptance_slo_and_goal(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    flags = ["--acceptance", "0.8,0.7,.5", "--slo-tpot-ms", "30", "--slo-ttft-ms", "200"]
    assert main([*GIVEN, *flags, "--goal", "per-device", "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert found["acceptance"] == [0.8, 0.7, 0.5]
    assert found["recommended"]["keeps_slo"]
    kept = [row for row in found["rows"] if row["keeps_slo"]]
    assert 0 < len(kept) < len(found["rows"])
    assert found["recommended"] == max(kept, key=lambda row: row["tokens_per_s_per_device"])


def test_acceptance_of_a_dataset(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    assert main([*GIVEN, "--dataset", "arena", "--json", str(path)]) == 0
    assert json.loads(path.read_text())["acceptance"] == [0.62]


def test_a_map(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "map.png"
    assert main([*GIVEN, "--max-k", "2", "--map", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_model_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {
        "model_type": "qwen3",
        "num_hidden_layers": 2,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_attention_heads": 4,
        "vocab_size": 151_936,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    flags = [str(tmp_path) if each == "Qwen3-0.6B" else each for each in GIVEN]
    assert main(flags) == 2
    assert "acceptance is missing" in capsys.readouterr().err
    assert main([*flags, "--acceptance", "0.5"]) == 0
    assert f"drafted by {tmp_path.name} on 1 L40" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--in-flight", "0"], "in_flight = 0 is not allowed; allowed: an integer from 1"),
        (["--in-flight", "-3"], "in_flight = -3"),
        (["--prompt-tokens", "-1"], "prompt_tokens = -1.0 is not allowed; allowed: a number in [0"),
        (["--output-tokens", "0"], "output_tokens = 0.0 is not allowed; allowed: a number in [1"),
        (["--output-tokens", "nan"], "output_tokens = nan"),
        (["--overhead-ms", "-2"], "overhead_ms = -2.0 is not allowed; allowed: a number in [0.0"),
        (["--max-k", "0"], "max_k = 0 is not allowed; allowed: an integer from 1 to 64"),
        (["--acceptance", "0.5,1.2"], "acceptance[1] = 1.2 is not allowed; allowed: a number in"),
        (["--acceptance", "high"], "acceptance = 'high'"),
        (["--acceptance", ""], "acceptance = ''"),
        (["--acceptance", "0.5", "--dataset", "arena"], "--acceptance or --dataset, not both"),
        (["--slo-ttft-ms", "0"], "slo.ttft_ms = 0.0 is not allowed; allowed: a number above 0\n"),
        (["--slo-tpot-ms", "-5"], "slo.tpot_ms = -5.0"),
        (["--device", "abacus"], "device = 'abacus' is not allowed; allowed: L40, H100"),
        (["--target", "GPT-9"], "target = 'GPT-9' is not allowed; allowed: Qwen3-0.6B, "),
        (["--num-target-devices", "0"], "num_target_devices = 0"),
        (
            ["--num-target-devices", "3"],
            "num_target_devices = 3 is not allowed; allowed: a divisor of 64 heads",
        ),
        (
            ["--num-draft-devices", "3"],
            "num_draft_devices = 3 is not allowed; allowed: a divisor of 16 heads",
        ),
        (["--num-draft-devices", "-1"], "num_draft_devices = -1"),
        (["--json", "no/such/folder/f.json"], "its folder does not exist"),
        (["--json", "."], "it is a folder"),
        (["--json", f"{'n' * 300}.json"], "File name too long"),
        (["--map", f"{'n' * 300}.png"], "File name too long"),
        (
            ["--json", "same", "--map", "same"],
            "--map = 'same' is not allowed; allowed: a file other",
        ),
    ],
)
def test_bad_flags_are_refused(
    flags: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*GIVEN, *flags]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert "Traceback" not in error


@pytest.mark.parametrize("missing", ["--device", "--in-flight"])
def test_what_must_be_given(missing: str, capsys: pytest.CaptureFixture[str]) -> None:
    at = GIVEN.index(missing)
    with pytest.raises(SystemExit) as stop:
        main([*GIVEN[:at], *GIVEN[at + 2 :]])
    assert stop.value.code == 2
    assert missing in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["target", "draft"])
def test_what_a_device_needs(missing: str, capsys: pytest.CaptureFixture[str]) -> None:
    at = GIVEN.index(f"--{missing}")
    assert main([*GIVEN[:at], *GIVEN[at + 2 :]]) == 2
    assert f"{missing} is missing; --device needs it" in capsys.readouterr().err


@pytest.fixture
def profiled(tmp_path: Path) -> list[str]:
    """The options of a plan from a profile, less its acceptance."""
    pytest.importorskip("scipy")
    path = tmp_path / "pair.json"
    write_profile(make_profile(), path)
    load = ["--prompt-tokens", "200", "--output-tokens", "256"]
    return ["plan", "--profile", str(path), "--in-flight", "4", *load]


def test_a_profile(profiled: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.json"
    flags = ["--acceptance", "0.9", "--max-k", "3", "--json", str(path)]
    assert main([*profiled, *flags]) == 0
    assert "T on 1 x CPU core, drafted by D on cpu:1; times measured" in capsys.readouterr().out
    rows = {row["mode"]: row for row in json.loads(path.read_text())["rows"]}
    # By hand: 200/256 of a prompt token beside each token, 328 tokens of context, and what the
    # profile says lies between two steps.
    step_ms = TARGET.pass_ms(4 + 4 * 200 / 256, 4, 4 * 328) + 1.5
    assert rows["none"]["ms_per_token"] == pytest.approx(step_ms, rel=1e-3)
    assert main([*profiled, *flags, "--overhead-ms", "0"]) == 0
    rows = {row["mode"]: row for row in json.loads(path.read_text())["rows"]}
    assert rows["none"]["ms_per_token"] == pytest.approx(step_ms - 1.5, rel=1e-3)


def test_a_profile_brings_its_devices(profiled: list[str], tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_profile(make_profile(num_target_devices=4, num_draft_devices=2), Path(profiled[2]))
    flags = ["--acceptance", "0.9", "--max-k", "1", "--json", str(path)]
    assert main([*profiled, *flags]) == 0
    first = path.read_bytes()
    devices = {row["mode"]: row["num_devices"] for row in json.loads(first)["rows"]}
    assert (devices["none"], devices["sequential"]) == (4, 6)
    same = ["--num-target-devices", "4", "--num-draft-devices", "2"]
    assert main([*profiled, *flags, *same]) == 0
    assert path.read_bytes() == first


def test_a_map_of_a_profile(profiled: list[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "map.png"
    assert main([*profiled, "--acceptance", "0.9", "--max-k", "2", "--map", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_way_to_the_drafter_of_a_profile_counts(profiled: list[str], tmp_path: Path) -> None:
    path, rounds = tmp_path / "plan.json", []
    for round_trip_ms in (0.0, 6.0):
        write_profile(make_profile(round_trip_ms=round_trip_ms), Path(profiled[2]))
        flags = ["--acceptance", "0", "--max-k", "1", "--json", str(path)]
        assert main([*profiled, *flags]) == 0
        # With nothing accepted a round brings one token.
        rows = json.loads(path.read_text())["rows"]
        rounds.append({row["mode"]: row["ms_per_token"] for row in rows})
    added = {mode: rounds[1][mode] - rounds[0][mode] for mode in ("none", "sequential", "pearl")}
    assert added == {"none": 0.0, "sequential": pytest.approx(6.0), "pearl": pytest.approx(6.0)}


def test_a_profile_says_nothing_of_sizes_far_beyond_it(
    profiled: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--in-flight", "12", "--acceptance", "0.9", "--max-k", "1"]
    assert main([*profiled, *flags]) == 0
    # 24 in flight are two batches of 12, and 16 in a pass are answered.
    out = capsys.readouterr().out
    assert "cannot be compared" not in out
    assert "(24 requests in flight against 12)" in out
    assert "No row for" not in out
    assert main([*profiled, *flags, "--in-flight", "17"]) == 2
    assert "target num_requests (measured to 8) = 17" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ([], "acceptance is missing; --profile needs it"),
        (["--acceptance", "0.5", "--dataset", "arena"], "dataset is not allowed"),
        (["--acceptance", "0.5", "--target", "Qwen3-32B"], "target = 'Qwen3-32B' is not allowed"),
        (
            ["--acceptance", "0.5", "--num-target-devices", "2"],
            "num_target_devices = 2 is not allowed; allowed: 1, on which the profile was measured",
        ),
        (["--acceptance", "0.5", "--num-draft-devices", "3"], "num_draft_devices = 3 is not"),
        (["--acceptance", "0.5", "--profile", "no-such-file.json"], "no-such-file.json"),
    ],
)
def test_bad_flags_beside_a_profile(
    flags: list[str], says: str, profiled: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*profiled, *flags]) == 2
    assert says in capsys.readouterr().err
