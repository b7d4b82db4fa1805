"""Parsing of a captured frame, from the link layer to the MRC packet."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address

from openmrc.errors import Malformed, Truncated, WireError
from openmrc.wire.codes import DSCP_TRIMMED, DSCP_TRIMMED_LASTHOP, MRC_OPCODE_GROUP
from openmrc.wire.icrc import icrc
from openmrc.wire.ip import (
    IPV6_LENGTH,
    PROTOCOL_IPV4,
    PROTOCOL_IPV6,
    PROTOCOL_ROUTING,
    PROTOCOL_UDP,
    UDP_LENGTH,
    IpHeader,
    UdpHeader,
    parse_ip,
    parse_udp,
)
from openmrc.wire.layout import ICRC_LENGTH
from openmrc.wire.message import MrcPacket, parse
from openmrc.wire.pcapng import LinkType, PcapFrame
from openmrc.wire.srv6 import Encapsulation, parse_encapsulation, parse_srh, shift

DEFAULT_TRIMMED_DSCP = frozenset((DSCP_TRIMMED, DSCP_TRIMMED_LASTHOP))  # each deployment chooses its own
DEEPEST_NESTING = 4  # IP headers around one packet
_WRAPPING = (PROTOCOL_IPV4, PROTOCOL_IPV6, PROTOCOL_ROUTING)
_VLAN_TAGS = (0x8100, 0x88A8)
_ETHERTYPE_IPV4, _ETHERTYPE_IPV6 = 0x0800, 0x86DD
_ADDRESS_FAMILIES = {2, 10, 24, 28, 30}  # IPv4, then IPv6 of Linux, NetBSD and OpenBSD, FreeBSD, macOS
_FAMILY_LENGTH = 4
_VXLAN_PORT, _VXLAN_LENGTH, _VXLAN_HAS_VNI = 4789, 8, 0x08  # RFC 7348 section 5
# link type -> bytes before the two of the ethertype, and bytes of the whole header
_LINK_HEADERS = {LinkType.ETHERNET: (12, 14), LinkType.LINUX_SLL: (14, 16), LinkType.LINUX_SLL2: (0, 20)}


@dataclass(frozen=True)
class Datagram:
    """A UDP datagram and its outer headers."""

    outer: tuple[Encapsulation, ...]
    ip: IpHeader
    ip_at: int
    udp: UdpHeader
    udp_at: int
    payload: bytes  # captured part of the payload
    is_cut: bool  # shorter than the headers state


@dataclass(frozen=True)
class Dissected:
    """An MRC packet in its datagram."""

    datagram: Datagram
    message: MrcPacket
    payload_length: int  # bytes, of the packet as sent if the capture truncated it
    icrc_ok: bool | None  # None: no ICRC present


def find_datagram(frame: PcapFrame) -> Datagram | None:
    """Return the UDP datagram of a frame, None if there is none; raise WireError if it is malformed."""
    data = frame.data
    at = _network_at(data, frame.link_type)
    if at is None:
        return None
    outer: list[Encapsulation] = []
    for _ in range(DEEPEST_NESTING):
        ip, end = parse_ip(data, at)
        udp_at = _udp_at(data, ip, end)
        if udp_at is not None:
            found = _datagram(data, tuple(outer), ip, at, udp_at)
            if not _is_vxlan(found):
                return found
            wrapped = _parse_vxlan(data, found)
        else:
            wrapped = parse_encapsulation(data, at) if ip.protocol in _WRAPPING else None
        if wrapped is None:
            return None
        outer.append(wrapped)
        at = wrapped.inner_at
    raise Malformed("IP headers nested too deep", at)


def _udp_at(data: bytes, ip: IpHeader, end: int) -> int | None:
    """Return the offset of a UDP header behind an IP header that ends at `end`, and its SRH; None if there is none."""
    if ip.protocol == PROTOCOL_UDP:
        return end
    if ip.version == 6 and ip.protocol == PROTOCOL_ROUTING:
        srh = parse_srh(data, end)
        return end + srh.length if srh.protocol == PROTOCOL_UDP else None
    return None


def _parse_vxlan(data: bytes, tunnel: Datagram) -> Encapsulation | None:
    """Return where the IP packet in a VXLAN datagram begins; None if the frame in it carries another protocol."""
    at = _network_at(data, LinkType.ETHERNET, tunnel.udp_at + UDP_LENGTH + _VXLAN_LENGTH)
    vni = int.from_bytes(tunnel.payload[4:7], "big")
    return Encapsulation(tunnel.ip, None, at, vni) if at is not None else None


def _is_vxlan(datagram: Datagram) -> bool:
    return (
        datagram.udp.destination_port == _VXLAN_PORT
        and len(datagram.payload) >= _VXLAN_LENGTH
        and bool(datagram.payload[0] & _VXLAN_HAS_VNI)
    )


def _network_at(data: bytes, link_type: int, begin: int = 0) -> int | None:
    """Return the offset of the IP header of a frame at `data[begin:]`; None if it carries another protocol."""
    if link_type in (LinkType.RAW, LinkType.IPV4, LinkType.IPV6):
        return begin
    if link_type in (LinkType.NULL, LinkType.LOOP):
        return _after_family(data)
    if link_type not in _LINK_HEADERS:
        raise Malformed(f"link type {link_type} is not supported")
    type_at, length = _LINK_HEADERS[LinkType(link_type)]
    type_at, at = begin + type_at, begin + length
    ethertype = int.from_bytes(data[type_at : type_at + 2], "big")
    while ethertype in _VLAN_TAGS and link_type != LinkType.LINUX_SLL2:
        ethertype = int.from_bytes(data[at + 2 : at + 4], "big")
        at += 4
    if at > len(data):
        raise Truncated("truncated link header", len(data))
    return at if ethertype in (_ETHERTYPE_IPV4, _ETHERTYPE_IPV6) else None


def _after_family(data: bytes) -> int | None:
    """Return the offset of the IP header after an address family, whose byte order the file does not say."""
    if len(data) < _FAMILY_LENGTH:
        raise Truncated("truncated link header", len(data))
    families = {int.from_bytes(data[:_FAMILY_LENGTH], order) for order in ("little", "big")}
    return _FAMILY_LENGTH if families & _ADDRESS_FAMILIES else None


def _datagram(data: bytes, outer: tuple[Encapsulation, ...], ip: IpHeader, ip_at: int, udp_at: int) -> Datagram:
    udp, at = parse_udp(data, udp_at)
    ip_end = (udp_at if ip.version == 4 else ip_at + IPV6_LENGTH) + ip.payload_length
    # Ethernet pads short frames, and a switch that trims may leave either length unchanged.
    end = min(ip_end, udp_at + udp.length, len(data))
    return Datagram(outer, ip, ip_at, udp, udp_at, data[at:end], is_cut=end < udp_at + udp.length)


def is_of_mrc(datagram: Datagram) -> bool:
    """Return whether a datagram to an MRC port is of MRC, by its opcode: RoCEv2 has the same port and other opcodes."""
    return bool(datagram.payload) and datagram.payload[0] >> 5 == MRC_OPCODE_GROUP


def dissect(frame: PcapFrame, datagram: Datagram, trimmed_dscp: Collection[int] = DEFAULT_TRIMMED_DSCP) -> Dissected:
    """Parse the MRC packet of a datagram; raise WireError.

    A packet counts as trimmed if its DSCP says so and it is not a whole packet with a correct ICRC, or if its lengths
    exceed the data. If only the capture truncated it, the payload length is still known.
    """
    if not datagram.is_cut:
        try:
            message = parse(datagram.payload)
            icrc_ok = icrc_matches(frame.data, datagram)
            if icrc_ok or datagram.ip.dscp not in trimmed_dscp:
                return Dissected(datagram, message, len(message.payload), icrc_ok)
        except WireError:
            if datagram.ip.dscp not in trimmed_dscp:
                raise
    message = parse(datagram.payload, trimmed=True)
    if len(frame.data) < frame.original_length and datagram.ip.dscp not in trimmed_dscp:
        whole = datagram.udp.length - UDP_LENGTH - len(message.emit()) - message.bth["pad"] - ICRC_LENGTH
        return Dissected(datagram, replace(message, trimmed=False), max(whole, 0), None)
    return Dissected(datagram, message, 0, None)


def icrc_matches(data: bytes, datagram: Datagram) -> bool:
    """Return whether the ICRC matches the headers.

    It is computed over the final headers: a destination that is a path has lost all uSIDs but the last. IPv4
    identification may have been computed as 0, because a sender that uses a socket does not know it.
    """
    udp = data[datagram.udp_at : datagram.udp_at + UDP_LENGTH]
    body, found = datagram.payload[:-ICRC_LENGTH], int.from_bytes(datagram.payload[-ICRC_LENGTH:], "big")
    return any(icrc(ip, udp, body) == found for ip in _ip_headers(data, datagram))


def _ip_headers(data: bytes, datagram: Datagram) -> Iterator[bytes]:
    """Yield the IP header as captured, then as the sender may have computed it."""
    destination = datagram.ip.destination
    if isinstance(destination, IPv4Address):
        header = data[datagram.ip_at : datagram.udp_at]
        yield header
        yield header[:4] + bytes(2) + header[6:]
        return
    before = data[datagram.ip_at : datagram.ip_at + IPV6_LENGTH - 16]
    left: IPv6Address | None = destination
    while left is not None:
        yield before + left.packed
        left = shift(left)
