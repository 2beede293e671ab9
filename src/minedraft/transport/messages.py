"""The messages between scheduler and drafter, and their encoding.

Owns the wire format (msgpack by msgspec: typed, nothing is ever unpickled); it opens no
socket. Drafts belong to a request id, its version and a committed length, never to a
position in a list.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

from minedraft.errors import ProtocolError

PROTOCOL_VERSION = 5
MAX_MESSAGE_BYTES = 256 * 1024 * 1024

RequestId = Annotated[str, msgspec.Meta(min_length=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """Drafter to scheduler, once: ready to draft."""

    protocol: int = PROTOCOL_VERSION
    token: str
    """The secret that the scheduler gave the process it started."""
    pid: Count
    vocab_size: Count
    max_model_len: Count
    num_kv_blocks: Count
    block_size: Count


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """Drafter to scheduler: it cannot go on, and why."""

    protocol: int = PROTOCOL_VERSION
    token: str
    reason: str


class Sampling(msgspec.Struct, frozen=True, array_like=True):
    """How the drafts of one request are drawn from the draft model's distribution."""

    temperature: Annotated[float, msgspec.Meta(gt=0, le=1e6)]
    top_k: Count = 0
    """Most likely tokens to draw from; 0: no limit."""
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    seed: int | None = None
    """With a seed, a draft depends on seed, position and distribution alone."""


class Candidates(msgspec.Struct, frozen=True, array_like=True):
    """The distribution q of every draft token of a Draft: exact, because all else has none.

    Both arrays are [number of draft tokens, `width`], row by row, little-endian.
    """

    width: Annotated[int, msgspec.Meta(ge=1, le=65_536)]
    token_ids: bytes
    """int32."""
    probs: bytes
    """float32; a row adds up to 1 within rounding."""

    def part(self, start: int, end: int) -> Candidates:
        """Those of draft tokens [start, end)."""
        wanted = slice(4 * self.width * start, 4 * self.width * end)
        return Candidates(self.width, self.token_ids[wanted], self.probs[wanted])


class Add(msgspec.Struct, frozen=True, array_like=True):
    """A request to follow from now on: all of its tokens so far."""

    request_id: RequestId
    version: Count
    """Tells lives of one id apart: an id may be used again, and a preempted request resumes."""
    token_ids: Annotated[list[TokenId], msgspec.Meta(min_length=1)]
    limit: Count | None = None
    """Most drafts at a time for this request; None: as many as are wanted."""
    sampling: Sampling | None = None
    """None: drafts are the draft model's most likely tokens."""
    reported_lead: Count = 0
    """Guesses to hold beyond the committed tokens, unasked, and to report after every pass; 0:
    drafts are made when they are wanted."""
    cache_salt: str | None = None
    """Requests with another one share no cached prefix with it."""
    adapter: str | None = None
    """The target's LoRA adapter, on which its hidden states depend."""


class Commit(msgspec.Struct, frozen=True, array_like=True):
    """Tokens that the target accepted or sampled for a request."""

    request_id: RequestId
    version: Count
    committed_len: Count
    """Length before `token_ids`, in tokens (prompt included)."""
    token_ids: list[TokenId]


class Want(msgspec.Struct, frozen=True, kw_only=True):
    """One group of requests to draft for."""

    ticket: Count
    """Number of the group; groups are served in this order, and answered once."""
    request_ids: list[RequestId]
    num_tokens: Count
    """Draft tokens asked for each request (k)."""
    may_wait: bool = True
    """Whether the answer may wait until k drafts are there."""
    lead: Count = 0
    """Tokens to stay ahead beyond the drafts sent, guessed without being asked."""


class Update(msgspec.Struct, frozen=True, kw_only=True, tag="update"):
    """Scheduler to drafter: what happened, then what is wanted; applied in this order."""

    releases: list[tuple[RequestId, Count]] = []
    """Requests (id, version) to forget."""
    adds: list[Add] = []
    commits: list[Commit] = []
    wants: list[Want] = []


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown"):
    """Scheduler to drafter: end."""


class Timed(msgspec.Struct, frozen=True, kw_only=True, tag="timed"):
    """Scheduler to a drafter of virtual time: an Update, and when it was sent."""

    at_ns: Count
    update: Update


class Tick(msgspec.Struct, frozen=True, kw_only=True, tag="tick"):
    """Scheduler to a drafter of virtual time: go on until `until_ns`, or to the first answer
    at or after `now_ns`, the scheduler's time; it sends nothing in between."""

    now_ns: Count
    until_ns: Count


class Draft(msgspec.Struct, frozen=True, array_like=True):
    """Draft tokens that continue one request from `committed_len`; empty if there are none."""

    request_id: RequestId
    version: Count
    committed_len: Count
    token_ids: list[TokenId]
    candidates: Candidates | None = None
    """None: every draft token was certain (q is one-hot)."""
    confidences: list[float] | None = None
    """Natural logarithm of the draft model's highest probability at each draft token; None if
    it was not asked for."""


class Drafts(msgspec.Struct, frozen=True, kw_only=True, tag="drafts"):
    """Drafter to scheduler: the answer to one Want. Times are ns by its clock."""

    ticket: Count
    drafts: list[Draft]
    start_ns: Count
    end_ns: Count
    num_passes: Count


class Guesses(msgspec.Struct, frozen=True, kw_only=True, tag="guesses"):
    """Drafter to scheduler after a pass: all that it guesses for requests with a reported lead.

    Times are ns by the drafter's clock. A Draft here is as long as the lead at most, and may
    continue from a length that the scheduler has left behind.
    """

    drafts: list[Draft]
    start_ns: Count
    end_ns: Count
    num_passes: Count = 1


class Tock(msgspec.Struct, frozen=True, kw_only=True, tag="tock"):
    """Drafter to scheduler, once for each Tick: what it sent, and how far all is known.

    The last answer may be of a later time: its pass was running at `until_ns`.
    """

    until_ns: Count
    answers: list[tuple[Count, Drafts | Guesses]]
    """When each was sent, and the answer; oldest first."""


class Alive(msgspec.Struct, frozen=True, tag="alive"):
    """Drafter to scheduler: it works, though it has had no news for a while."""


ToDrafter = Update | Shutdown | Timed | Tick
ToScheduler = Hello | Failed | Drafts | Guesses | Alive | Tock

_Message = TypeVar("_Message")

_encoder = msgspec.msgpack.Encoder()
_to_drafter = msgspec.msgpack.Decoder(ToDrafter)
_to_scheduler = msgspec.msgpack.Decoder(ToScheduler)


def encode(message: ToDrafter | ToScheduler) -> bytes:
    """The bytes of one message; ProtocolError for numbers too large and text that is no Unicode."""
    try:
        return _encoder.encode(message)
    except (OverflowError, UnicodeEncodeError) as error:
        raise ProtocolError(f"minedraft: message cannot be encoded: {error}") from error


def decode_to_drafter(data: bytes) -> ToDrafter:
    """Read a message for the drafter; ProtocolError if it is none."""
    return _decode(_to_drafter, data)


def decode_to_scheduler(data: bytes) -> ToScheduler:
    """Read a message for the scheduler; ProtocolError if it is none, or of another version."""
    message = _decode(_to_scheduler, data)
    if isinstance(message, Hello | Failed) and message.protocol != PROTOCOL_VERSION:
        raise ProtocolError(
            f"minedraft: the drafter speaks protocol {message.protocol}, "
            f"this scheduler speaks {PROTOCOL_VERSION}; install the same minedraft for both"
        )
    return message


def _decode(decoder: msgspec.msgpack.Decoder[_Message], data: bytes) -> _Message:
    if len(data) > MAX_MESSAGE_BYTES:
        raise ProtocolError(f"minedraft: message of {len(data)} bytes, at most {MAX_MESSAGE_BYTES}")
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ProtocolError(f"minedraft: unreadable message: {error}") from error
