"""Packets that somebody else sends in a peer's name, over real sockets."""

from __future__ import annotations

import random
import socket
import time

from openmrc.live.host.addresses import PlaneAddress
from openmrc.verbs import Context
from openmrc.wire import ip
from openmrc.wire.codes import NackReason, Opcode, Syndrome
from openmrc.wire.icrc import icrc
from openmrc.wire.message import MrcPacket, compose

FEEDBACK = ("transport ACK", "NACK", "SACK")


def packet(message: MrcPacket, source: PlaneAddress, port: int, destination: PlaneAddress) -> bytes:
    """Return the UDP payload of a valid packet between two addresses."""
    body = message.emit()
    whole = ip.datagram(source.ip, destination.ip, port, destination.port, body + bytes(4))
    return body + icrc(whole[:20], whole[20:28], body).to_bytes(4, "big")


class Forger:
    """Sends packets to `target` in the name of `friend`, its peer."""

    def __init__(self, friend: Context, target: Context) -> None:
        self._friend, self._target = friend, target
        self._source = friend.nic.sockets.addresses[0]
        self._address = target.nic.sockets.addresses[0]
        self._port = friend.address.source_ports[0][0]

    def send(self, message: MrcPacket) -> None:
        """Send from the friend's own socket, as spoofing does."""
        self.send_bytes(packet(message, self._source, self._port, self._address))

    def send_bytes(self, datagram: bytes) -> None:
        """Send any bytes from the friend's own socket."""
        self._friend.nic.sockets.senders[0][0].sendto(datagram, self._address.socket_name())

    def send_from_another_port(self, message: MrcPacket) -> None:
        """Send as another user of the friend's host can: from a port that is free."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind((str(self._source.ip), 0))
            port = sock.getsockname()[1]
            sock.sendto(packet(message, self._source, port, self._address), self._address.socket_name())

    def refused(self) -> int:
        """Return how many datagrams the target has refused on its first plane."""
        return self._target.plane_counters()[0].refused

    def is_refused_after(self, before: int) -> bool:
        """Wait until one more datagram was refused."""
        until = time.monotonic() + 20
        while time.monotonic() < until:
            if self.refused() > before:
                return True
            time.sleep(0.005)
        return False


def outside_window(first_psn: int) -> int:
    """Return a random PSN that no packet in flight has, for a queue pair that began at `first_psn` lately."""
    return (first_psn + random.randrange(1 << 13, (1 << 24) - (1 << 13))) % (1 << 24)


def feedback(kind: str, qpn: int, psn: int) -> MrcPacket:
    """Return a packet that would end or rewind a sender which believed it."""
    bth = {"dqp": qpn, "psn": psn}
    match kind:
        case "transport ACK":
            return compose(Opcode.ACKNOWLEDGE, bth=bth, aeth={"syndrome": random.choice(list(Syndrome)), "msn": psn})
        case "NACK":
            reason = random.choice(list(NackReason))
            return compose(Opcode.NACK, bth=bth, neth={"nack_reason": reason, "nack_psn": psn})
        case _:
            return compose(Opcode.SACK, bth=bth, seth={"cack_psn": psn, "mpr": 4, "sack_bitmap": (1 << 64) - 1})
