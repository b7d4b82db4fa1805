"""IPv4, IPv6 and UDP headers, as far as RoCEv2 datagrams use them."""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from openmrc.errors import Malformed, Truncated

Address = IPv4Address | IPv6Address

PROTOCOL_IPV4, PROTOCOL_UDP, PROTOCOL_IPV6, PROTOCOL_ROUTING = 4, 17, 41, 43
IPV4_LENGTH, IPV6_LENGTH, UDP_LENGTH = 20, 40, 8
DEFAULT_HOP_LIMIT = 64
_MORE_FRAGMENTS, _FRAGMENT_OFFSET, _DONT_FRAGMENT = 0x2000, 0x1FFF, 0x4000


@dataclass(frozen=True)
class IpHeader:
    """Fields common to IPv4 and IPv6, and the flow label (0 for IPv4)."""

    source: Address
    destination: Address
    payload_length: int  # bytes after this header, as it states
    protocol: int = PROTOCOL_UDP  # IPv6: next header
    traffic_class: int = 0  # DSCP in the upper 6 bits, ECN in the lower 2
    flow_label: int = 0  # 20 bits
    hop_limit: int = DEFAULT_HOP_LIMIT

    @property
    def version(self) -> int:
        return self.source.version

    @property
    def dscp(self) -> int:
        return self.traffic_class >> 2

    @property
    def ecn(self) -> int:
        return self.traffic_class & 3

    def emit(self) -> bytes:
        """Return the header, without options; IPv4 with identification 0 and DF (RFC 6864)."""
        addresses = self.source.packed + self.destination.packed
        if self.version == 6:
            first = 6 << 28 | self.traffic_class << 20 | self.flow_label
            rest = self.payload_length.to_bytes(2, "big") + bytes([self.protocol, self.hop_limit])
            return first.to_bytes(4, "big") + rest + addresses
        length = (IPV4_LENGTH + self.payload_length).to_bytes(2, "big")
        start = bytes([0x45, self.traffic_class]) + length + bytes(2) + _DONT_FRAGMENT.to_bytes(2, "big")
        start += bytes([self.hop_limit, self.protocol])
        return start + checksum(start + addresses).to_bytes(2, "big") + addresses


@dataclass(frozen=True)
class UdpHeader:
    """UDP; checksum 0 means none (over IPv6 too, RFC 6935)."""

    source_port: int
    destination_port: int
    length: int  # bytes, this header included
    checksum: int = 0

    def emit(self) -> bytes:
        """Return the 8 bytes."""
        numbers = (self.source_port, self.destination_port, self.length, self.checksum)
        return b"".join(number.to_bytes(2, "big") for number in numbers)


def checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071)."""
    # Adding 16-bit words with end-around carry is counting modulo 65,535: one division instead of a loop.
    total = int.from_bytes(data + bytes(len(data) % 2), "big")
    return 0xFFFF - (total % 0xFFFF or min(total, 0xFFFF))


def udp_checksum(source: Address, destination: Address, udp: bytes) -> int:
    """Return the checksum of a UDP header and its payload; of a header with its checksum 0 if that is right."""
    pseudo = source.packed + destination.packed + len(udp).to_bytes(4, "big") + PROTOCOL_UDP.to_bytes(4, "big")
    return checksum(pseudo + udp)


def parse_ip(data: bytes, at: int = 0) -> tuple[IpHeader, int]:
    """Parse the IP header at `data[at:]`; return it and the offset of its end."""
    if at >= len(data):
        raise Truncated("truncated IP header", at)
    match data[at] >> 4:
        case 4:
            return _parse_ipv4(data, at)
        case 6:
            return _parse_ipv6(data, at)
        case _:
            raise Malformed("neither IPv4 nor IPv6", at)


def _parse_ipv4(data: bytes, at: int) -> tuple[IpHeader, int]:
    length = (data[at] & 0xF) * 4
    if length < IPV4_LENGTH:
        raise Malformed("bad IPv4 header length", at)
    if at + length > len(data):
        raise Truncated("truncated IP header", len(data))
    total, fragment = int.from_bytes(data[at + 2 : at + 4], "big"), int.from_bytes(data[at + 6 : at + 8], "big")
    if total < length:
        raise Malformed("bad IPv4 total length", at + 2)
    if fragment & (_MORE_FRAGMENTS | _FRAGMENT_OFFSET):
        raise Malformed("IP fragment", at + 6)
    header = IpHeader(
        IPv4Address(data[at + 12 : at + 16]),
        IPv4Address(data[at + 16 : at + 20]),
        total - length,
        protocol=data[at + 9],
        traffic_class=data[at + 1],
        hop_limit=data[at + 8],
    )
    return header, at + length


def _parse_ipv6(data: bytes, at: int) -> tuple[IpHeader, int]:
    if at + IPV6_LENGTH > len(data):
        raise Truncated("truncated IP header", len(data))
    first = int.from_bytes(data[at : at + 4], "big")
    header = IpHeader(
        IPv6Address(data[at + 8 : at + 24]),
        IPv6Address(data[at + 24 : at + 40]),
        int.from_bytes(data[at + 4 : at + 6], "big"),
        protocol=data[at + 6],
        traffic_class=first >> 20 & 0xFF,
        flow_label=first & 0xFFFFF,
        hop_limit=data[at + 7],
    )
    return header, at + IPV6_LENGTH


def parse_udp(data: bytes, at: int) -> tuple[UdpHeader, int]:
    """Parse the UDP header at `data[at:]`; return it and the offset of its end."""
    if at + UDP_LENGTH > len(data):
        raise Truncated("truncated UDP header", len(data))
    numbers = [int.from_bytes(data[at + i : at + i + 2], "big") for i in range(0, UDP_LENGTH, 2)]
    header = UdpHeader(*numbers)
    if header.length < UDP_LENGTH:
        raise Malformed("bad UDP length", at + 4)
    return header, at + UDP_LENGTH


def datagram(
    source: Address,
    destination: Address,
    source_port: int,
    destination_port: int,
    payload: bytes,
    *,
    traffic_class: int = 0,
    flow_label: int = 0,
) -> bytes:
    """Return IP header, UDP header and payload."""
    length = UDP_LENGTH + len(payload)
    ip = IpHeader(source, destination, length, traffic_class=traffic_class, flow_label=flow_label)
    unsummed = UdpHeader(source_port, destination_port, length).emit() + payload
    udp = UdpHeader(source_port, destination_port, length, udp_checksum(source, destination, unsummed) or 0xFFFF)
    return ip.emit() + udp.emit() + payload
