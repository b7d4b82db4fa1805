"""The tester's datagrams: what it sends to a device and what arrives, sealed and checked with the package's own codec.

Within the tester each traffic class has the DSCP of public examples; a link translates those of the deployment.

A *side* is one device under test, a *link* the pair of addresses that tester and device use on one plane. The EV of a
packet is its UDP source port, which all formats of EVs carry at least in part.
"""

import functools
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

import msgspec

from openmrc.errors import WireError
from openmrc.wire import ip
from openmrc.wire.codes import DSCP, DSCP_TRIMMED, DSCP_TRIMMED_LASTHOP, ECT0, UDP_PORT, TrafficClass
from openmrc.wire.headers import stack
from openmrc.wire.icrc import icrc
from openmrc.wire.layout import ICRC_LENGTH
from openmrc.wire.message import MrcPacket, parse

REQUESTER_SIDE, RESPONDER_SIDE = 0, 1  # of a relayed test; alone, a device is side 0
OTHER_SIDE = {REQUESTER_SIDE: RESPONDER_SIDE, RESPONDER_SIDE: REQUESTER_SIDE}
TRIMMED_DSCPS = (DSCP_TRIMMED, DSCP_TRIMMED_LASTHOP)
DSCP_BITS = 6
_DONT_FRAGMENT = 0x4000  # of the flags of an IPv4 header
DATA_DSCP, CONTROL_DSCP = DSCP[TrafficClass.TRIMMABLE], DSCP[TrafficClass.CONTROL]


class DscpNumbers(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The DSCPs of a deployment; what is not named has the number of public examples."""

    data: int = DSCP[TrafficClass.TRIMMABLE]  # what a switch may trim
    retransmitted: int = DSCP[TrafficClass.TRIMMABLE_RETX]
    no_trim: int = DSCP[TrafficClass.NO_TRIM]
    control: int = DSCP[TrafficClass.CONTROL]
    trimmed: int = DSCP_TRIMMED
    lasthop: int = DSCP_TRIMMED_LASTHOP

    def __post_init__(self) -> None:
        """Raise ValueError for what is no DSCP."""
        for name in self.__struct_fields__:
            if not 0 <= getattr(self, name) < 1 << DSCP_BITS:
                raise ValueError(f"{name} is {getattr(self, name)}, not in 0..63")


USUAL_DSCPS = DscpNumbers()


AS_THEY_ARE = bytes(range(1 << DSCP_BITS))


@functools.lru_cache(64)
def translations(numbers: DscpNumbers) -> tuple[bytes, bytes]:
    """Return the DSCPs on the wire by the tester's, and the tester's by those on the wire.

    A number of the wire that is none of the deployment's stays, or becomes one that stands for no class.
    """
    to_wire = {getattr(USUAL_DSCPS, name): getattr(numbers, name) for name in numbers.__struct_fields__}
    from_wire: dict[int, int] = {}
    for tester, wire in to_wire.items():
        from_wire.setdefault(wire, tester)
    strangers = [each for each in AS_THEY_ARE if each not in from_wire]
    from_wire |= {each: each for each in strangers if each not in to_wire}
    unused = (each for each in AS_THEY_ARE if each not in from_wire.values())
    from_wire |= {each: next(unused, each) for each in strangers if each not in from_wire}
    to_wire |= {tester: wire for wire, tester in from_wire.items() if tester not in to_wire}
    return bytes(to_wire.get(each, each) for each in AS_THEY_ARE), bytes(from_wire[each] for each in AS_THEY_ARE)


@dataclass(frozen=True)
class TapLink:
    """Addresses of tester and device on one plane of one side."""

    here: IPv4Address | IPv6Address
    there: IPv4Address | IPv6Address
    here_port: int = UDP_PORT
    there_port: int = UDP_PORT
    to_wire: bytes = AS_THEY_ARE  # DSCPs on the wire, by the tester's
    from_wire: bytes = AS_THEY_ARE  # and the other way round


class TapDatagram(msgspec.Struct, frozen=True):
    """A datagram sent or received by the tester."""

    side: int
    plane: int
    source_port: int
    body: bytes  # UDP payload: BTH to ICRC
    dscp: int = DATA_DSCP
    ecn: int = ECT0

    frame: bytes = b""  # the whole of it as captured, where the tester bridges links and changes no address
    is_of_stranger: bool = False  # sent from an address of the tester that the device does not know

    @property
    def is_trimmed(self) -> bool:
        """Whether a switch trimmed it, by its DSCP."""
        return self.dscp in TRIMMED_DSCPS


@dataclass(frozen=True)
class TapPacket:
    """A datagram with what it says."""

    datagram: TapDatagram
    message: MrcPacket | None  # None: not a packet of MRC
    problem: str = ""  # why it is not a whole and intact packet
    icrc_ok: bool | None = None  # None: trimmed, or not a packet
    supposing: str = ""  # what the tester cannot see and the ICRC says of the IP header

    @property
    def name(self) -> str:
        """Return the name of the opcode, or the reason why there is none."""
        return self.message.opcode.name if self.message is not None else self.problem


def ip_frame(datagram: TapDatagram, link: TapLink, from_device: bool) -> bytes:
    """Return the datagram as an IP packet, for captures."""
    ends = (link.there, link.here, link.here_port) if from_device else (link.here, link.there, link.there_port)
    source, destination, port = ends
    traffic_class = link.to_wire[datagram.dscp] << 2 | datagram.ecn
    return ip.datagram(source, destination, datagram.source_port, port, datagram.body, traffic_class=traffic_class)


def seal(body: bytes, source_port: int, link: TapLink) -> bytes:
    """Return a packet, BTH to pad, with its ICRC as sent by the tester over a link."""
    value = _icrc(body, link.here, link.there, source_port, link.there_port)
    return body + value.to_bytes(ICRC_LENGTH, "big")


def readdressed(datagram: TapDatagram, side: int, change: int) -> TapDatagram:
    """Return a datagram as it leaves on another side; `change` is what that changes in its ICRC."""
    body = datagram.body
    if change and not datagram.is_trimmed:
        value = int.from_bytes(body[-ICRC_LENGTH:], "big") ^ change
        body = body[:-ICRC_LENGTH] + value.to_bytes(ICRC_LENGTH, "big")
    return TapDatagram(side, datagram.plane, datagram.source_port, body, datagram.dscp, datagram.ecn)


def icrc_change(arrived: TapLink, leaves: TapLink, source_port: int, length: int) -> int:
    """Return the difference (exclusive or) between the ICRCs of a body of this length on two links.

    CRCs are linear: the difference depends on headers and length alone. So a wrong ICRC stays as wrong as it was, and
    no payload is read.
    """
    if length <= ICRC_LENGTH:
        return 0
    body = bytes(length - ICRC_LENGTH)
    before = _icrc(body, arrived.there, arrived.here, source_port, arrived.here_port)
    return before ^ _icrc(body, leaves.here, leaves.there, source_port, leaves.there_port)


def read(datagram: TapDatagram, link: TapLink) -> TapPacket:
    """Parse a datagram that came from the device of a link."""
    try:
        message = parse(datagram.body, trimmed=datagram.is_trimmed)
    except WireError as error:
        return TapPacket(datagram, None, str(error))
    if datagram.is_trimmed:
        return as_seen(datagram, message, None)
    difference = _difference(datagram, link)
    seen = as_seen(datagram, message, difference == 0)
    fields = hidden_fields(difference, len(datagram.body)) if difference and link.there.version == 4 else None
    if fields is None or seen.message is None:
        return seen
    identification, is_cleared = fields >> 16, fields & _DONT_FRAGMENT
    supposing = f"IPv4 identification {identification:#06x}" + (", DF clear" if is_cleared else "")
    return TapPacket(datagram, seen.message, "", True, supposing)


def hidden_change(datagram: TapDatagram, link: TapLink) -> int:
    """Return what fields that sockets hide change in the ICRC of a datagram from the device of a link; 0 if nothing.

    A wrong ICRC is changed by nothing.
    """
    if link.there.version == 6 or datagram.is_trimmed or len(datagram.body) <= ICRC_LENGTH:
        return 0
    difference = _difference(datagram, link)
    return difference if difference and hidden_fields(difference, len(datagram.body)) is not None else 0


def _difference(datagram: TapDatagram, link: TapLink) -> int:
    """Return (exclusive or) how the ICRC differs from that with IPv4 identification 0 and DF."""
    wanted = _icrc(datagram.body[:-ICRC_LENGTH], link.there, link.here, datagram.source_port, link.here_port)
    return wanted ^ int.from_bytes(datagram.body[-ICRC_LENGTH:], "big")


def hidden_fields(difference: int, length: int) -> int | None:
    """Return which bits of identification, flags and fragment offset explain a difference between ICRCs; None if none.

    A socket hides these 32 bits of an IPv4 header. A CRC is linear, so their bits add up: 17 that may differ span 2**17
    of the 2**32 differences, and one in 32,768 wrong ICRCs of a body of this length (bytes) is taken for a right one.
    """
    bits = 0
    for vector, its_bits in _hidden_basis(length):
        if difference ^ vector < difference:
            difference, bits = difference ^ vector, bits ^ its_bits
    return None if difference else bits


@functools.lru_cache(256)
def _hidden_basis(length: int) -> list[tuple[int, int]]:
    """Return differences with leading bits of their own, the largest first, each with the bits that make it."""
    nowhere, body = IPv4Address(0), bytes(length - ICRC_LENGTH)
    header, udp = _headers(nowhere, nowhere, 0, 0, ip.UDP_LENGTH + length)
    plain = icrc(header, udp, body)
    basis: list[tuple[int, int]] = []
    for bits in (*(1 << at for at in range(16, 32)), _DONT_FRAGMENT):
        changed = (int.from_bytes(header[4:8], "big") ^ bits).to_bytes(4, "big")
        vector, its_bits = icrc(header[:4] + changed + header[8:], udp, body) ^ plain, bits
        for other, other_bits in basis:
            if vector ^ other < vector:
                vector, its_bits = vector ^ other, its_bits ^ other_bits
        basis = sorted([*basis, (vector, its_bits)], reverse=True)
    return basis


def as_seen(datagram: TapDatagram, message: MrcPacket, icrc_ok: bool | None) -> TapPacket:
    """Return a datagram with what was parsed of it; a packet that ends within its headers says nothing."""
    if len(message.parts) < len(stack(message.opcode, bool(message.bth.ts))):
        return TapPacket(datagram, None, "cut within its headers")
    return TapPacket(datagram, message, "bad ICRC" if icrc_ok is False else "", icrc_ok)


def _icrc(
    body: bytes,
    source: IPv4Address | IPv6Address,
    destination: IPv4Address | IPv6Address,
    source_port: int,
    destination_port: int,
) -> int:
    length = ip.UDP_LENGTH + len(body) + ICRC_LENGTH
    return icrc(*_headers(source, destination, source_port, destination_port, length), body)


@functools.lru_cache(4096)
def _headers(
    source: IPv4Address | IPv6Address,
    destination: IPv4Address | IPv6Address,
    source_port: int,
    destination_port: int,
    length: int,
) -> tuple[bytes, bytes]:
    """Return IP and UDP header as far as the ICRC covers them; few differ, and making one takes 20 us."""
    header = ip.IpHeader(source, destination, length)
    return header.emit(), ip.UdpHeader(source_port, destination_port, length).emit()
