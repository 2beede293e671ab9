"""Two ends over a real ipc socket, and the file that it leaves: none."""

from __future__ import annotations

import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from minedraft.errors import DrafterError, ProtocolError
from minedraft.transport import Channel, PrivateEndpoint, drafter_channel, scheduler_channel
from minedraft.transport.messages import Add, Draft, Drafts, Failed, Shutdown, Update, encode

UPDATE = Update(adds=[Add("a", 1, [1, 2, 3])])
DRAFTS = Drafts(ticket=1, drafts=[Draft("a", 1, 3, [7])], start_ns=1, end_ns=2, num_passes=3)
TIMEOUT_S = 5.0

Ends = tuple[Channel[Any, Any], Channel[Any, Any]]


def _folder(endpoint: PrivateEndpoint) -> Path:
    return Path(endpoint.address.removeprefix("ipc://")).parent


@pytest.fixture
def endpoint() -> Iterator[PrivateEndpoint]:
    endpoint = PrivateEndpoint()
    yield endpoint
    endpoint.remove()


@pytest.fixture
def ends(endpoint: PrivateEndpoint) -> Iterator[Ends]:
    """The scheduler's end and the drafter's."""
    scheduler = scheduler_channel(endpoint.address)
    drafter = drafter_channel(endpoint.address)
    # The scheduler sends nothing before it has heard the drafter's Hello.
    drafter.send(Failed(token="", reason="first word"))
    assert scheduler.receive(TIMEOUT_S) is not None
    scheduler.bytes_received = drafter.bytes_sent = 0
    yield scheduler, drafter
    scheduler.close()
    drafter.close()


def test_messages_in_both_directions_in_order(ends: Ends) -> None:
    scheduler, drafter = ends
    updates = [Update(adds=[Add("a", version, [version])]) for version in range(50)]
    for update in updates:
        scheduler.send(update)
    scheduler.send(Shutdown())
    assert [drafter.receive(TIMEOUT_S) for _ in range(51)] == [*updates, Shutdown()]
    drafter.send(DRAFTS)
    assert scheduler.receive(TIMEOUT_S) == DRAFTS


def test_bytes_are_counted_at_both_ends(ends: Ends) -> None:
    scheduler, drafter = ends
    scheduler.send(UPDATE)
    drafter.receive(TIMEOUT_S)
    size = len(encode(UPDATE))
    assert (scheduler.bytes_sent, drafter.bytes_received) == (size, size)
    assert (scheduler.bytes_received, drafter.bytes_sent) == (0, 0)


def test_receive_returns_none_after_its_timeout(ends: Ends) -> None:
    scheduler, _ = ends
    begin = time.monotonic()
    assert scheduler.receive(0.1) is None
    assert time.monotonic() - begin >= 0.09
    assert scheduler.receive() is None
    assert scheduler.receive(-1.0) is None


def test_a_large_message_arrives_whole(ends: Ends) -> None:
    scheduler, drafter = ends
    update = Update(adds=[Add("a", 1, list(range(500_000)))])
    scheduler.send(update)
    assert drafter.receive(TIMEOUT_S) == update


def test_garbage_on_the_socket_is_a_protocol_error_and_does_no_harm(
    endpoint: PrivateEndpoint,
) -> None:
    channel = scheduler_channel(endpoint.address)
    with zmq.Context() as context, context.socket(zmq.DEALER) as raw:
        raw.connect(endpoint.address)
        for data in (b"", b"\xc1garbage", encode(UPDATE)):
            raw.send(data)
            with pytest.raises(ProtocolError):
                channel.receive(TIMEOUT_S)
        raw.send(encode(DRAFTS))
        assert channel.receive(TIMEOUT_S) == DRAFTS
    channel.close()


def test_an_oversize_message_is_not_taken_in(
    endpoint: PrivateEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minedraft.transport.channel.MAX_MESSAGE_BYTES", 1000)
    scheduler = scheduler_channel(endpoint.address)
    drafter = drafter_channel(endpoint.address)
    with zmq.Context() as context, context.socket(zmq.DEALER) as raw:
        raw.setsockopt(zmq.LINGER, 0)
        raw.connect(endpoint.address)
        raw.send(b"x" * 1001)
        assert scheduler.receive(0.3) is None
    drafter.send(DRAFTS)
    assert scheduler.receive(TIMEOUT_S) == DRAFTS, "other connections live on"
    scheduler.close()
    drafter.close()


def test_an_oversize_message_is_refused_where_it_is_sent(
    endpoint: PrivateEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minedraft.transport.channel.MAX_MESSAGE_BYTES", 1000)
    scheduler = scheduler_channel(endpoint.address)
    drafter = drafter_channel(endpoint.address)
    try:
        with pytest.raises((DrafterError, ProtocolError)):
            scheduler.send(Update(adds=[Add("a", 1, list(range(1000)))]))
    finally:
        scheduler.close()
        drafter.close()


def test_sending_to_nobody_is_a_drafter_error(
    endpoint: PrivateEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minedraft.transport.channel._SEND_TIMEOUT_MS", 50)
    channel = scheduler_channel(endpoint.address)
    with pytest.raises(DrafterError, match="cannot send"):
        channel.send(UPDATE)
    channel.close()
    with pytest.raises(DrafterError, match="cannot send"):
        channel.send(UPDATE)


def test_close_twice(endpoint: PrivateEndpoint) -> None:
    channel = scheduler_channel(endpoint.address)
    channel.close()
    channel.close()


def test_linger_close_lets_the_last_message_leave(endpoint: PrivateEndpoint) -> None:
    scheduler = scheduler_channel(endpoint.address)
    drafter = drafter_channel(endpoint.address)
    drafter.send(DRAFTS)
    drafter.linger_close()
    assert scheduler.receive(TIMEOUT_S) == DRAFTS
    scheduler.close()


def test_only_this_user_can_enter_the_folder(endpoint: PrivateEndpoint) -> None:
    assert stat.S_IMODE(_folder(endpoint).stat().st_mode) == 0o700


def test_two_endpoints_do_not_share_a_folder(endpoint: PrivateEndpoint) -> None:
    other = PrivateEndpoint()
    assert _folder(other) != _folder(endpoint)
    other.remove()


def test_nothing_is_left_after_remove_and_the_connection_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short = Path(tempfile.mkdtemp(prefix="md-"))
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    try:
        endpoint = PrivateEndpoint()
        scheduler = scheduler_channel(endpoint.address)
        drafter = drafter_channel(endpoint.address)
        drafter.send(DRAFTS)
        assert scheduler.receive(TIMEOUT_S) == DRAFTS
        assert len(list(short.rglob("*"))) == 2, "the folder and the socket"
        endpoint.remove()
        assert not list(short.iterdir())
        for _ in range(3):
            scheduler.send(UPDATE)
            assert drafter.receive(TIMEOUT_S) == UPDATE
            drafter.send(DRAFTS)
            assert scheduler.receive(TIMEOUT_S) == DRAFTS
        endpoint.remove()
        scheduler.close()
        drafter.close()
        assert not list(short.iterdir())
    finally:
        short.rmdir()


def test_a_temporary_folder_that_is_too_long_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with pytest.raises(DrafterError, match="set TMPDIR to a shorter one") as caught:
        PrivateEndpoint()
    assert str(deep) in str(caught.value)
    assert not list(deep.iterdir())


def test_a_drafter_that_is_gone_holds_nobody_up(ends: Ends) -> None:
    scheduler, drafter = ends
    drafter.close()
    deadline = time.monotonic() + TIMEOUT_S
    with pytest.raises(DrafterError):
        while time.monotonic() < deadline:
            begin = time.monotonic()
            scheduler.send(UPDATE)
            assert time.monotonic() - begin < 1.0
            time.sleep(0.02)
