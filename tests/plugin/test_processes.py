"""Whatever ends the front end, no process and no socket file stays behind."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quick_start
from engines import draft_options
from processes import MARK, marked, sockets_under, wait_until_gone

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
    mark = secrets.token_hex(8)
    program = short_tmp / "program.py"
    program.write_text(_PROGRAM)
    options = draft_options(pairs["high"])
    # One of the three starts its processes as a user's would; to fork them is quicker.
    support = [] if how is signal.SIGKILL else [str(Path(quick_start.__file__).parent)]
    models = [str(pairs["high"].target), options["draft_model"]]
    parent = subprocess.Popen(
        [sys.executable, str(program), *models, *support],
        env={**os.environ, MARK: mark, "TMPDIR": str(short_tmp), "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert parent.stdout is not None
    try:
        assert any(line.startswith("READY") for line in parent.stdout), "the engine did not start"
        time.sleep(2)
        processes = marked(mark)
        assert len(processes) >= 4, "front end, engine core, worker and drafter"
        if how is signal.SIGINT:  # a terminal sends Ctrl-C to the whole foreground group
            os.killpg(parent.pid, how)
        else:
            parent.send_signal(how)
        left = wait_until_gone(mark, timeout_s=10)
    finally:
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)
        parent.stdout.close()
        parent.wait()
    assert left == {}
    assert [path for path in sockets_under(short_tmp) if "minedraft" in str(path)] == []
    assert list(short_tmp.glob("minedraft-*")) == []
    print("sockets of vLLM:", sockets_under(short_tmp))
