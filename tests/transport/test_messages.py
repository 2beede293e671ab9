"""The wire format: round trips, and nothing but ProtocolError for what cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minedraft.errors import MineDraftError, ProtocolError
from minedraft.transport.messages import (
    PROTOCOL_VERSION,
    Add,
    Candidates,
    Commit,
    Draft,
    Drafts,
    Failed,
    Guesses,
    Hello,
    Sampling,
    Shutdown,
    Update,
    Want,
    decode_to_drafter,
    decode_to_scheduler,
    encode,
)

Decode = Callable[[bytes], Any]
DECODERS: list[Decode] = [decode_to_drafter, decode_to_scheduler]

IDS = st.text(min_size=1, max_size=12)
COUNTS = st.integers(0, 2**63 - 1)
TOKENS = st.lists(st.integers(0, 2**31 - 1), max_size=6)
ADDS = st.builds(
    Add, request_id=IDS, version=COUNTS, token_ids=TOKENS.filter(bool), reported_lead=COUNTS
)
COMMITS = st.builds(Commit, request_id=IDS, version=COUNTS, committed_len=COUNTS, token_ids=TOKENS)
WANTS = st.builds(
    Want,
    ticket=COUNTS,
    request_ids=st.lists(IDS, max_size=4),
    num_tokens=COUNTS,
    may_wait=st.booleans(),
    lead=COUNTS,
)
UPDATES = st.builds(
    Update,
    releases=st.lists(st.tuples(IDS, COUNTS), max_size=3),
    adds=st.lists(ADDS, max_size=3),
    commits=st.lists(COMMITS, max_size=3),
    wants=st.lists(WANTS, max_size=3),
)
DRAFT_LISTS = st.lists(
    st.builds(Draft, request_id=IDS, version=COUNTS, committed_len=COUNTS, token_ids=TOKENS),
    max_size=3,
)
TO_SCHEDULER = st.one_of(
    st.builds(
        Drafts,
        ticket=COUNTS,
        drafts=DRAFT_LISTS,
        start_ns=COUNTS,
        end_ns=COUNTS,
        num_passes=COUNTS,
    ),
    st.builds(Guesses, drafts=DRAFT_LISTS, start_ns=COUNTS, end_ns=COUNTS, num_passes=COUNTS),
    st.builds(
        Hello,
        token=st.text(max_size=8),
        pid=COUNTS,
        vocab_size=COUNTS,
        max_model_len=COUNTS,
        num_kv_blocks=COUNTS,
        block_size=COUNTS,
    ),
    st.builds(Failed, token=st.text(max_size=8), reason=st.text(max_size=8)),
)
HELLO = Hello(token="t", pid=1, vocab_size=2, max_model_len=3, num_kv_blocks=4, block_size=5)
UPDATE = Update(
    releases=[("r", 1)],
    adds=[Add("a", 2, [1, 2, 3]), Add("d", 1, [1], 2, Sampling(0.7, 5, 0.9, -3), 5)],
    commits=[Commit("c", 3, 4, [5])],
    wants=[Want(ticket=6, request_ids=["a", "c"], num_tokens=4, may_wait=False, lead=5)],
)
CANDIDATES = Candidates(1, b"\x07\x00\x00\x00", b"\x00\x00\x80?")
DRAFTS = Drafts(
    ticket=1, drafts=[Draft("a", 1, 3, [7], CANDIDATES)], start_ns=1, end_ns=2, num_passes=3
)


@given(UPDATES)
def test_updates_survive_the_round_trip(message: Update) -> None:
    assert decode_to_drafter(encode(message)) == message


@given(TO_SCHEDULER)
def test_messages_to_the_scheduler_survive_the_round_trip(message: Any) -> None:
    assert decode_to_scheduler(encode(message)) == message


def test_shutdown_survives_the_round_trip() -> None:
    assert decode_to_drafter(encode(Shutdown())) == Shutdown()


def test_messages_for_one_end_are_refused_by_the_other() -> None:
    for message in (UPDATE, Shutdown()):
        with pytest.raises(ProtocolError):
            decode_to_scheduler(encode(message))
    for message in (HELLO, Failed(token="t", reason="r"), DRAFTS):
        with pytest.raises(ProtocolError):
            decode_to_drafter(encode(message))


@pytest.mark.parametrize("release", [("half \ud800 pair", 0), ("a", 2**64)])
def test_what_cannot_be_encoded_is_a_protocol_error(release: tuple[str, int]) -> None:
    with pytest.raises(ProtocolError, match="cannot be encoded"):
        encode(Update(releases=[release]))


@pytest.mark.parametrize("message", [HELLO, Failed(token="t", reason="r")], ids=["hello", "failed"])
@pytest.mark.parametrize("version", [0, PROTOCOL_VERSION + 1, -1, 2**40])
def test_another_protocol_version_is_refused(message: Any, version: int) -> None:
    other = msgspec.structs.replace(message, protocol=version)
    with pytest.raises(ProtocolError) as caught:
        decode_to_scheduler(encode(other))
    assert f"speaks protocol {version}," in str(caught.value)
    assert f"speaks {PROTOCOL_VERSION};" in str(caught.value)


def _plain(message: Any) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.msgpack.decode(encode(message))
    return plain


def _with(message: Any, path: tuple[Any, ...], value: object) -> bytes:
    plain = _plain(message)
    place: Any = plain
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return msgspec.msgpack.encode(plain)


NOT_COUNT = [-1, 1.0, 1.5, "1", None, True, [1]]
NOT_ID = ["", 1, None, b"a"]
NOT_TOKEN = [-1, 2**31, 1.0, "1", None]
TO_DRAFTER_FIELDS: list[tuple[tuple[Any, ...], list[Any]]] = [
    (("type",), ["updates", "", None, 3, "drafts", "hello"]),
    (("releases",), [None, 3, {}, [["r"]], [["r", 1, 2]], [[1, "r"]]]),
    (("releases", 0, 0), NOT_ID),
    (("releases", 0, 1), NOT_COUNT),
    (("adds",), [None, "a", {}, [[]], [["a"]], [["a", 1]], [{"request_id": "a"}]]),
    (("adds", 0, 0), NOT_ID),
    (("adds", 0, 1), NOT_COUNT),
    (("adds", 0, 2), [None, "12", 3, b"12", []]),
    (("adds", 0, 2, 1), NOT_TOKEN),
    (("commits", 0, 0), NOT_ID),
    (("commits", 0, 1), NOT_COUNT),
    (("commits", 0, 2), NOT_COUNT),
    (("commits", 0, 3, 0), NOT_TOKEN),
    (("wants", 0), [None, 3, []]),
    (("wants", 0, "ticket"), NOT_COUNT),
    (("wants", 0, "request_ids"), ["a", None, [1], [""]]),
    (("wants", 0, "num_tokens"), NOT_COUNT),
    (("wants", 0, "may_wait"), [1, None, "true"]),
    (("wants", 0, "lead"), NOT_COUNT),
]
TO_SCHEDULER_FIELDS: list[tuple[Any, tuple[Any, ...], list[Any]]] = [
    (DRAFTS, ("type",), ["draft", "update", None]),
    (DRAFTS, ("ticket",), NOT_COUNT),
    (DRAFTS, ("drafts",), [None, {}, [["a", 1, 3]]]),
    (DRAFTS, ("drafts", 0, 0), NOT_ID),
    (DRAFTS, ("drafts", 0, 1), NOT_COUNT),
    (DRAFTS, ("drafts", 0, 2), NOT_COUNT),
    (DRAFTS, ("drafts", 0, 3), [None, 1, "1"]),
    (DRAFTS, ("drafts", 0, 3, 0), NOT_TOKEN),
    (DRAFTS, ("start_ns",), NOT_COUNT),
    (DRAFTS, ("num_passes",), NOT_COUNT),
    (HELLO, ("token",), [None, 3, b"t"]),
    (HELLO, ("protocol",), [None, "1", 1.5]),
    *((HELLO, (name,), NOT_COUNT) for name in ("pid", "vocab_size", "max_model_len")),
    *((HELLO, (name,), NOT_COUNT) for name in ("num_kv_blocks", "block_size")),
]


@pytest.mark.parametrize(
    ("path", "value"), [(path, value) for path, values in TO_DRAFTER_FIELDS for value in values]
)
def test_wrong_values_for_the_drafter_are_refused(path: tuple[Any, ...], value: object) -> None:
    with pytest.raises(ProtocolError, match="unreadable message"):
        decode_to_drafter(_with(UPDATE, path, value))


@pytest.mark.parametrize(
    ("message", "path", "value"),
    [(message, path, value) for message, path, values in TO_SCHEDULER_FIELDS for value in values],
)
def test_wrong_values_for_the_scheduler_are_refused(
    message: Any, path: tuple[Any, ...], value: object
) -> None:
    with pytest.raises(ProtocolError, match="unreadable message"):
        decode_to_scheduler(_with(message, path, value))


@pytest.mark.parametrize("message", [HELLO, DRAFTS, Failed(token="t", reason="r")])
def test_missing_fields_are_refused(message: Any) -> None:
    for name in set(_plain(message)) - {"protocol"}:
        plain = _plain(message)
        del plain[name]
        with pytest.raises(ProtocolError):
            decode_to_scheduler(msgspec.msgpack.encode(plain))


def test_unknown_fields_are_ignored() -> None:
    """A newer end may say more within one protocol version."""
    assert decode_to_drafter(_with(UPDATE, ("new",), [1])) == UPDATE
    assert decode_to_drafter(_with(UPDATE, ("wants", 0, "new"), {"a": 1})) == UPDATE
    assert (
        decode_to_drafter(
            _with(UPDATE, ("adds", 0), ["a", 2, [1, 2, 3], None, None, 0, None, None, "new"])
        )
        == UPDATE
    )
    assert decode_to_scheduler(_with(DRAFTS, ("new",), None)) == DRAFTS


@pytest.mark.parametrize("decode", DECODERS)
def test_trailing_and_missing_bytes_are_refused(decode: Decode) -> None:
    data = encode(UPDATE if decode is decode_to_drafter else DRAFTS)
    decode(data)
    for bad in (data + b"\x00", data + data, data[:-1], b""):
        with pytest.raises(ProtocolError):
            decode(bad)


@pytest.mark.parametrize("decode", DECODERS)
def test_an_oversize_message_is_refused_unread(
    decode: Decode, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = encode(UPDATE if decode is decode_to_drafter else DRAFTS)
    monkeypatch.setattr("minedraft.transport.messages.MAX_MESSAGE_BYTES", len(data))
    decode(data)
    with pytest.raises(ProtocolError, match=f"{len(data) + 1} bytes, at most {len(data)}"):
        decode(data + b"\x00")


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("header", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff"])
def test_a_length_that_lies_is_refused(decode: Decode, header: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(header)
    with pytest.raises(ProtocolError):
        decode(b"\x82\xa4type\xa6update\xa4adds" + header)


def _no_other_error(decode: Decode, data: bytes) -> None:
    try:
        decode(data)
    except ProtocolError as error:
        assert isinstance(error, MineDraftError)
        assert str(error).startswith("minedraft: ")


@pytest.mark.parametrize("decode", DECODERS)
@given(data=st.binary(max_size=200))
@settings(max_examples=300)
def test_random_bytes_raise_nothing_else(decode: Decode, data: bytes) -> None:
    _no_other_error(decode, data)


@pytest.mark.parametrize("decode", DECODERS)
@given(
    message=UPDATES | TO_SCHEDULER,
    edits=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=4),
    cut=st.integers(0, 6),
)
@settings(max_examples=150, deadline=None)
def test_damaged_messages_raise_nothing_else(
    decode: Decode, message: Any, edits: list[tuple[float, int]], cut: int
) -> None:
    data = bytearray(encode(message))
    for place, value in edits:
        data[int(place * len(data))] = value
    _no_other_error(decode, bytes(data[: len(data) - cut]))


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**33) | st.floats() | IDS | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(IDS, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("decode", DECODERS)
@given(
    tag=st.sampled_from(["update", "shutdown", "hello", "failed", "drafts", "other"]),
    fields=st.dictionaries(
        st.sampled_from(["adds", "commits", "wants", "releases", "drafts", "ticket", "protocol"]),
        JUNK,
    ),
)
@settings(max_examples=100, deadline=None)
def test_well_formed_junk_raises_nothing_else(
    decode: Decode, tag: str, fields: dict[str, Any]
) -> None:
    _no_other_error(decode, msgspec.msgpack.encode({"type": tag, **fields}))


@pytest.mark.parametrize(
    ("decode", "tag"), [(decode_to_drafter, b"update"), (decode_to_scheduler, b"failed")]
)
def test_deep_nesting_is_refused(decode: Decode, tag: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(b"\x82\xa4type\xa6" + tag + b"\xa3new" + b"\x91" * 100_000)
