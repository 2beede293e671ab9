"""Starting, ending and losing a drafter process; the processes here run no model."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minedraft.drafter import Connection, StartingDrafter, drafter_command
from minedraft.drafter.process import end_process
from minedraft.errors import DrafterError, ProtocolError
from minedraft.transport import Channel, scheduler_channel
from minedraft.transport.messages import Add, Drafts, Update

TIMEOUT_S = 30.0

CHILD = """
import json, os, sys, time
from minedraft.transport import drafter_channel
from minedraft.transport.messages import Drafts, Failed, Hello, Shutdown, Update

settings = json.loads(sys.stdin.read())
channel = drafter_channel(settings["address"])
hello = dict(pid=os.getpid(), vocab_size=settings["size"], max_model_len=2,
             num_kv_blocks=3, block_size=4, token=settings["token"])

def serve():
    while not isinstance(message := channel.receive(30.0), Shutdown):
        if message is None:
            sys.exit(9)
        channel.send(Drafts(ticket=len(message.adds), drafts=[], start_ns=0, end_ns=0,
                            num_passes=0))

"""
WELL = CHILD + "channel.send(Hello(**hello)); serve(); channel.close()"
FAILS = CHILD + (
    "channel.send(Failed(token=settings['token'], reason='no such model'))\n"
    "channel.linger_close(); time.sleep(60)"
)
IMPOSTOR = CHILD + "hello['token'] = 'guess'; channel.send(Hello(**hello)); time.sleep(60)"
FALSE_FAILURE = CHILD + "channel.send(Failed(token='guess', reason='x')); time.sleep(60)"
OTHER_VERSION = CHILD + "channel.send(Hello(protocol=0, **hello)); time.sleep(60)"
ENDS = "import sys; sys.stdin.read(); sys.exit(3)"
SILENT = "import time; time.sleep(60)"
STUBBORN = CHILD + "channel.send(Hello(**hello)); time.sleep(60)"


@pytest.fixture(autouse=True)
def channels(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Channel[Any, Any]]]:
    """The channels that were opened; one that stays open can hang the garbage collector."""
    opened: list[Channel[Any, Any]] = []

    def open_channel(address: str) -> Channel[Any, Any]:
        opened.append(scheduler_channel(address))
        return opened[-1]

    monkeypatch.setattr("minedraft.drafter.process.scheduler_channel", open_channel)
    yield opened
    for channel in opened:
        channel.close()


def _all_closed(channels: list[Channel[Any, Any]]) -> bool:
    return all(channel._socket.closed for channel in channels)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files, with a path short enough for a socket."""
    short = Path(tempfile.mkdtemp(prefix="md-"))
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    yield short
    shutil.rmtree(short)


def _start(code: str) -> StartingDrafter:
    return StartingDrafter([sys.executable, "-c", code], {"size": 7})


def _process(starting: StartingDrafter) -> subprocess.Popen[bytes]:
    return starting.process


@pytest.fixture
def connection(folder: Path) -> Iterator[Connection]:
    connection = _start(WELL).wait(TIMEOUT_S)
    yield connection
    connection.close()


def test_handshake(connection: Connection, folder: Path) -> None:
    assert connection.hello.pid == connection.process.pid
    assert connection.hello.vocab_size == 7, "the settings arrive"
    assert connection.is_alive()
    assert not list(folder.iterdir()), "no file is left, whatever kills whom"


def test_messages_and_a_clean_end(connection: Connection, channels: list[Any]) -> None:
    for number in range(3):
        adds = [Add(f"r{each}", 1, [1]) for each in range(number)]
        connection.channel.send(Update(adds=adds))
        answer = connection.channel.receive(TIMEOUT_S)
        assert isinstance(answer, Drafts)
        assert answer.ticket == number
    connection.close()
    assert connection.process.returncode == 0
    assert not connection.is_alive()
    assert _all_closed(channels)
    connection.close()


def test_close_after_the_process_was_killed(connection: Connection) -> None:
    connection.process.kill()
    connection.process.wait()
    assert not connection.is_alive()
    begin = time.monotonic()
    connection.close()
    assert time.monotonic() - begin < 3.0


def test_close_kills_a_process_that_does_not_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(end_process, "__defaults__", (0.2,))
    connection = _start(STUBBORN).wait(TIMEOUT_S)
    connection.close()
    assert connection.process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        (FAILS, DrafterError, "did not start: no such model"),
        (IMPOSTOR, DrafterError, "another token"),
        (FALSE_FAILURE, DrafterError, "another token"),
        (OTHER_VERSION, ProtocolError, "protocol 0"),
        (ENDS, DrafterError, "ended with code 3"),
    ],
    ids=["failed", "impostor", "false failure", "other version", "ends"],
)
def test_a_start_that_fails_says_why_and_leaves_nothing(
    folder: Path, channels: list[Any], code: str, error: type[Exception], words: str
) -> None:
    starting = _start(code)
    with pytest.raises(error, match=words):
        starting.wait(TIMEOUT_S)
    assert _process(starting).returncode is not None
    assert not list(folder.iterdir())
    assert _all_closed(channels)


def test_a_start_that_takes_too_long_is_given_up(folder: Path) -> None:
    starting = _start(SILENT)
    begin = time.monotonic()
    with pytest.raises(DrafterError, match=r"not ready after 0.3 s; raise draft_start_timeout_s"):
        starting.wait(0.3)
    assert time.monotonic() - begin < 5.0
    assert _process(starting).returncode == -signal.SIGKILL
    assert not list(folder.iterdir())


def test_a_start_that_is_dropped_leaves_nothing(folder: Path) -> None:
    starting = _start(SILENT)
    process = _process(starting)
    assert len(list(folder.iterdir())) == 1
    del starting
    assert process.returncode == -signal.SIGKILL
    assert not list(folder.iterdir())


def test_a_command_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(DrafterError, match=r"cannot start the drafter.*no-such-program"):
        StartingDrafter([str(folder / "no-such-program")], {})
    assert not list(folder.iterdir())


def test_a_start_that_is_dropped_closes_its_channel(folder: Path, channels: list[Any]) -> None:
    starting = _start(SILENT)
    del starting
    assert _all_closed(channels)


def test_a_command_that_is_not_there_closes_its_channel(folder: Path, channels: list[Any]) -> None:
    with pytest.raises(DrafterError):
        StartingDrafter([str(folder / "no-such-program")], {})
    assert _all_closed(channels)


def test_a_process_that_ends_before_it_is_set_up_closes_its_channel(
    folder: Path, channels: list[Any]
) -> None:
    with pytest.raises(DrafterError, match="ended before it was set up"):
        StartingDrafter([sys.executable, "-c", "pass"], {"much": "x" * 10**6})
    assert _all_closed(channels)


def test_the_environment_is_the_one_given(folder: Path) -> None:
    code = WELL.replace('settings["size"]', 'int(os.environ["MD_SIZE"])')
    command = [sys.executable, "-c", code]
    env = {**os.environ, "MD_SIZE": "11"}
    connection = StartingDrafter(command, {"size": 7}, env).wait(TIMEOUT_S)
    assert connection.hello.vocab_size == 11
    connection.close()


def test_the_command_uses_this_interpreter() -> None:
    assert drafter_command("some.module") == [sys.executable, "-m", "some.module"]


def _is_gone(pid: int) -> bool:
    """Whether a process ended; one that nobody reaps counts as ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def _assert_goes(pid: int) -> None:
    """It ends within 10 s, and in any case."""
    deadline = time.monotonic() + 10.0
    while not _is_gone(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    gone = _is_gone(pid)
    if not gone:
        os.kill(pid, signal.SIGKILL)
    assert gone


@pytest.mark.parametrize("kill_with", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_drafter_dies_with_its_parent(
    spawn: Callable[..., subprocess.Popen[bytes]], kill_with: signal.Signals
) -> None:
    """Even while its main thread is busy and deaf to SIGTERM and Ctrl-C."""
    child = (
        "import os, signal, time\n"
        "from minedraft.drafter import die_with_parent\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "die_with_parent(os.getppid()); print(os.getpid(), flush=True); time.sleep(120)\n"
    )
    # Who runs the tests in the background of a shell has them ignore Ctrl-C.
    parent = (
        "import signal, subprocess, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"subprocess.run([sys.executable, '-c', {child!r}])\n"
    )
    process: Any = spawn(parent, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    pid = int(process.stdout.readline())
    assert not _is_gone(pid)
    process.send_signal(kill_with)
    _assert_goes(pid)


def test_the_kernel_kills_a_stopped_drafter_with_its_parent(
    spawn: Callable[..., subprocess.Popen[bytes]],
) -> None:
    """No thread of a stopped process can look after its parent."""
    child = (
        "import os, time\n"
        "from minedraft.drafter.process import be_killed_with_parent\n"
        "be_killed_with_parent(os.getppid()); print(os.getpid(), flush=True); time.sleep(120)\n"
    )
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    process: Any = spawn(parent, stdout=subprocess.PIPE)
    pid = int(process.stdout.readline())
    os.kill(pid, signal.SIGSTOP)
    process.kill()
    _assert_goes(pid)
