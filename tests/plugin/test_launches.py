"""While vLLM's front end launches engines: interrupts are kept, and nothing outlives a kill."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

from processes import in_session, kill_session, wait_until_gone

pytestmark = pytest.mark.vllm

# A front end whose engine takes for ever to import, started before and in the launch.
_FRONT_END = """
import multiprocessing, time
from minedraft.plugin.launch_guard import launch_guard

if __name__ == "__main__":
    start = multiprocessing.get_context("spawn").Process
    own = start(target=time.sleep, args=(600,)); own.start()
    with launch_guard():
        engine = start(target=time.sleep, args=(600,)); engine.start()
        time.sleep(1)
        print(own.pid, engine.pid, flush=True)
        input()
    print("launched", flush=True)
    input()
"""


def _raise(*_: object) -> NoReturn:
    raise KeyboardInterrupt("terminated")


@contextmanager
def _swallowing() -> Iterator[str]:
    with suppress(KeyboardInterrupt):
        yield "launch"


@pytest.mark.parametrize("module", ["core_client", "serve"])
def test_both_names_are_replaced_once(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.engine import core_client

    from minedraft.plugin.launches import wrap_launches

    serve = types.ModuleType("serve")
    monkeypatch.setitem(sys.modules, "vllm.entrypoints.cli.serve", serve)
    monkeypatch.setattr(core_client, "launch_core_engines", lambda *_, **__: _swallowing())
    serve.launch_core_engines = core_client.launch_core_engines  # type: ignore[attr-defined]
    wrap_launches(str)
    launching: Any = {"core_client": core_client, "serve": serve}[module]
    replaced = launching.launch_core_engines
    wrap_launches(str)
    assert launching.launch_core_engines is replaced
    before = signal.signal(signal.SIGTERM, _raise)
    try:
        with pytest.raises(KeyboardInterrupt), replaced("ours"):
            os.kill(os.getpid(), signal.SIGTERM)
        with replaced(b"vLLM's own"):
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.fixture
def front_end() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", _FRONT_END],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        yield process
        kill_session(process.pid)


def test_engines_end_with_a_front_end_that_is_killed(front_end: subprocess.Popen[str]) -> None:
    assert front_end.stdout is not None
    own, engine = map(int, front_end.stdout.readline().split())
    front_end.kill()
    wait_until_gone(front_end.pid, timeout_s=2)
    left = in_session(front_end.pid)
    assert engine not in left
    assert own in left, "what the program started before is its own"
    assert not [each for each in left.values() if "_guard_process" in each]


def test_the_guard_ends_with_the_launch(front_end: subprocess.Popen[str]) -> None:
    assert front_end.stdin is not None
    assert front_end.stdout is not None
    _, engine = map(int, front_end.stdout.readline().split())
    assert any("_guard_process" in each for each in in_session(front_end.pid).values())
    front_end.stdin.write("\n")
    front_end.stdin.flush()
    assert front_end.stdout.readline() == "launched\n"
    left = in_session(front_end.pid)
    assert engine in left
    assert not [each for each in left.values() if "_guard_process" in each]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_guard_that_fails_ends_no_launch(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    from minedraft.plugin import launch_guard

    monkeypatch.setattr(launch_guard, "_PATIENCE_S", 0.2)
    me = os.getpid()
    with launch_guard.launch_guard():
        (guard,) = [pid for pid, name in in_session(os.getsid(me)).items() if f"{me}" in name]
        os.kill(guard, number)
        time.sleep(0.2)
    assert guard not in in_session(os.getsid(me))


def test_a_coordinator_watches_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spawned by the name of the function, in a process that never sees a configuration."""
    from vllm.v1.engine import coordinator

    from minedraft.plugin import launches

    before = coordinator.DPCoordinatorProc.run_coordinator
    with launches._watched(_swallowing()):
        target = coordinator.DPCoordinatorProc.run_coordinator
    assert coordinator.DPCoordinatorProc.run_coordinator is before
    assert pickle.loads(pickle.dumps(target)) is launches.run_coordinator
    calls: list[Any] = []
    monkeypatch.setattr(launches, "watch_parent", lambda: calls.append("watched"))
    monkeypatch.setattr(launches, "_run_coordinator", lambda *args, **kwargs: calls.append(kwargs))
    target(engine_count=2)
    assert calls == ["watched", {"engine_count": 2}]


@pytest.mark.parametrize(
    ("count", "rank", "watched"), [(1, 0, False), (2, -1, False), (2, 0, True), (2, 1, True)]
)
def test_api_servers_watch_their_parent(
    count: int, rank: int, watched: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of several reads its own command line; the process that starts them has rank -1."""
    from vllm.engine.arg_utils import EngineArgs

    from minedraft.errors import ConfigError
    from minedraft.plugin import engine_config, register

    register()
    calls: list[str] = []
    monkeypatch.setattr(engine_config, "watch_parent", lambda: calls.append("watched"))
    args = EngineArgs(str(tmp_path), additional_config={"minedraft": {"mode": "no such mode"}})
    args._api_process_count, args._api_process_rank = count, rank
    with pytest.raises(ConfigError, match="mode"):
        args.create_engine_config()
    assert calls == ["watched"] * watched
