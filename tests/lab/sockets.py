"""UDP sockets inside namespaces, as the live transport opens them: no checksum, traffic class seen and set."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from openmrc.lab.namespaces import inside

_NO_CHECK6_TX, _NO_CHECK6_RX, _RECVTCLASS, _TCLASS = 101, 102, 66, 67


def udp(namespace: str, address: str, port: int, timeout: float = 20.0) -> socket.socket:
    """Open a socket on an address of a namespace."""
    with inside(namespace):
        made = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    made.setsockopt(socket.IPPROTO_UDP, _NO_CHECK6_TX, 1)
    made.setsockopt(socket.IPPROTO_UDP, _NO_CHECK6_RX, 1)
    made.setsockopt(socket.IPPROTO_IPV6, _RECVTCLASS, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    made.bind((address, port))
    made.settimeout(timeout)
    return made


@dataclass(frozen=True)
class Datagram:
    payload: bytes
    dscp: int
    ecn: int
    source: str


def mark(sender: socket.socket, dscp: int, ecn: int = 2) -> None:
    """Set what the sender's packets ask for."""
    sender.setsockopt(socket.IPPROTO_IPV6, _TCLASS, dscp << 2 | ecn)


def receive(receiver: socket.socket) -> Datagram:
    payload, controls, _, source = receiver.recvmsg(9000, 100)
    traffic_class = controls[0][2][0]
    return Datagram(payload, traffic_class >> 2, traffic_class & 3, source[0])


def drain(receiver: socket.socket, quiet: float = 0.3) -> list[Datagram]:
    """Return everything that comes until nothing has come for a while."""
    receiver.settimeout(quiet)
    found = []
    while True:
        try:
            found.append(receive(receiver))
        except TimeoutError:
            return found
