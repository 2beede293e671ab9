"""`minedraft train-eagle` and `train-medusa`, whole, for a made-up target."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minedraft.cli.main import main
from minedraft.models.made_up import make_pair


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pair(tmp_path_factory.mktemp("pair") / "high", epsilon=0.01).target


@pytest.fixture
def words(target: Path, tmp_path: Path) -> list[str]:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"text {n}"}) + "\n" for n in range(6)))
    options = ["--held-out", "2", "--num-tokens", "12", "--epochs", "2", "--depths", "2"]
    named = ["--prompts", str(prompts), "--output", str(tmp_path / "head")]
    return ["train-eagle", str(target), *named, *options]


@pytest.mark.parametrize("method", ["eagle", "eagle3"])
def test_a_head_is_written(
    method: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--method", method]) == 0
    said = capsys.readouterr()
    assert "epoch 2 of 2: loss" in said.err
    assert "held-out acceptance by position" in said.err
    assert f"wrote {tmp_path / 'head'}" in said.out
    assert (tmp_path / "head" / "model.safetensors").exists()
    assert not (tmp_path / "head.training").exists()
    assert main([*words, "--method", method]) == 0
    assert "epoch" not in capsys.readouterr().err, "it is there already"
    assert main([*words, "--method", method, "--seed", "5"]) == 2
    assert "holds another recipe" in capsys.readouterr().err


def test_a_run_that_was_stopped_goes_on(
    words: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from minedraft.heads import EagleHead

    with monkeypatch.context() as patch:
        patch.setattr(EagleHead, "save", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert main(words) == 130
    assert not (tmp_path / "head").exists()
    capsys.readouterr()
    assert main([*words, "--epochs", "3"]) == 2
    assert "is of another course; remove it" in capsys.readouterr().err
    assert main(words) == 0
    assert "text" not in capsys.readouterr().err
    assert (tmp_path / "head" / "config.json").exists()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--held-out 6", "num_held_out=6 must be from 1"),
        ("--held-out 0", "num_held_out=0 must be from 1"),
        ("--num-tokens 2", "num_tokens=2 must be above depths=2"),
        ("--num-tokens 5000", "num_tokens=5000 after a prompt"),
        ("--epochs 0", "--epochs = 0"),
        ("--depths 0", "--depths = 0"),
        ("--learning-rate 0", "--learning-rate = 0"),
        ("--temperature -1", "--temperature = -1"),
        ("--seed -1", "--seed = -1"),
        ("--limit 1", "--limit = 1"),
        ("--chat", "has no chat template"),
        ("--draft-vocab 1", "--draft-vocab = 1"),
        ("--draft-vocab 9999", "draft_vocab=9999 must be from 1"),
        ("--draft-vocab 99 --method eagle", "draft_vocab=99 must be None for eagle"),
    ],
)
def test_bad_flags_are_explained(
    flags: str, says: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, *flags.split()]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "head").exists()


def test_a_target_that_is_none_is_named(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words[1] = str(tmp_path)
    assert main(words) == 2
    assert f"TARGET = '{tmp_path}'" in capsys.readouterr().err
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    assert main(words) == 2


def test_medusa_heads_are_written(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words[0] = "train-medusa"
    words[words.index("--depths")] = "--heads"
    assert main(words) == 0
    assert "held-out acceptance by position" in capsys.readouterr().err
    config = json.loads((tmp_path / "head" / "config.json").read_text())
    assert config["num_heads"] == 2
    assert main([*words, "--heads", "0"]) == 2
    assert "--heads = 0" in capsys.readouterr().err
