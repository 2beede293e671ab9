"""Whatever ends the front end, no process and no socket file stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import quick_start
from engines import draft_options
from processes import in_session, kill_session, sockets_under, wait_until_gone
from servers import BIN, ENGINE_FLAGS, minedraft_flags

pytestmark = pytest.mark.vllm

_PROGRAM = """
import sys
import minedraft
from vllm import LLM, SamplingParams

if __name__ == "__main__":
    target, draft, *support = sys.argv[1:]
    if support:
        sys.path += support
        import quick_start
        quick_start.fork_engines()
    llm = LLM(target, dtype="float32", enforce_eager=True, max_model_len=2048, block_size=32,
              kv_cache_memory_bytes=2**28, disable_log_stats=True,
              **minedraft.engine_args(draft_model=draft, draft_dtype="float32",
                                      draft_kv_cache_gib=0.1, draft_block_size=32))
    prompts = [{"prompt_token_ids": [5, 6, 7 + i]} for i in range(8)]
    print("READY", flush=True)
    while True:
        llm.generate(prompts, SamplingParams(max_tokens=500, ignore_eos=True), use_tqdm=False)
"""


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A folder with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="md") as folder:
        yield Path(folder)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_stays_behind(how: signal.Signals, pairs: dict[str, Any], short_tmp: Path) -> None:
    program = short_tmp / "program.py"
    program.write_text(_PROGRAM)
    options = draft_options(pairs["high"])
    # One of the three starts its processes as a user's would; to fork them is quicker.
    support = [] if how is signal.SIGKILL else [str(Path(quick_start.__file__).parent)]
    models = [str(pairs["high"].target), options["draft_model"]]
    with _started([sys.executable, str(program), *models, *support], short_tmp) as parent:
        assert parent.stdout is not None
        assert any(line.startswith("READY") for line in parent.stdout), "the engine did not start"
        time.sleep(2)
        assert len(_engines(parent)) == 4, "front end, engine core, worker and drafter"
        _end(parent, how)
        left = wait_until_gone(parent.pid, timeout_s=10)
    assert left == {}
    _assert_no_files(short_tmp)


@pytest.mark.parametrize(
    ("how", "num_processes"),
    [
        (signal.SIGKILL, 2),  # the engine core imports vLLM
        (signal.SIGKILL, 3),  # so does its worker
        (signal.SIGTERM, 4),  # the models load
        (signal.SIGINT, 4),
    ],
)
def test_a_server_that_starts_ends_as_well(
    how: signal.Signals,
    num_processes: int,
    pairs: dict[str, Any],
    short_tmp: Path,
) -> None:
    options = minedraft_flags(draft_options(pairs["high"]))
    command = [str(BIN / "minedraft"), "serve", str(pairs["high"].target), "--port", "0"]
    with _started([*command, *options, *ENGINE_FLAGS], short_tmp) as parent:
        while len(_engines(parent)) < num_processes:
            assert parent.poll() is None, "the server ended by itself"
            time.sleep(0.05)
        _end(parent, how)
        left = wait_until_gone(parent.pid, timeout_s=10)
    assert left == {}
    _assert_no_files(short_tmp)


@contextmanager
def _started(command: list[str], tmp: Path) -> Iterator[subprocess.Popen[str]]:
    """A process in a session of its own, of which nothing is left at the end."""
    process = subprocess.Popen(
        command,
        env={**os.environ, "TMPDIR": str(tmp), "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        kill_session(process.pid)
        assert process.stdout is not None
        process.stdout.close()
        process.wait()


def _engines(parent: subprocess.Popen[str]) -> list[str]:
    """Commands of the processes, without Python's count of its resources and our guard."""
    others = ("multiprocessing.resource", "_guard_process")
    commands = in_session(parent.pid).values()
    return [each for each in commands if not any(other in each for other in others)]


def _end(parent: subprocess.Popen[str], how: signal.Signals) -> None:
    if how is signal.SIGINT:  # a terminal sends Ctrl-C to the whole foreground group
        os.killpg(parent.pid, how)
    else:
        parent.send_signal(how)


def _assert_no_files(tmp: Path) -> None:
    assert [path for path in sockets_under(tmp) if "minedraft" in str(path)] == []
    assert list(tmp.glob("minedraft-*")) == []
    print("sockets of vLLM:", sockets_under(tmp))
