"""The drafter as a child process: start it, wait until it is ready, end it.

Owns the process and the handshake; what the process runs is named by the caller.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import zmq

from minedraft.errors import DrafterError
from minedraft.transport.channel import Channel, Line, PrivateEndpoint, scheduler_channel
from minedraft.transport.messages import Alive, Failed, Hello, Shutdown, ToDrafter, ToScheduler

logger = logging.getLogger(__name__)

_POLL_S = 0.1
_END_TIMEOUT_S = 5.0
_REAP_TIMEOUT_S = 0.2
_PR_SET_PDEATHSIG = 1  # of Linux, <linux/prctl.h>
_PARENT_POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A running drafter: the process, the channel to it, and what it said of itself."""

    process: subprocess.Popen[bytes]
    channel: Line
    hello: Hello

    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self.process.poll() is None

    def kill(self) -> None:
        """End the process at once, without waiting for it."""
        self.process.kill()

    def close(self) -> None:
        """Ask the drafter to end, make sure that it does, and close the channel."""
        try:
            if self.is_alive():
                self.channel.send(Shutdown())
        except DrafterError:
            logger.debug("minedraft: the drafter takes no message; it is killed instead")
        end_process(self.process)
        self.channel.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterLauncher:
    """How to start the drafter, as often as it must be."""

    command: tuple[str, ...]
    settings: Mapping[str, object]
    env: Mapping[str, str] | None = None

    def start(self, life: int = 0) -> StartingDrafter:
        """Start it for the `life`-th time; see StartingDrafter for what is raised."""
        # The kernel ties a process to the thread that started it.
        is_tied = threading.current_thread() is threading.main_thread()
        settings = {**self.settings, "life": life, "is_tied_to_parent": is_tied}
        return StartingDrafter(self.command, settings, self.env)


class StartingDrafter:
    """A drafter process on its way up; `wait` or `poll` turn it into a Connection.

    The process is killed if this object goes before that, so that a failed start of the
    engine leaves none behind.
    """

    def __init__(
        self,
        command: Sequence[str],
        settings: Mapping[str, object],
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start `command` and hand it `settings` as JSON on its standard input.

        The settings get two more keys: `address` to connect to, and `token` to repeat in
        the Hello.

        Raises:
            DrafterError: the process cannot be started, or ends at once.
        """
        self._token = secrets.token_hex(16)
        with contextlib.ExitStack() as undo:
            try:
                self._endpoint = PrivateEndpoint()
                undo.callback(self._endpoint.remove)
                self._channel = scheduler_channel(self._endpoint.address)
                undo.callback(self._channel.close)
                self.process = subprocess.Popen(
                    list(command), stdin=subprocess.PIPE, env=None if env is None else dict(env)
                )
            except (OSError, zmq.ZMQError) as error:
                raise DrafterError(f"minedraft: cannot start the drafter: {error}") from error
            undo.pop_all()
        self._give_up = weakref.finalize(
            self, _give_up, self.process, self._channel, self._endpoint
        )
        try:
            address = self._endpoint.address
            _hand_over(self.process, {**settings, "address": address, "token": self._token})
        except BaseException:
            self._give_up()
            raise

    def wait(self, timeout_s: float) -> Connection:
        """Wait for the Hello.

        Raises:
            DrafterError: the process ended, reported a failure, or said nothing for
                `timeout_s` seconds; nothing is left behind.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if (connection := self.poll(_POLL_S)) is not None:
                return connection
        self._give_up()
        raise DrafterError(
            f"minedraft: the drafter was not ready after {timeout_s:g} s; "
            "raise draft_start_timeout_s if the model loads slowly"
        )

    def poll(self, timeout_s: float = 0.0) -> Connection | None:
        """The connection if the Hello is here, or comes in `timeout_s` seconds.

        Raises:
            DrafterError: the process ended or reported a failure; nothing is left behind.
        """
        try:
            hello = _read_hello(self.process, self._channel, self._token, timeout_s)
        except BaseException:
            self._give_up()
            raise
        if hello is None:
            return None
        self._give_up.detach()
        self._endpoint.remove()
        return Connection(process=self.process, channel=self._channel, hello=hello)

    def kill(self) -> None:
        """Kill the process and leave no file behind; safe to call twice.

        A process that is slow to die is not waited for: see `process`.
        """
        self._give_up()


def _give_up(
    process: subprocess.Popen[bytes],
    channel: Channel[ToScheduler, ToDrafter],
    endpoint: PrivateEndpoint,
) -> None:
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_REAP_TIMEOUT_S)
    channel.close()
    endpoint.remove()


def _hand_over(process: subprocess.Popen[bytes], settings: Mapping[str, object]) -> None:
    assert process.stdin is not None
    try:
        with process.stdin as pipe:
            pipe.write(json.dumps(settings).encode())
    except BrokenPipeError as error:
        raise DrafterError("minedraft: the drafter process ended before it was set up") from error


def _read_hello(
    process: subprocess.Popen[bytes],
    channel: Channel[ToScheduler, ToDrafter],
    token: str,
    timeout_s: float,
) -> Hello | None:
    message = channel.receive(timeout_s)
    if isinstance(message, Alive):
        return None
    if isinstance(message, Hello | Failed) and not secrets.compare_digest(message.token, token):
        raise DrafterError("minedraft: a process with another token spoke on the socket")
    if isinstance(message, Hello):
        return message
    if isinstance(message, Failed):
        raise DrafterError(f"minedraft: the drafter did not start: {message.reason}")
    if message is None and process.poll() is not None:
        raise DrafterError(
            f"minedraft: the drafter process ended with code {process.returncode} before it "
            "was ready; its messages stand above"
        )
    return None


def end_process(process: subprocess.Popen[bytes], grace_s: float = _END_TIMEOUT_S) -> None:
    """Wait `grace_s` seconds for the process to end, then kill it and reap it.

    One that a kill does not end within 5 s (it hangs in the kernel) is left to the system.
    """
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        process.kill()
        try:
            process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            logger.error("minedraft: process %d does not end, though killed", process.pid)


def drafter_command(module: str) -> list[str]:
    """The command that runs `module` as the drafter, with this very interpreter."""
    return [sys.executable, "-m", module]


def die_with_parent(parent_pid: int, last_words: Callable[[], None] = lambda: None) -> None:
    """End this process soon after `parent_pid` is no longer its parent, whatever killed it.

    A thread looks twice a second, so that a long pass cannot delay it; `last_words` is
    called before the end.
    """

    def watch() -> None:
        while os.getppid() == parent_pid:
            time.sleep(_PARENT_POLL_S)
        last_words()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="minedraft-parent-watch", daemon=True).start()


def be_killed_with_parent(parent_pid: int) -> None:
    """Let the kernel kill this process with the thread that started it: also when it is stopped,
    or in native code that lets no thread of Python run.

    Whoever starts it from a thread that may end before its process must not ask for this.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)
