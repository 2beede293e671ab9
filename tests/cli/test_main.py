"""The command line: flags become options, and bad ones are explained before vLLM is imported."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import minedraft
from minedraft.cli import main, options
from minedraft.cli.main import build_parser
from minedraft.cli.options import read_options
from minedraft.config import option_names
from minedraft.model_names import check_model_name


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "x"}\n')
    return str(path)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"minedraft {minedraft.__version__}\n"


def test_flags_become_options() -> None:
    args, rest = build_parser().parse_known_args(
        [
            "serve",
            "T",
            "--draft-model",
            "D",
            "-k",
            "5",
            "--draft-device",
            "cuda:4",
            "--tensor-parallel-size",
            "4",
        ]
    )
    config = read_options(args)
    assert config.num_speculative_tokens == 5
    assert config.drafter is not None
    assert (config.drafter.model, str(config.drafter.device)) == ("D", "cuda:4")
    assert rest == ["--tensor-parallel-size", "4"]


def test_draft_is_an_alias_and_mode_none_needs_none() -> None:
    args = build_parser().parse_args(["generate", "T", "--prompts", "f", "--draft", "D"])
    assert read_options(args).drafter is not None
    args = build_parser().parse_args(
        ["generate", "T", "--prompts", "f", "--mode", "none", "--draft", "D"]
    )
    assert read_options(args).drafter is None


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("", "--draft-model is missing"),
        ("--draft D -k 0", "num_speculative_tokens = 0"),
        ("--draft D -k 65", "num_speculative_tokens = 65"),
        ("--draft D --draft-device gpu:1", "draft_device = 'gpu:1'"),
        ("--draft D --draft-memory-share 1.5", "draft_memory_share = 1.5"),
        ("--draft D --emulate missing.toml", "cannot read emulate file"),
        ("--draft D --limit 0", "--limit = 0"),
        ("--draft D --max-tokens 0", "--max-tokens = 0"),
        ("--draft D --max-num-seqs -1", "--max-num-seqs = -1"),
        ("--draft D --temperature -0.5", "--temperature = -0.5"),
        ("--draft D --seed -1", "--seed = -1"),
        ("--draft D --seed 4294967296", "--seed = 4294967296"),
        ("--draft D --output /dev/null/x", "cannot write"),
        ("--draft D --output {prompts}", "a file other than that of --prompts"),
        ("--draft D --trace x.jsonl --summary ./x.jsonl", "a file other than that of --summary"),
        ("--draft D --trace /dev/null/x", "cannot write"),
    ],
)
def test_bad_flags_are_explained(
    flags: str, says: str, prompts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = "vllm" in sys.modules
    words = flags.format(prompts=prompts).split()
    assert main(["generate", "T", "--prompts", prompts, *words]) == 2
    assert says in capsys.readouterr().err
    assert ("vllm" in sys.modules) == before


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("--draft-devise", "did you mean --draft-device"),
        ("--draft_devise=cpu:1", "no flag --draft-devise"),
        ("--num-spec-tokens=3", "did you mean --num-speculative-tokens"),
        ("--target-core", "did you mean --target-cores"),
        ("--trace-file", "did you mean --trace"),
        ("--emulation", "did you mean --emulate"),
    ],
)
@pytest.mark.parametrize("command", ["serve", "generate", "doctor"])
def test_misspelt_flags_are_corrected(
    command: str, flag: str, says: str, prompts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rest = ["--prompts", prompts] if command == "generate" else []
    assert main([command, "T", "--draft", "D", *rest, flag, "1"]) == 2
    assert says in capsys.readouterr().err


def test_the_targets_dtype_is_no_option_of_a_method_without_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["generate", "T", "--prompts", str(tmp_path / "none.jsonl"), "--dtype", "float32"]
    assert main([*words, "--draft-method", "ngram"]) == 2
    assert "none.jsonl" in capsys.readouterr().err, "all that comes before is in order"
    given = [*words, "--draft-method", "ngram", "--draft-dtype", "float32"]
    assert main(given) == 2
    assert "draft_dtype = 'float32'" in capsys.readouterr().err


def test_underscores_are_as_good_as_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["serve", "T", "--draft_model", "D", "--num_speculative_tokens=65", "--max_num_seqs=4"]
    assert main(words) == 2
    assert "num_speculative_tokens = 65" in capsys.readouterr().err


def test_every_option_has_a_flag() -> None:
    parser = build_parser()
    for command in (["serve", "T"], ["generate", "T", "--prompts", "f"], ["doctor"]):
        assert set(option_names()) <= set(vars(parser.parse_args(command)))


@pytest.mark.parametrize("command", ["serve", "generate", "doctor"])
def test_without_vllm_the_extras_are_named(
    command: str,
    prompts: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(options, "find_spec", lambda name: None)
    rest = ["--prompts", prompts] if command == "generate" else []
    assert main([command, "T", "--draft", "D", *rest]) == 2
    assert "minedraft[cpu] or minedraft[gpu]" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["serve", "generate", "doctor"])
@pytest.mark.parametrize(
    ("names", "says"),
    [
        (("./none", "D"), "TARGET = './none'"),
        (("T", "/no/such"), "draft_model = '/no/such'"),
        (("T", "tests/none"), "draft_model = 'tests/none'"),
        (("T", "~/none"), "'~' is not expanded"),
        (("a/b/c", "D"), "TARGET = 'a/b/c'"),
    ],
)
def test_folders_that_are_not_there_are_named(
    command: str,
    names: tuple[str, str],
    says: str,
    prompts: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    rest = ["--prompts", prompts] if command == "generate" else []
    before = "vllm" in sys.modules
    assert main([command, names[0], "--draft", names[1], *rest]) == 2
    assert says in capsys.readouterr().err
    assert ("vllm" in sys.modules) == before


@pytest.mark.parametrize("name", ["model", "owner/model", "s3://bucket/a/b", str(Path(__file__))])
def test_other_names_are_left_to_vllm(name: str) -> None:
    check_model_name("TARGET", name)


@pytest.mark.parametrize(
    "words", [["serve", "--port", "8000", "T"], ["doctor", "--max-model-len", "64", "--draft", "D"]]
)
def test_the_target_stands_before_flags_of_vllm(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert "TARGET must stand before" in capsys.readouterr().err


def test_flags_of_vllm_need_a_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--enforce-eager"]) == 2
    assert "needs a TARGET" in capsys.readouterr().err


def test_flags_of_ours_need_a_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--draft-model", "D", "--mode", "pearl"]) == 2
    assert "--draft-model needs a TARGET" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["serve", "generate"])
def test_an_empty_target_is_named(
    command: str, prompts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--prompts", prompts] if command == "generate" else []
    assert main([command, "", "--draft", "D", *more]) == 2
    assert "TARGET = ''" in capsys.readouterr().err


def test_a_missing_prompts_file_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "T", "--prompts", "no-such-file", "--draft", "D"]) == 2
    assert "cannot read prompts file 'no-such-file'" in capsys.readouterr().err


def test_unknown_flags_of_commands_without_engine(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["trace", "x", "--no-such-flag"])
    assert stop.value.code == 2
    assert "--no-such-flag" in capsys.readouterr().err


PLAN = ["plan", "--target", "Qwen3-32B", "--draft", "Qwen3-0.6B", "--device", "L40"]
PLAN += ["--in-flight", "4", "--prompt-tokens", "10", "--output-tokens", "10"]


@pytest.mark.parametrize(
    ("to", "code", "says"),
    [(">&-", 0, ""), (">/dev/full", 2, "minedraft: cannot write: No space left on device\n")],
)
def test_an_output_that_cannot_be_written(to: str, code: int, says: str) -> None:
    command = f"{shlex.join([sys.executable, '-m', 'minedraft', *PLAN])} {to}"
    process = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True)
    assert (process.returncode, process.stderr) == (code, says)


def test_a_reader_that_has_enough_is_no_error() -> None:
    command = [sys.executable, "-m", "minedraft", *PLAN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (141, b"")
