"""What `minedraft generate` refuses before an engine starts, and what it leaves behind then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from minedraft.cli.main import main
from minedraft.models.tokenizer import build_tokenizer
from variants import padded_vocabulary

pytestmark = pytest.mark.vllm


@pytest.fixture(autouse=True)
def _no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("an engine was started")

    monkeypatch.setattr("vllm.LLM.from_engine_args", refuse)
    # It would start this process again.
    monkeypatch.setattr("minedraft.plugin.offline.preload_openmp", lambda: None)
    monkeypatch.delenv("VLLM_CPU_OMP_THREADS_BIND", raising=False)


def _generate(target: Path, draft: Path, folder: Path, prompt: str, *flags: str) -> int:
    prompts = folder / "prompts.jsonl"
    prompts.write_text(json.dumps({"id": "first", "prompt": prompt}) + "\n")
    words = ["generate", str(target), "--draft-model", str(draft), "--prompts", str(prompts)]
    words += ["--max-model-len", "256", "--output", str(folder / "out.jsonl")]
    return main([*words, *flags])


@pytest.mark.parametrize(
    ("prompt", "flags", "says"),
    [
        ("a" * 2000, (), "prompt 'first' of --prompts has"),
        ("a", ("--chat",), "has no chat template"),
        ("a", ("--skip-tokenizer-init",), "--skip-tokenizer-init = True is not allowed"),
        ("a", ("--max-model-len", "99999"), "the engine cannot start: "),
    ],
)
def test_prompts_and_flags(
    prompt: str,
    flags: tuple[str, ...],
    says: str,
    pairs: dict[str, Any],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    pair = pairs["high"]
    assert _generate(pair.target, pair.draft, tmp_path, prompt, *flags) == 2
    assert says in capfd.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out.jsonl").exists()


def test_a_draft_model_that_does_not_fit(
    pairs: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    draft = padded_vocabulary(pairs["high"].draft, tmp_path / "other", 32)
    build_tokenizer(300, model_max_length=256).save_pretrained(draft)
    assert _generate(pairs["high"].target, draft, tmp_path, "a") == 2
    assert "its tokenizer differs" in capfd.readouterr().err.splitlines()[-1]
