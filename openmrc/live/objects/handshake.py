"""The handshake by which two peers prove that they hold the same token, without sockets: bytes in, bytes out.

docs/security.md has its steps (HMAC-SHA-256 as extractor and expander, RFC 5869). A frame is a length of four bytes,
big-endian, that many bytes of JSON, and with a token the tag. Nothing is encrypted.
"""

from __future__ import annotations

import hmac
import secrets
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import msgspec

from openmrc.live.errors import ExchangeError, InvalidArgumentError

EXCHANGE_VERSION = 2
WIRE_VERSIONS = 1  # bitmap as mrc_device_attr.protocol_version, bit 0: version 1
GREETING_SECONDS = 3.0  # s, after which a listener drops a peer that has not finished
LARGEST_GREETING = 1 << 10  # bytes
LARGEST_OFFER = 1 << 16  # bytes
NONCE_BYTES = 32
TAG_BYTES = 32
LEAST_TOKEN = 16  # characters; an eavesdropper on a greeting can test guesses offline
NO_TOKEN = ""
_LENGTH = struct.Struct(">I")
_CONTEXT = b"openmrc exchange 2"
_PROOF = b'"proof"'
_REFUSED = b'"refused"'


class Role(Enum):
    """Which end of the TCP connection this is."""

    DIALLER = b"dialler"
    LISTENER = b"listener"

    @property
    def other(self) -> Role:
        """The other end."""
        return Role.LISTENER if self is Role.DIALLER else Role.DIALLER


class Greeting(msgspec.Struct, forbid_unknown_fields=False):
    """The first frame: supported versions, a nonce, and whether a token is required. Later versions may add fields."""

    openmrc: int  # EXCHANGE_VERSION
    wire: int  # bitmap
    nonce: str = ""  # hexadecimal digits
    token: bool = False


class Seal:
    """Tags the frames of one direction, in order."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._number = 0

    def tag(self, body: bytes) -> bytes:
        """Return the tag of the next frame."""
        numbered = self._number.to_bytes(8, "big") + body
        self._number += 1
        return hmac.digest(self._key, numbered, "sha256")

    def matches(self, body: bytes, tag: bytes) -> bool:
        """Whether the next frame carries the right tag, compared in constant time."""
        return hmac.compare_digest(self.tag(body), tag)


@dataclass(frozen=True)
class Seals:
    """Both directions of one connection."""

    ours: Seal
    theirs: Seal


class Frames:
    """Splits a byte stream into frames; buffers at most one announced length and the last input."""

    def __init__(self, rest: bytes = b"") -> None:
        self._bytes = bytearray(rest)

    def feed(self, part: bytes) -> None:
        """Append received bytes."""
        self._bytes += part

    def missing(self, largest: int, tag: int) -> int:
        """Return how many bytes the next frame still lacks; ExchangeError if it announces more than `largest`."""
        if len(self._bytes) < _LENGTH.size:
            return _LENGTH.size - len(self._bytes)
        (length,) = _LENGTH.unpack_from(self._bytes)
        if length > largest:
            raise ExchangeError(f"announces a frame of {length} bytes, at most {largest} are allowed")
        return int(max(_LENGTH.size + length + tag - len(self._bytes), 0))

    def take(self, tag: int) -> tuple[bytes, bytes]:
        """Return body and tag of the next frame, which must be complete."""
        (length,) = _LENGTH.unpack_from(self._bytes)
        end = _LENGTH.size + length
        body, sealed = bytes(self._bytes[_LENGTH.size : end]), bytes(self._bytes[end : end + tag])
        del self._bytes[: end + tag]
        return body, sealed

    def rest(self) -> bytes:
        """Return the bytes after the last frame."""
        return bytes(self._bytes)


def framed(body: bytes, seal: Seal | None = None) -> bytes:
    """Return a frame."""
    return _LENGTH.pack(len(body)) + body + (seal.tag(body) if seal is not None else b"")


def token_bytes(token: str) -> bytes:
    """Return a token as key material, empty for none; InvalidArgumentError if it is too short to resist guessing."""
    if token and len(token) < LEAST_TOKEN:
        raise InvalidArgumentError(f"token: {len(token)} characters, at least {LEAST_TOKEN} are needed")
    return token.encode()


def fresh_token() -> str:
    """Return a new random token of 144 bits."""
    return secrets.token_urlsafe(18)


class Handshake:
    """One end's greeting. Feed received bytes and send what `outgoing` returns, until `is_done`.

    A listener is done when it also has the client's offer, so that `accept` returns without another wait.
    """

    def __init__(self, role: Role, token: bytes) -> None:
        self._role = role
        self._token = token
        self._frames = Frames()
        self._greeting = msgspec.json.encode(
            Greeting(EXCHANGE_VERSION, WIRE_VERSIONS, secrets.token_hex(NONCE_BYTES), bool(token))
        )
        self._outgoing = framed(self._greeting)
        self._step: Callable[[], bool] = self._take_greeting
        self.seals: Seals | None = None
        self.offer = b""  # the dialler's, not decoded yet
        self.has_greeted = False  # the peer speaks this protocol
        self.is_done = False

    def outgoing(self) -> bytes:
        """Return the bytes to send, and clear them."""
        taken, self._outgoing = self._outgoing, b""
        return taken

    def feed(self, part: bytes) -> None:
        """Process received bytes; ExchangeError if the peer is incompatible or does not hold the token."""
        self._frames.feed(part)
        while not self.is_done and self._step():
            continue

    def rest(self) -> bytes:
        """Return the bytes received after the handshake."""
        return self._frames.rest()

    def _take_greeting(self) -> bool:
        if self._frames.missing(LARGEST_GREETING, 0):
            return False
        body, _ = self._frames.take(0)
        try:
            theirs = msgspec.json.decode(body, type=Greeting)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise ExchangeError(f"is not an openmrc endpoint: {error}") from error
        self.has_greeted = True
        self._check(theirs)
        if self._token:
            self._derive(body)
            if self._role is Role.DIALLER:
                self._prove()
            self._step = self._take_proof
        else:
            self._after_proof()
        return True

    def _check(self, theirs: Greeting) -> None:
        if theirs.openmrc != EXCHANGE_VERSION or not theirs.wire & WIRE_VERSIONS:
            raise ExchangeError(
                f"version mismatch: exchange version: local {EXCHANGE_VERSION}, peer {theirs.openmrc}; "
                f"wire versions: local {WIRE_VERSIONS:#b}, peer {theirs.wire:#b}"
            )
        if len(theirs.nonce) != 2 * NONCE_BYTES:
            raise ExchangeError(f"sent a nonce of {len(theirs.nonce)} digits, {2 * NONCE_BYTES} are needed")
        if theirs.token and not self._token:
            raise ExchangeError("requires a token; give it with --token or --token-file")
        if self._token and not theirs.token:
            raise ExchangeError("has no token, but this side requires one")

    def _derive(self, their_greeting: bytes) -> None:
        ours = {self._role: self._greeting, self._role.other: their_greeting}
        both = [framed(ours[role]) for role in (Role.DIALLER, Role.LISTENER)]
        session = hmac.digest(self._token, _CONTEXT + b"".join(both), "sha256")
        self.seals = Seals(
            Seal(hmac.digest(session, self._role.value, "sha256")),
            Seal(hmac.digest(session, self._role.other.value, "sha256")),
        )

    def _prove(self) -> None:
        assert self.seals is not None
        self._outgoing += framed(_PROOF, self.seals.ours)

    def _take_proof(self) -> bool:
        assert self.seals is not None
        if self._frames.missing(len(_REFUSED), TAG_BYTES):
            return False
        body, tag = self._frames.take(TAG_BYTES)
        if body == _REFUSED and self._role is Role.DIALLER:
            raise ExchangeError("holds a different token")
        if not self.seals.theirs.matches(body, tag) or body != _PROOF:
            self._outgoing += framed(_REFUSED) + bytes(TAG_BYTES)
            raise ExchangeError("holds a different token")
        if self._role is Role.LISTENER:
            self._prove()
        self._after_proof()
        return True

    def _after_proof(self) -> None:
        self._step = self._take_offer
        self.is_done = self._role is Role.DIALLER

    def _take_offer(self) -> bool:
        if self._frames.missing(LARGEST_OFFER, TAG_BYTES if self.seals else 0):
            return False
        self.offer, tag = self._frames.take(TAG_BYTES if self.seals else 0)
        if self.seals is not None and not self.seals.theirs.matches(self.offer, tag):
            raise ExchangeError("sent an offer with a wrong tag")
        self.is_done = True
        return True
