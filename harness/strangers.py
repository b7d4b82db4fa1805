"""Peers that do not play by the rules, over real TCP and UDP sockets on loopback."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from openmrc.live.objects.exchange import ControlChannel, dial
from openmrc.live.objects.handshake import Handshake, Role, framed
from openmrc.verbs import ConnectionOptions


def reset(port: int) -> None:
    """Connect and reset the connection at once, as some port scans do."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def vanish(port: int) -> None:
    """Connect and close."""
    socket.create_connection(("127.0.0.1", port)).close()


def say(port: int, what: bytes) -> bytes:
    """Connect, send some bytes, and return what comes before the other side closes."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.settimeout(20)
        heard = b""
        try:
            sock.sendall(what)
            sock.shutdown(socket.SHUT_WR)
            while part := sock.recv(1 << 16):
                heard += part
        except (BrokenPipeError, ConnectionResetError):
            pass
        return heard


def impostor(token: str) -> bytes:
    """Return the greeting of a listener that holds another token."""
    return Handshake(Role.LISTENER, token.encode()).outgoing()


@contextmanager
def silent(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Hold connections that never say anything."""
    held = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
    try:
        yield held
    finally:
        for sock in held:
            sock.close()


def offer(options: ConnectionOptions | None = None, **changes: Any) -> dict[str, Any]:
    """Return an offer of one plane that a listener with such options accepts, as plain JSON."""
    terms = options or ConnectionOptions()
    whole = {
        "planes": ["127.9.9.9"],
        "source_ports": [[50_000]],
        "ev_format": "UDP",
        "path_mtu": terms.path_mtu or 4096,
        "mpr": terms.mpr,
        "max_wimm": 1,
        "dynamic_mpr": False,
        "qpn": 5,
        "psn": 0,
        "regions": [{"addr": 4096, "r_key": 7, "length": 1 << 20}],
        "name": "a stranger",
    }
    return whole | changes


def greet(port: int, said: dict[str, Any] | bytes, token: str = "") -> ControlChannel:
    """Greet properly, then send an offer, or any other bytes in its place."""
    channel = dial("127.0.0.1", port, time.monotonic() + 20, token)
    body = said if isinstance(said, bytes) else json.dumps(said).encode()
    channel._socket.sendall(framed(body, channel._seals.ours if channel._seals is not None else None))
    return channel


def last_words(channel: ControlChannel) -> str:
    """Take what the listener says until it ends the connection, and return how it ended."""
    try:
        while True:
            channel.hear(timeout=20)
    except Exception as error:
        return str(error)
    finally:
        channel.close()
