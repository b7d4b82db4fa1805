"""SRv6 with compressed segments: carrier addresses, and encapsulation in IPv6.

A *carrier* is an IPv6 address of a 32-bit block followed by up to six 16-bit uSIDs, one per switch
(F3216 of RFC 9800). Each switch finds its own uSID first, removes it, shifts the others up and routes by
the new address. A Segment Routing Header (RFC 8754) extends the path by further carriers; encap is
reduced, so the first one is the destination address only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import NamedTuple

from openmrc.errors import Malformed, MisuseError, Truncated
from openmrc.wire.ip import (
    DEFAULT_HOP_LIMIT,
    IPV6_LENGTH,
    PROTOCOL_IPV4,
    PROTOCOL_IPV6,
    PROTOCOL_ROUTING,
    IpHeader,
    parse_ip,
)

BLOCK_BITS = 32
USID_BITS = 16
MOST_USIDS = (128 - BLOCK_BITS) // USID_BITS
DEFAULT_BLOCK = 0xFCBBBBBB  # fcbb:bbbb::/32
_ROUTING_TYPE_SRH = 4
_SRH_FIXED, _SEGMENT = 8, 16  # bytes
_USIDS_MASK = (1 << (128 - BLOCK_BITS)) - 1


def carrier(usids: Sequence[int], block: int = DEFAULT_BLOCK) -> IPv6Address:
    """Return the carrier of a path through `usids`, first hop first."""
    if len(usids) > MOST_USIDS:
        raise MisuseError(f"{len(usids)} uSIDs do not fit in one address: at most {MOST_USIDS}")
    if not all(0 < usid < 1 << USID_BITS for usid in usids):
        raise MisuseError(f"uSIDs are 1 to {(1 << USID_BITS) - 1}: {list(usids)}")
    value = block
    for usid in usids:
        value = value << USID_BITS | usid
    return IPv6Address(value << USID_BITS * (MOST_USIDS - len(usids)))


def usids(address: IPv6Address) -> tuple[int, ...]:
    """Return the remaining uSIDs of a carrier: those before the first zero."""
    left = []
    for place in reversed(range(MOST_USIDS)):
        usid = int(address) >> place * USID_BITS & (1 << USID_BITS) - 1
        if not usid:
            break
        left.append(usid)
    return tuple(left)


def shift(address: IPv6Address) -> IPv6Address | None:
    """Return the address after a switch (uN) removed its uSID; None if it was the last one."""
    rest = int(address) << USID_BITS & _USIDS_MASK
    return IPv6Address(int(address) & ~_USIDS_MASK | rest) if rest else None


@dataclass(frozen=True)
class SegmentRoutingHeader:
    """An SRH; `segments` are in its own order, the last of the path first."""

    protocol: int
    segments_left: int
    segments: tuple[IPv6Address, ...]
    flags: int = 0
    tag: int = 0

    @property
    def length(self) -> int:
        """Bytes."""
        return _SRH_FIXED + _SEGMENT * len(self.segments)

    def emit(self) -> bytes:
        """Return the header without TLVs."""
        text = self.length // 8 - 1
        start = bytes([self.protocol, text, _ROUTING_TYPE_SRH, self.segments_left, len(self.segments) - 1, self.flags])
        return start + self.tag.to_bytes(2, "big") + b"".join(segment.packed for segment in self.segments)


@dataclass(frozen=True)
class Encapsulation:
    """Outer header of a packet, its SRH if present, and the offset of the inner packet."""

    outer: IpHeader
    srh: SegmentRoutingHeader | None
    inner_at: int
    vni: int | None = None  # of VXLAN, which has an Ethernet frame inside


def encapsulate(
    inner: bytes, source: IPv6Address, path: Sequence[IPv6Address], *, reduced: bool = True, flow_label: int = 0
) -> bytes:
    """Encapsulate an IP packet in IPv6 along the addresses of `path`.

    The outer traffic class is the inner one. `reduced` omits the first address from the SRH, and the SRH if it would be
    empty; otherwise the SRH contains the whole path.
    """
    if not path:
        raise MisuseError("a path has at least one address")
    ip, _ = parse_ip(inner)
    protocol = PROTOCOL_IPV6 if ip.version == 6 else PROTOCOL_IPV4
    listed = tuple(reversed(path[1:] if reduced else path))
    srh = SegmentRoutingHeader(protocol, len(path) - 1, listed).emit() if listed else b""
    outer = IpHeader(
        source,
        path[0],
        len(srh) + len(inner),
        protocol=PROTOCOL_ROUTING if srh else protocol,
        traffic_class=ip.traffic_class,
        flow_label=flow_label,
        hop_limit=DEFAULT_HOP_LIMIT,
    )
    return outer.emit() + srh + inner


def parse_encapsulation(data: bytes, at: int = 0) -> Encapsulation | None:
    """Parse an outer IPv6 header at `data[at:]`; None if it does not encapsulate an IP packet."""
    outer, end = parse_ip(data, at)
    if outer.version != 6:
        return None
    srh, protocol = None, outer.protocol
    if protocol == PROTOCOL_ROUTING:
        srh = parse_srh(data, at + IPV6_LENGTH)
        end, protocol = end + _srh_length(data, end), srh.protocol
    return Encapsulation(outer, srh, end) if protocol in (PROTOCOL_IPV4, PROTOCOL_IPV6) else None


def _srh_length(data: bytes, at: int) -> int:
    return 8 * (data[at + 1] + 1)


def parse_srh(data: bytes, at: int) -> SegmentRoutingHeader:
    """Parse an SRH at `data[at:]`; TLVs after the segments are skipped."""
    if at + _SRH_FIXED > len(data) or at + _srh_length(data, at) > len(data):
        raise Truncated("truncated routing header", len(data))
    protocol, _, kind, segments_left, last, flags = data[at : at + 6]
    if kind != _ROUTING_TYPE_SRH:
        raise Malformed("not a segment routing header", at + 2)
    if _SRH_FIXED + _SEGMENT * (last + 1) > _srh_length(data, at) or segments_left > last + 1:
        raise Malformed("bad segment list", at + 3)
    begins = range(at + _SRH_FIXED, at + _SRH_FIXED + _SEGMENT * (last + 1), _SEGMENT)
    segments = tuple(IPv6Address(data[begin : begin + _SEGMENT]) for begin in begins)
    return SegmentRoutingHeader(protocol, segments_left, segments, flags, int.from_bytes(data[at + 6 : at + 8], "big"))


class UsidRange(NamedTuple):
    """The uSIDs of a tier, and the switch of each.

    With offset = uSID - first, the switch is offset // outer * outer_weight + offset % outer // inner * inner_weight.
    """

    kind: str  # "t0", "t1", "t2", "port" or "nic"
    first: int
    values: int  # uSIDs in the range
    outer: int = 1 << 16
    outer_weight: int = 0
    inner: int = 1  # uSIDs of one switch: its parallel links
    inner_weight: int = 1
    digits: int = 0  # of a switch's number in its name


class CarrierPlane(NamedTuple):
    """The block and the ranges of one plane."""

    plane: int
    block: int  # upper 32 bits
    ranges: tuple[UsidRange, ...]
