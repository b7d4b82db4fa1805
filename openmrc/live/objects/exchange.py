"""The out-of-band exchange: two peers exchange their attributes over TCP before the first packet.

Input from a peer is decoded into types with ranges; nothing unchecked reaches a table. Every read and write has a
deadline, and every frame a size limit.
"""

import os
import socket
import threading
import time
from ipaddress import ip_address
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from openmrc.errors import ConfigError
from openmrc.live.errors import ClosedError, DeadlineError, ExchangeError, InvalidArgumentError
from openmrc.live.host.addresses import PlaneAddress
from openmrc.live.objects.handshake import (
    GREETING_SECONDS,
    LARGEST_OFFER,
    NO_TOKEN,
    TAG_BYTES,
    Frames,
    Handshake,
    Role,
    framed,
    token_bytes,
)
from openmrc.wire.codes import FIRST_USER_QPN

LARGEST_FRAME = 1 << 20  # bytes
MAX_PLANES = 16
MAX_SOURCE_PORTS = 1024  # of one plane
WRITE_SECONDS = 5.0  # s; a peer that does not read a frame for this long is stuck
_LONGEST_WAIT = 1e9  # s; a socket takes no infinity
LONGEST_TEXT = 1000  # characters of a peer's text that are shown
_REFUSAL = b'{"refused":'

Port = Annotated[int, Meta(ge=1, le=65535)]
Psn = Annotated[int, Meta(ge=0, lt=1 << 24)]
Word = Annotated[int, Meta(ge=0, lt=1 << 32)]
Address = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
PlaneText = Annotated[str, Meta(max_length=80)]


class TermsMismatchError(ExchangeError):
    """The peer speaks our protocol, but its terms differ."""


class InvalidOfferError(ExchangeError):
    """The peer's offer has a value out of range."""


class RemoteRegion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Memory of one side that the other may write."""

    addr: Address
    r_key: Word
    length: Address

    def __getitem__(self, part: slice) -> "RemoteRegion":
        """Return a part, as sequences are sliced; only steps of 1."""
        start, stop, step = part.indices(self.length)
        if step != 1:
            raise InvalidArgumentError(f"slice: step {step} is not 1")
        return RemoteRegion(self.addr + start, self.r_key, max(stop - start, 0))


class Offer(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One side's offer."""

    planes: Annotated[list[PlaneText], Meta(min_length=1, max_length=MAX_PLANES)]
    source_ports: Annotated[
        list[Annotated[list[Port], Meta(min_length=1, max_length=MAX_SOURCE_PORTS)]], Meta(max_length=MAX_PLANES)
    ]
    ev_format: Annotated[str, Meta(max_length=16)]
    path_mtu: Annotated[int, Meta(ge=256, le=4096)]  # the largest that the sender of this offer accepts
    mpr: Annotated[int, Meta(ge=1, le=255)]  # unit 128 PSNs, granted to the receiver of this offer
    max_wimm: Annotated[int, Meta(ge=1, le=65535)]  # granted to the receiver of this offer
    dynamic_mpr: bool
    qpn: Annotated[int, Meta(ge=FIRST_USER_QPN, lt=1 << 24)]
    psn: Psn  # the first PSN that the sender of this offer will send
    regions: list[RemoteRegion]
    name: Annotated[str, Meta(max_length=256)] = ""
    note: Any = None


def _left(deadline: float) -> float:
    """Return the seconds to a deadline as a socket takes them, at least a millisecond."""
    return min(max(deadline - time.monotonic(), 0.001), _LONGEST_WAIT)


class Refusal(msgspec.Struct):
    """Sent instead of the expected message: the reason of a refusal."""

    refused: str


def decode_offer(body: bytes, peer: str) -> Offer:
    """Return a peer's offer, validated by itself; InvalidOfferError names the invalid value."""
    try:
        offer: Offer = _decoded(body, Offer, peer)
    except ExchangeError as error:
        raise InvalidOfferError(str(error)) from error
    if len(offer.source_ports) != len(offer.planes):
        raise InvalidOfferError(
            f"{peer}: names source ports of {len(offer.source_ports)} planes, of {len(offer.planes)}"
        )
    for plane, text in enumerate(offer.planes):
        try:
            address = PlaneAddress.parse(text, f"plane {plane}")
        except ConfigError as error:
            raise InvalidOfferError(f"{peer}: {printable(str(error))}") from error
        if not address.is_unicast:
            raise InvalidOfferError(f"{peer}: plane {plane}: {address} is not the address of one host")
    offer.name = printable(offer.name)
    return offer


def check_offers(ours: Offer, theirs: Offer, peer: str) -> None:
    """Raise a MismatchError with both values of every term that differs."""
    here, there = _terms(ours), _terms(theirs)
    differing = [f"{term}: here {here[term]}, there {there[term]}" for term in here if here[term] != there[term]]
    if differing:
        raise TermsMismatchError(f"{peer} does not fit: {printable('; '.join(differing))}")


def _terms(offer: Offer) -> dict[str, object]:
    """Return the terms that must be equal on both sides, by their names in messages."""
    return {
        "plane count": len(offer.planes),
        "MPR": offer.mpr,
        "EV format": offer.ev_format,
        "dynamic MPR": offer.dynamic_mpr,
    }


def printable(text: str) -> str:
    """Return a peer's text for display on a terminal: no control characters, limited length."""
    shown = text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "..."
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in shown)


class ControlChannel:
    """One TCP connection that carries frames, after its handshake."""

    def __init__(self, sock: socket.socket, peer: str, handshake: Handshake) -> None:
        """Use `dial` or `Server.accept` instead."""
        self._socket = sock
        self._seals = handshake.seals
        self._frames = Frames(handshake.rest())
        self._writing = threading.Lock()
        self.peer = peer
        self.name = f"{socket.gethostname()}/{os.getpid()}"

    @property
    def is_local(self) -> bool:
        """Whether the peer is on this machine, by its address."""
        try:
            names = self._socket.getsockname(), self._socket.getpeername()
        except OSError:
            return False
        here, there = (ip_address(str(name[0]).split("%")[0]) for name in names)
        return there == here or there.is_loopback

    def fileno(self) -> int:
        """Return the socket's descriptor: readable when a message has arrived or the peer has closed."""
        return self._socket.fileno()

    def tell(self, message: Any) -> None:
        """Send one message; ExchangeError if the peer has closed or does not read."""
        if isinstance(message, Offer):
            message.name = self.name
        body = msgspec.json.encode(message)
        largest = LARGEST_OFFER if isinstance(message, Offer) else LARGEST_FRAME
        if len(body) > largest:
            raise ExchangeError(f"message of {len(body)} bytes, at most {largest} are allowed")
        try:
            with self._writing:  # tags depend on the order of frames on the wire
                self._socket.settimeout(WRITE_SECONDS)
                self._socket.sendall(framed(body, self._seals.ours if self._seals is not None else None))
        except OSError as error:
            raise self._broken(error) from error

    def hear(self, kind: Any = Any, *, timeout: float) -> Any:
        """Return the next message, checked against `kind`; DeadlineError after `timeout` seconds."""
        return self.hear_sized(kind, timeout=timeout)[0]

    def hear_sized(self, kind: Any, *, timeout: float) -> tuple[Any, int]:
        """Return the next message and its size on the wire, for callers that limit buffered bytes."""
        body = self.hear_body(LARGEST_FRAME, timeout=timeout)
        return _decoded(body, kind, self.peer), len(body)

    def hear_offer(self, *, timeout: float) -> Offer:
        """Return the peer's offer, validated by itself."""
        return decode_offer(self.hear_body(LARGEST_OFFER, timeout=timeout), self.peer)

    def hear_body(self, largest: int, *, timeout: float) -> bytes:
        """Return the bytes of the next message; ExchangeError if it is a refusal."""
        deadline = time.monotonic() + timeout
        tag_bytes = TAG_BYTES if self._seals is not None else 0
        while missing := self._missing(largest, tag_bytes):
            self._frames.feed(self._read(missing, deadline))
        body, tag = self._frames.take(tag_bytes)
        if self._seals is not None and not self._seals.theirs.matches(body, tag):
            raise ExchangeError(f"{self.peer}: a frame has a wrong tag; it was not written by the peer")
        if body.startswith(_REFUSAL):
            raise ExchangeError(f"{self.peer}: refused: {printable(_decoded(body, Refusal, self.peer).refused)}")
        return body

    def close(self) -> None:
        """Close the connection; messages already sent still arrive."""
        self._socket.close()

    def _missing(self, largest: int, tag_bytes: int) -> int:
        try:
            return self._frames.missing(largest, tag_bytes)
        except ExchangeError as error:
            raise ExchangeError(f"{self.peer}: {error}") from None

    def _read(self, most: int, deadline: float) -> bytes:
        try:
            self._socket.settimeout(_left(deadline))
            part = self._socket.recv(min(most, 1 << 16))
        except TimeoutError as error:
            raise DeadlineError(f"{self.peer}: no message in time ({most} bytes of a frame are missing)") from error
        except OSError as error:
            raise self._broken(error) from error
        if not part:
            raise ExchangeError(f"{self.peer}: closed the TCP channel")
        return part

    def _broken(self, error: OSError) -> Exception:
        if self._socket.fileno() < 0:
            return ClosedError("TCP channel: closed locally")
        return ExchangeError(f"{self.peer}: TCP channel broke: {error}")


def _decoded(body: bytes, kind: Any, peer: str) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        raise ExchangeError(f"{peer}: sent an unexpected message: {printable(str(error))}") from error


def dial(host: str, port: int, deadline: float, token: str = NO_TOKEN) -> ControlChannel:
    """Connect to a `RendezvousServer` and greet it; retry until the deadline (monotonic seconds) while nobody listens.

    A greeting that is cut off only when the listener's limit is over is retried too: one of the two was busy, as a
    process is while it loads the engine.
    """
    key = token_bytes(token)
    pause = 0.02
    while True:
        try:
            sock = socket.create_connection((host, port), max(deadline - time.monotonic(), 0.001))
        except OSError as error:
            if time.monotonic() + pause >= deadline:
                raise DeadlineError(f"{host}:{port}: no answer: {error.strerror or error}") from error
            time.sleep(pause)
            pause = min(pause * 2, 0.5)
            continue
        begun = time.monotonic()
        try:
            return _greet(sock, f"{host}:{port}", key, deadline)
        except ExchangeError:
            sock.close()
            if time.monotonic() - begun < GREETING_SECONDS or time.monotonic() >= deadline:
                raise
        except BaseException:
            sock.close()
            raise


def _greet(sock: socket.socket, peer: str, token: bytes, deadline: float) -> ControlChannel:
    handshake = Handshake(Role.DIALLER, token)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            sock.settimeout(WRITE_SECONDS)
            sock.sendall(handshake.outgoing())
            if handshake.is_done:
                return ControlChannel(sock, peer, handshake)
            sock.settimeout(_left(deadline))
            part = sock.recv(1 << 12)
            if not part:
                raise ExchangeError("closed the TCP channel")
            handshake.feed(part)
    except TimeoutError as error:
        raise DeadlineError(f"{peer}: did not greet in time") from error
    except OSError as error:
        raise ExchangeError(f"{peer}: TCP channel broke: {error}") from error
    except ExchangeError as error:
        raise ExchangeError(f"{peer}: {error}") from None
