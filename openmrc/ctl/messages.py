"""What travels over the controller socket: frames, the greeting, calls and their answers.

    client                                server
    CtlGreeting{oldest, newest}  ------->
                              <-------    CtlGreeting{oldest, newest} or Failure
    Call{number, operation, body}  -->
                              <-------    Answer{number, body} or Failure{number, errno, reason}

A frame is its length (4 bytes, big-endian) and that many bytes of MessagePack. Every message is a map with the names of
its fields, and what a decoder does not know it leaves out, so a field may be added with a default. Removing or changing
one takes a new version. Both sides say the range of versions that they speak, and the newest common one holds: with a
range of two, a peer that is a release older or newer is served.
"""

from __future__ import annotations

import struct

import msgspec

from openmrc.errors import CallError, Malformed

OLDEST, NEWEST = 1, 1  # versions that this release speaks; keep two once there are two
MOST_GREETING = 1 << 10  # bytes: a stranger cannot make us hold more
MOST_CALL = 1 << 20
MOST_ANSWER = 1 << 26  # the paths of some hundred thousand EVs
LENGTH = struct.Struct(">I")


class SpokenVersions(msgspec.Struct, kw_only=True):
    """Which versions a side speaks; the begin of each greeting."""

    oldest: int
    newest: int
    release: str = ""  # of openmrc, for people


class CtlGreeting(SpokenVersions, tag="greeting", kw_only=True):
    """The first frame of each side."""


class CtlCall(msgspec.Struct, tag="call", kw_only=True):
    """One request; answers have its number."""

    number: int
    operation: str
    body: msgspec.Raw = msgspec.Raw(b"\x80")  # an empty map


class CtlAnswer(msgspec.Struct, tag="answer", kw_only=True):
    """The result of a call."""

    number: int
    body: msgspec.Raw


class CtlFailure(msgspec.Struct, tag="failure", kw_only=True):
    """A refused call, as `CallError`; number 0: the connection itself, which then ends."""

    number: int
    errno: int
    reason: str
    needed: int | None = None
    done: int = 0  # entries of a batch that were applied before the one that failed

    @staticmethod
    def of(error: CallError, number: int = 0) -> CtlFailure:
        """Return the failure that says the same as an error."""
        return CtlFailure(number=number, errno=error.errno, reason=error.reason, needed=error.needed, done=error.done)


CtlMessage = CtlGreeting | CtlCall | CtlAnswer | CtlFailure

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[CtlMessage] = msgspec.msgpack.Decoder(CtlMessage)


def packed(value: object) -> msgspec.Raw:
    """Return the body of a call or answer."""
    return msgspec.Raw(_encoder.encode(value))


def frame(message: msgspec.Struct) -> bytes:
    """Return the bytes of one message."""
    body = _encoder.encode(message)
    return LENGTH.pack(len(body)) + body


def length_of(head: bytes, most: int) -> int:
    """Return how many bytes follow these four; Malformed beyond `most`, before anything of that size is read."""
    (length,) = LENGTH.unpack(head)
    if not 1 <= length <= most:
        raise Malformed(f"controller socket: a message of {length} bytes, not 1..{most}")
    return int(length)


def message(body: bytes) -> CtlMessage:
    """Decode one message; Malformed if it is none."""
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"controller socket: not a message: {error}") from error


def common_version(theirs: SpokenVersions, oldest: int = OLDEST, newest: int = NEWEST) -> int:
    """Return the newest version that both sides speak; Malformed if there is none."""
    found = min(newest, theirs.newest)
    if found < max(oldest, theirs.oldest):
        raise Malformed(
            f"controller socket: the peer (openmrc {theirs.release or 'of unknown release'}) speaks versions "
            f"{theirs.oldest} to {theirs.newest}, here {oldest} to {newest} are spoken"
        )
    return found
