"""One ZeroMQ connection between a scheduler and its drafter.

Owns sockets and their files; it does not know what the messages say. The ipc socket lies
in a folder that only this user can enter, and both are removed as soon as the two ends
are connected: from then on no kill can leave a file behind.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import zmq

from minedraft.errors import DrafterError, ProtocolError
from minedraft.transport.messages import (
    MAX_MESSAGE_BYTES,
    ToDrafter,
    ToScheduler,
    decode_to_drafter,
    decode_to_scheduler,
    encode,
)

Incoming = TypeVar("Incoming")
Outgoing = TypeVar("Outgoing", bound=ToDrafter | ToScheduler)

_SEND_TIMEOUT_MS = 10_000
_FOLDER_PREFIX = "minedraft-"


class Line(Protocol):
    """What a scheduler needs of a connection to its drafter; see Channel."""

    def send(self, message: ToDrafter) -> None:
        """As Channel.send."""
        ...

    def receive(self, timeout_s: float = 0.0) -> ToScheduler | None:
        """As Channel.receive."""
        ...

    def close(self) -> None:
        """As Channel.close."""
        ...


class Channel(Generic[Incoming, Outgoing]):
    """Typed messages over one DEALER socket; one owner thread."""

    def __init__(
        self,
        decode: Callable[[bytes], Incoming],
        *,
        bind: str | None = None,
        connect: str | None = None,
        send_flags: int = 0,
    ) -> None:
        self._decode = decode
        self._send_flags = send_flags
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SNDTIMEO, _SEND_TIMEOUT_MS)
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        if bind is not None:
            self._socket.bind(bind)
        self._monitor: zmq.Socket[bytes] | None = None
        if connect is not None:
            # Before connecting: what happened earlier is not reported.
            self._monitor = self._socket.get_monitor_socket(zmq.EVENT_CONNECTED)
            self._socket.connect(connect)
        self.bytes_sent = 0
        self.bytes_received = 0

    def wait_until_connected(self, timeout_s: float) -> bool:
        """Wait until the other end holds the connection; False if it does not in time."""
        monitor = self._monitor
        if monitor is None:
            return True
        is_connected = bool(monitor.poll(round(timeout_s * 1000), zmq.POLLIN))
        self._stop_monitor()
        return is_connected

    def send(self, message: Outgoing) -> None:
        """Queue one message.

        Raises:
            DrafterError: there is no other end (the drafter waits for one up to 10 s).
            ProtocolError: the message is too large.
        """
        data = encode(message)
        if len(data) > MAX_MESSAGE_BYTES:
            raise ProtocolError(
                f"minedraft: message of {len(data)} bytes, at most {MAX_MESSAGE_BYTES}"
            )
        try:
            self._socket.send(data, self._send_flags)
        except zmq.ZMQError as error:
            raise DrafterError(f"minedraft: cannot send to the other end: {error}") from error
        self.bytes_sent += len(data)

    def receive(self, timeout_s: float = 0.0) -> Incoming | None:
        """The next message, or None if none comes in `timeout_s`.

        Raises:
            ProtocolError: the message cannot be read.
        """
        if not self._socket.poll(max(0, round(timeout_s * 1000)), zmq.POLLIN):
            return None
        data = self._socket.recv(zmq.NOBLOCK)
        self.bytes_received += len(data)
        return self._decode(data)

    def linger_close(self, linger_ms: int = 2000) -> None:
        """Close, but give messages that are still queued `linger_ms` to leave."""
        self._stop_monitor()
        self._socket.close(linger=linger_ms)
        self._context.term()

    def close(self) -> None:
        """Close the socket; safe to call twice."""
        self._stop_monitor()
        self._socket.close(linger=0)
        self._context.term()

    def _stop_monitor(self) -> None:
        if self._monitor is not None:
            self._socket.disable_monitor()
            self._monitor.close(linger=0)
            self._monitor = None


class PrivateEndpoint:
    """An ipc address in a folder of mode 0700 that goes when the two ends are connected."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX))
        self.address = f"ipc://{self._folder}/drafter"
        limit = zmq.IPC_PATH_MAX_LEN
        if len(os.fsencode(self.address)) - len("ipc://") > limit:
            self.remove()
            raise DrafterError(
                f"minedraft: the temporary folder {tempfile.gettempdir()!r} makes a socket path "
                f"longer than {limit} bytes; set TMPDIR to a shorter one"
            )

    def remove(self) -> None:
        """Take the folder away; open connections stay."""
        shutil.rmtree(self._folder, ignore_errors=True)

    @staticmethod
    def remove_at(address: str) -> None:
        """Take away the folder of an endpoint that another process made and did not remove."""
        folder = Path(address.removeprefix("ipc://")).parent
        if folder.name.startswith(_FOLDER_PREFIX):
            shutil.rmtree(folder, ignore_errors=True)


def scheduler_channel(address: str) -> Channel[ToScheduler, ToDrafter]:
    """The scheduler's end; it binds, and a missing drafter never holds it up."""
    return Channel(decode_to_scheduler, bind=address, send_flags=zmq.NOBLOCK)


def drafter_channel(address: str) -> Channel[ToDrafter, ToScheduler]:
    """The drafter's end; it connects."""
    return Channel(decode_to_drafter, connect=address)
