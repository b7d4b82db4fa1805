"""Convert tapped packets into frames of a capture file: IPv6, UDP and the MRC headers, encoded from the wire's table.

Frames have MRC's SRv6 form. The outer destination is the path of the packet's EV as uSIDs, complete at the sending NIC
and reduced to its own address at the receiving one; the inner addresses are the NICs' identities, the source port is
0xC000 and the low 14 bits of the EV (`Placement.SRV6`). In a fabric without uSIDs, or with switches that hash, there is
no outer header. UDP checksums are 0 (RFC 6935).

Payload is not simulated: it reads as zeros, and the ICRC covers zeros. A frame longer than `snaplen` is truncated, with
its original lengths. A packet that a switch trimmed ends after its headers, without ICRC, with the lengths and the DSCP
that the switch wrote.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Any

import numpy as np

from openmrc.errors import ConfigError
from openmrc.fabric.addressing.paths import Choice, path
from openmrc.fabric.addressing.usid import UsidPlan, identity, usid_plan
from openmrc.fabric.model.topology import Topology
from openmrc.sim.network.forwarding.path_of_ev import choices
from openmrc.sim.transports.mrc.tap import Taps
from openmrc.units import PS_PER_NS
from openmrc.wire import codec
from openmrc.wire.codes import CONGESTED, DSCP, DSCP_TRIMMED, DSCP_TRIMMED_LASTHOP, ECT0, UDP_PORT, Trim
from openmrc.wire.entropy import EvPlacement, source_port
from openmrc.wire.icrc import icrc
from openmrc.wire.ip import IPV6_LENGTH, PROTOCOL_IPV6, UDP_LENGTH, IpHeader, UdpHeader
from openmrc.wire.layout import COLUMN, ICRC_LENGTH, LONGEST_HEADER

_DSCP_OF_TRIM = {Trim.TRIMMED: DSCP_TRIMMED, Trim.TRIMMED_LASTHOP: DSCP_TRIMMED_LASTHOP}


@dataclass(frozen=True)
class CapturedFrame:
    """One frame, from its outermost IP header on."""

    plane: int
    time_ns: int  # of the simulation
    data: bytes
    original_length: int  # bytes on the wire


class Writer:
    """Creates the frames of one run."""

    def __init__(self, topology: Topology, tapped: Taps, snaplen: int, *, by_tables: bool = True) -> None:
        """Limit frames to `snaplen` bytes; `by_tables`: switches forward by uSID tables."""
        self._tapped = tapped
        self._snaplen = snaplen
        self._plan = _plan(topology) if by_tables else None
        self._path = functools.lru_cache(maxsize=1 << 16)(self._path_of)

    def frames(self, nic: int) -> Iterator[CapturedFrame]:
        """Yield the frames of a NIC in order of time."""
        tapped, tap = self._tapped, self._tapped.taps[nic]
        room = np.zeros(LONGEST_HEADER, np.uint8)
        for row in range(tap.first, tap.first + tap.count):
            length = codec.encode(tapped.kept, row, room, 0)
            packet = {name: int(tapped.kept[row, column]) for name, column in COLUMN.items()}
            data, original = self._frame(packet, room[:length].tobytes(), tapped.seen[row].outgoing == 1)
            yield CapturedFrame(packet["port"], tapped.seen[row].at // PS_PER_NS, data, original)

    def _frame(self, packet: dict[str, Any], headers: bytes, outgoing: bool) -> tuple[bytes, int]:
        """Return the captured part of a frame, and its original length."""
        plane, trimmed, payload = packet["port"], packet["trimmed"], packet["payload_length"]
        behind = 0 if trimmed else payload + (-payload & 3) + ICRC_LENGTH
        length = UDP_LENGTH + len(headers) + behind
        dscp = _DSCP_OF_TRIM[Trim(trimmed)] if trimmed else DSCP[packet["traffic_class"]]
        traffic = dscp << 2 | (CONGESTED if packet["marked"] else ECT0)
        source, destination = (_identity(plane, packet[end]) for end in ("source", "destination"))
        ip = IpHeader(source, destination, length, traffic_class=traffic).emit()
        udp = UdpHeader(source_port(EvPlacement.SRV6, packet["entropy"]), UDP_PORT, length).emit()
        outer = b""
        if self._plan is not None:
            ends = packet["source"] if outgoing else -1, packet["destination"]
            way = self._path(plane, *ends, packet["entropy"] if outgoing else 0)
            inner = IPV6_LENGTH + length
            outer = IpHeader(source, way, inner, protocol=PROTOCOL_IPV6, traffic_class=traffic).emit()
        before = outer + ip + udp
        whole = len(before) + len(headers) + behind
        if trimmed or whole > self._snaplen:
            return (before + headers + bytes(behind))[: self._snaplen], whole
        body = headers + bytes(behind - ICRC_LENGTH)
        return before + body + icrc(ip, udp, body).to_bytes(ICRC_LENGTH, "big"), whole

    def _path_of(self, plane: int, source: int, destination: int, ev: int) -> IPv6Address:
        """Return the outer destination; `source` -1: the packet has arrived."""
        assert self._plan is not None
        if source < 0:
            return IPv6Address(self._plan.nic_address(plane, destination))
        choice = Choice(plane, *choices(self._plan.planes[plane].shape, ev))
        return IPv6Address(path(self._plan, source, destination, choice).address)


@functools.lru_cache(maxsize=1 << 16)
def _identity(plane: int, nic: int) -> IPv6Address:
    return IPv6Address(identity(plane, nic))


def _plan(topology: Topology) -> UsidPlan | None:
    try:
        return usid_plan(topology)
    except ConfigError:  # too long for one address, for example: the simulator runs such a fabric anyway
        return None
