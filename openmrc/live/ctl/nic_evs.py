"""The EVs that a NIC's sockets carry, as profiles see them: 32 bytes and a port.

A packet's EV is its UDP source port (with STEV also the flow label), and for each a socket is open. A profile can
therefore choose among these, not invent others: EXPLICIT lists them, GENERATED takes those within its fields. With
SRv6 an EV is the address that leads to a peer, which is known when a queue pair connects.
"""

from ipaddress import ip_address
from operator import itemgetter

import numpy as np

from openmrc.ctl.profiles.ev_array import EvEntry
from openmrc.ctl.profiles.ev_format import EV_BYTES, EvExpansion, EvFormatMode
from openmrc.ctl.profiles.ev_generation import in_turn
from openmrc.errors import InvalidArgumentError, TooBigError
from openmrc.live.attributes import EvFormat
from openmrc.live.host.peers import Peers
from openmrc.live.host.sockets import Sockets

MODES = {EvFormat.UDP: EvFormatMode.UDP, EvFormat.STEV: EvFormatMode.STEV, EvFormat.SRV6: EvFormatMode.SRV6}
_BYTES = {EvFormatMode.UDP: 2, EvFormatMode.STEV: 4}


class NicEvs:
    def __init__(self, sockets: Sockets, peers: Peers) -> None:
        self._sockets = sockets
        self._peers = peers
        self.mode = MODES[sockets.attr.ev_format]
        self._is_srv6 = self.mode == EvFormatMode.SRV6
        self._carried = [
            {} if self._is_srv6 else {self._wire(value): value for value in sockets.evs(plane)}
            for plane in range(len(sockets.addresses))
        ]

    def generated(self, expansion: EvExpansion, count: int, seed: int) -> list[EvEntry]:
        """Return `count` of the carried EVs within the bounds of the fields, of all ports in turn."""
        if self._is_srv6:
            raise InvalidArgumentError("mode: GENERATED; SRv6 addresses lead to one peer each, so list them: EXPLICIT")
        found = [
            [EvEntry(ev, plane + 1) for wire in wires if (ev := expansion.contracted(wire)) is not None]
            for plane, wires in enumerate(self._carried)
        ]
        available = sum(len(evs) for evs in found)
        if count > available:
            raise TooBigError(f"count: {count} EVs; {available} of this endpoint are within the fields", available)
        return _in_turn(found, count, seed)

    def check_ports(self, ports: set[int]) -> None:
        """Raise EINVAL unless every port has an EV: all planes carry the same load."""
        for port in range(1, len(self._carried) + 1):
            if port not in ports:
                raise InvalidArgumentError(f"EV profile: no EV on port {port}; each of {len(self._carried)} needs one")

    def check(self, mode: EvFormatMode, ev: EvEntry, expanded: bytes, name: str) -> None:
        """Raise EINVAL for an EV that no socket carries."""
        if self._is_srv6 or expanded in self._carried[ev.port - 1]:
            return
        width = 2 * _BYTES[mode]
        known = ", ".join(wire.hex()[:width] for wire in list(self._carried[ev.port - 1])[:16])
        raise InvalidArgumentError(f"{name}: {expanded.hex()[:width]} is not carried on port {ev.port}; it has {known}")

    def values(self, plane: int, peer: int) -> dict[bytes, int]:
        """Return the EVs of a plane towards a peer: bits on the wire -> the engine's value."""
        if not self._is_srv6:
            return self._carried[plane]
        return {_address(self._peers.path(peer, plane, value)): value for value in self._sockets.evs(plane)}

    def own(self, value: int) -> bytes:
        """Return the 32 bytes of an EV that no profile lists."""
        return (value & 0xFFFF).to_bytes(2, "big").ljust(EV_BYTES, b"\0") if self._is_srv6 else self._wire(value)

    def _wire(self, value: int) -> bytes:
        size = _BYTES[self.mode]
        return (value & (1 << 8 * size) - 1).to_bytes(size, "big").ljust(EV_BYTES, b"\0")


def _address(text: str) -> bytes:
    return ip_address(text.partition("%")[0]).packed.ljust(EV_BYTES, b"\0")


def _in_turn(found: list[list[EvEntry]], count: int, seed: int) -> list[EvEntry]:
    """Return `count` EVs, of each port in turn and in random order within one."""
    lengths = np.array([len(evs) for evs in found])
    ranks = np.zeros((len(found), max(lengths)), np.int64)
    in_turn(ranks, lengths, seed)
    ranked = [(int(ranks[port, k]), ev) for port, evs in enumerate(found) for k, ev in enumerate(evs)]
    return [ev for rank, ev in sorted(ranked, key=itemgetter(0)) if rank < count]
