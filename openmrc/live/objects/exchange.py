"""The out-of-band exchange: two peers tell each other their attributes over TCP before the first packet.

Frames are a length of four bytes, big-endian, then JSON of at most `LARGEST_FRAME` bytes. The first
frame of each side is a greeting with the versions it speaks; nothing that follows is read before
those agree. Every read and write has a deadline.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from typing import Any

import msgspec

from openmrc.live.api.errors import ClosedError, DeadlineError, ExchangeError

EXCHANGE_VERSION = 1
WIRE_VERSIONS = 1  # bitmap as mrc_device_attr.protocol_version, bit 0: version 1
LARGEST_FRAME = 1 << 20  # bytes
MAX_PLANES = 16
WRITE_SECONDS = 5.0  # a peer that does not read a frame for so long is stuck
_LENGTH = struct.Struct(">I")


class Greeting(msgspec.Struct, forbid_unknown_fields=False):
    """The first frame: who speaks, and in which versions. Unknown fields are for later versions."""

    openmrc: int  # EXCHANGE_VERSION
    wire: int  # bitmap
    name: str


class RegionOffer(msgspec.Struct, forbid_unknown_fields=True):
    """Memory that the peer may write."""

    addr: int
    r_key: int
    length: int


class Offer(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What one side brings into a connection."""

    planes: list[str]
    source_ports: list[list[int]]
    ev_format: str
    path_mtu: int
    mpr: int  # unit 128 PSNs, granted to the receiver of this offer
    max_wimm: int  # granted to the receiver of this offer
    dynamic_mpr: bool
    qpn: int
    psn: int  # the first that the sender of this offer will send
    regions: list[RegionOffer]
    name: str = ""
    note: Any = None


def check_offers(ours: Offer, theirs: Offer, peer: str) -> None:
    """Raise an ExchangeError with both values of everything on which the two sides differ."""
    here, there = _terms(ours), _terms(theirs)
    differing = [f"{term}: here {here[term]}, there {there[term]}" for term in here if here[term] != there[term]]
    if not 1 <= len(theirs.planes) <= MAX_PLANES:
        differing.append(f"plane count: there {len(theirs.planes)}, allowed are 1 to {MAX_PLANES}")
    if differing:
        raise ExchangeError(f"{peer} does not fit: {'; '.join(differing)}")


def _terms(offer: Offer) -> dict[str, object]:
    """Return what both sides must say alike, in words for people."""
    return {
        "plane count": len(offer.planes),
        "path MTU": offer.path_mtu,
        "MPR": offer.mpr,
        "EV format": offer.ev_format,
        "dynamic MPR": offer.dynamic_mpr,
    }


class Channel:
    """One TCP connection that carries frames, greeted and checked."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        """Greet; ExchangeError if the versions do not fit, on both sides."""
        self._socket = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = sock.getpeername()[:2]
        self.peer = f"{host}:{port}"
        self.name = f"{socket.gethostname()}/{os.getpid()}"
        try:
            self.tell(Greeting(EXCHANGE_VERSION, WIRE_VERSIONS, self.name))
            self._check(self.hear(Greeting, timeout=deadline - time.monotonic()))
        except BaseException:
            sock.close()
            raise

    def fileno(self) -> int:
        """Return the socket's descriptor: readable when the peer has said something, or is gone."""
        return self._socket.fileno()

    def tell(self, message: Any) -> None:
        """Send one message; ExchangeError if the peer is gone or does not read."""
        if isinstance(message, Offer):
            message.name = self.name
        body = msgspec.json.encode(message)
        if len(body) > LARGEST_FRAME:
            raise ExchangeError(f"message of {len(body)} bytes, at most {LARGEST_FRAME} are allowed")
        try:
            self._socket.settimeout(WRITE_SECONDS)
            self._socket.sendall(_LENGTH.pack(len(body)) + body)
        except OSError as error:
            raise self._broken(error) from error

    def hear(self, kind: Any = Any, *, timeout: float) -> Any:
        """Return the next message, checked against `kind`; DeadlineError after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size, deadline))
        if length > LARGEST_FRAME:
            raise ExchangeError(f"{self.peer}: announces {length} bytes, at most {LARGEST_FRAME} are allowed")
        body = self._read(length, deadline)
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ExchangeError(f"{self.peer}: sent something else than expected: {error}") from error

    def close(self) -> None:
        """End the connection; what was told before still arrives."""
        self._socket.close()

    def _read(self, length: int, deadline: float) -> bytes:
        parts = bytearray()
        while len(parts) < length:
            left = deadline - time.monotonic()
            try:
                self._socket.settimeout(max(left, 0.001))
                part = self._socket.recv(min(length - len(parts), 1 << 16))
            except TimeoutError as error:
                raise DeadlineError(
                    f"{self.peer}: said nothing in time ({len(parts)} of {length} bytes of a frame arrived)"
                ) from error
            except OSError as error:
                raise self._broken(error) from error
            if not part:
                raise ExchangeError(f"{self.peer}: closed the TCP channel")
            parts += part
        return bytes(parts)

    def _broken(self, error: OSError) -> Exception:
        if self._socket.fileno() < 0:
            return ClosedError("TCP channel: it was closed here")
        return ExchangeError(f"{self.peer}: TCP channel broke: {error}")

    def _check(self, theirs: Greeting) -> None:
        if theirs.openmrc != EXCHANGE_VERSION or not theirs.wire & WIRE_VERSIONS:
            raise ExchangeError(
                f"{self.peer} does not fit: exchange version: here {EXCHANGE_VERSION}, there {theirs.openmrc}; "
                f"wire versions: here {WIRE_VERSIONS:#b}, there {theirs.wire:#b}"
            )
        self.name_there = theirs.name


class Server:
    """A listening TCP socket."""

    def __init__(self, host: str, port: int) -> None:
        """Listen; an empty host means all addresses, IPv6 and IPv4 where both exist."""
        if host:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            self._socket = socket.create_server((host, port), family=family)
        elif socket.has_dualstack_ipv6():
            self._socket = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        else:
            self._socket = socket.create_server(("", port))
        self.port: int = self._socket.getsockname()[1]

    def accept(self, deadline: float) -> Channel:
        """Wait for a peer that greets properly; others are turned away while there is time."""
        while True:
            try:
                self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
                sock, _ = self._socket.accept()
            except TimeoutError as error:
                raise DeadlineError(f"nobody connected to TCP port {self.port} in time") from error
            except OSError as error:
                raise ClosedError(f"TCP port {self.port}: {error}") from error
            return Channel(sock, deadline)

    def fileno(self) -> int:
        """Return the listening socket's descriptor."""
        return self._socket.fileno()

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


def dial(host: str, port: int, deadline: float) -> Channel:
    """Connect to a `Server`; tries again until the deadline while nobody listens."""
    pause = 0.02
    while True:
        try:
            return Channel(socket.create_connection((host, port), max(deadline - time.monotonic(), 0.001)), deadline)
        except OSError as error:
            if time.monotonic() + pause >= deadline:
                raise DeadlineError(f"{host}:{port}: nobody answers: {error}") from error
            time.sleep(pause)
            pause = min(pause * 2, 0.5)
