"""Frames that the tester bridges: the datagram in one, and the frame again after a switch has marked or trimmed it.

Whatever is around the datagram stays: Ethernet, VLAN tags, outer IPv6 headers, routing headers. Lengths, traffic
classes and checksums follow what changed, in every IP header: a switch sees the outer one, a device the inner one.
"""

import functools
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from openmrc.conform.datagrams import AS_THEY_ARE, TapDatagram, TapPacket, as_seen
from openmrc.errors import WireError
from openmrc.wire.capture import Datagram, dissect, find_datagram, is_of_mrc
from openmrc.wire.codes import UDP_PORTS_ACCEPTED
from openmrc.wire.ip import IPV6_LENGTH, UDP_LENGTH, checksum, udp_checksum
from openmrc.wire.pcapng import LinkType, PcapFrame

# struct virtio_net_hdr, what the kernel has not done yet: flags, gso_type, hdr_len, gso_size, csum_start, csum_offset
OFFLOAD = struct.Struct("=BBHHHH")
NOTHING_LEFT = bytes(OFFLOAD.size)
_UDP_SEGMENTS = 5  # VIRTIO_NET_HDR_GSO_UDP_L4
_CHECKSUM_AT = 6  # in a UDP header
_ETHERNET = 14


@dataclass(frozen=True)
class BridgedFrame:
    """A frame with the datagram that is in it."""

    data: bytes
    found: Datagram

    def tap(self, side: int, plane: int, from_wire: bytes = AS_THEY_ARE) -> TapDatagram:
        """Return its datagram as the tester knows it; `from_wire` are the tester's DSCPs by those of the wire."""
        found = self.found
        ip = found.ip
        return TapDatagram(side, plane, found.udp.source_port, found.payload, from_wire[ip.dscp], ip.ecn, self.data)


def framed(data: bytes) -> PcapFrame:
    """Return an Ethernet frame as captures hold it."""
    return PcapFrame(0, 0, "", LinkType.ETHERNET, data, len(data))


@functools.lru_cache(64)
def bridged(data: bytes, ports: tuple[int, ...] = UDP_PORTS_ACCEPTED) -> BridgedFrame | None:
    """Return a frame that holds a datagram of MRC to one of these ports; None for any other."""
    try:
        found = find_datagram(framed(data))
    except WireError:
        return None
    if found is None or found.udp.destination_port not in ports or not is_of_mrc(found):
        return None
    return BridgedFrame(data, found)


def segments(offload: bytes, frame: BridgedFrame) -> Iterator[bytes]:
    """Yield the datagrams, each in a frame of its own, that the kernel has left for a network card to cut."""
    _, kind, _, size, _, _ = OFFLOAD.unpack(offload)
    if kind != _UDP_SEGMENTS or not size:
        yield frame.data
        return
    payload = frame.found.payload
    for begin in range(0, len(payload), size):
        yield rebuilt(frame, payload[begin : begin + size], frame.found.ip.traffic_class)


def read_frame(datagram: TapDatagram) -> TapPacket:
    """Parse a datagram that was bridged, its ICRC over the addresses that it has."""
    frame = _frame_of(datagram.frame)
    try:
        seen = dissect(framed(frame.data), frame.found, {frame.found.ip.dscp} if datagram.is_trimmed else ())
    except WireError as error:
        return TapPacket(datagram, None, str(error))
    return as_seen(datagram, seen.message, seen.icrc_ok)


def as_changed(datagram: TapDatagram, to_wire: bytes = AS_THEY_ARE) -> bytes:
    """Return the frame of a datagram with its body and traffic class as they are now; `to_wire` translates DSCPs."""
    return rebuilt(_frame_of(datagram.frame), datagram.body, to_wire[datagram.dscp] << 2 | datagram.ecn)


@functools.lru_cache(64)
def _frame_of(data: bytes) -> BridgedFrame:
    """Return a frame that was bridged, whatever its port."""
    found = find_datagram(framed(data))
    if found is None:
        raise AssertionError("a frame without a datagram was bridged")
    return BridgedFrame(data, found)


def rebuilt(frame: BridgedFrame, payload: bytes, traffic_class: int) -> bytes:
    found = frame.found
    data = bytearray(frame.data[: found.udp_at + UDP_LENGTH] + payload)
    inner = [each.inner_at for each in found.outer]
    for at in [_network_at(frame.data), *inner] if inner else [found.ip_at]:
        _patch(data, at, traffic_class)
    data[found.udp_at + 4 : found.udp_at + 6] = _two_bytes(UDP_LENGTH + len(payload))
    if found.udp.checksum:
        _sum(data, found)
    return bytes(data)


def without_link_header(frame: bytes) -> bytes:
    """Return the IP packet of a frame that is bridged."""
    return frame[_network_at(frame) :]


def _network_at(data: bytes) -> int:
    at = _ETHERNET
    while data[at - 2 : at] in (b"\x81\x00", b"\x88\xa8"):
        at += 4
    return at


def _two_bytes(length: int) -> bytes:
    return min(length, 0xFFFF).to_bytes(2, "big")


def _patch(data: bytearray, at: int, traffic_class: int) -> None:
    """Set length and traffic class of one IP header: all that follows it is its payload."""
    if data[at] >> 4 == 6:
        first = int.from_bytes(data[at : at + 4], "big") & ~(0xFF << 20) | traffic_class << 20
        data[at : at + 4] = first.to_bytes(4, "big")
        data[at + 4 : at + 6] = _two_bytes(len(data) - at - IPV6_LENGTH)
    else:
        data[at + 1] = traffic_class
        data[at + 2 : at + 4] = _two_bytes(len(data) - at)
        end = at + (data[at] & 0xF) * 4
        data[at + 10 : at + 12] = bytes(2)
        data[at + 10 : at + 12] = checksum(bytes(data[at:end])).to_bytes(2, "big")


def _sum(data: bytearray, found: Datagram) -> None:
    """Compute the UDP checksum anew: the kernel may have left it to a network card."""
    at = found.udp_at
    data[at + _CHECKSUM_AT : at + UDP_LENGTH] = bytes(2)
    value = udp_checksum(found.ip.source, found.ip.destination, bytes(data[at:])) or 0xFFFF
    data[at + _CHECKSUM_AT : at + UDP_LENGTH] = value.to_bytes(2, "big")
