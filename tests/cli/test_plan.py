"""The plan command: its answer, its files, and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minedraft.bench.paper_settings import SETTINGS
from minedraft.cli.main import main
from minedraft.hardware import GPUS

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
        (["--slo-ttft-ms", "0"], "slo.ttft_ms = 0.0 is not allowed; allowed: a number in (0.0"),
        (["--slo-tpot-ms", "-5"], "slo.tpot_ms = -5.0"),
        (["--device", "abacus"], "device = 'abacus' is not allowed; allowed: L40, H100"),
        (["--target", "GPT-9"], "target = 'GPT-9' is not allowed; allowed: Qwen3-0.6B, "),
        (["--num-target-devices", "0"], "num_target_devices = 0"),
        (["--num-target-devices", "3"], "a divisor of 64 heads"),
        (["--num-draft-devices", "-1"], "num_draft_devices = -1"),
        (["--json", "no/such/folder/f.json"], "its folder does not exist"),
        (["--json", "."], "it is a folder"),
        (["--json", "same", "--map", "same"], "must be different files"),
    ],
)
def test_bad_flags_are_refused(
    flags: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*GIVEN, *flags]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert "Traceback" not in error


@pytest.mark.parametrize("missing", ["--target", "--draft", "--device", "--in-flight"])
def test_what_must_be_given(missing: str, capsys: pytest.CaptureFixture[str]) -> None:
    at = GIVEN.index(missing)
    with pytest.raises(SystemExit) as stop:
        main([*GIVEN[:at], *GIVEN[at + 2 :]])
    assert stop.value.code == 2
    assert missing in capsys.readouterr().err
