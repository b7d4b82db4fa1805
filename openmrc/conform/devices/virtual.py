"""This package's engine as a device under test, in virtual time: bytes in, bytes out, nothing compiled, nothing slept.

It is the device of the tests of the tester itself and of its mutants: the kernels run as plain Python, each packet goes
through the codec of the data path, and time passes only as the tester waits.
"""

from ipaddress import IPv4Address, IPv6Address
from typing import Any

import numpy as np

from openmrc.conform.datagrams import TapDatagram, TapLink
from openmrc.conform.devices import virtual_profiles
from openmrc.conform.devices.contract import (
    LARGEST_WRITE,
    MOST_WRITES,
    Description,
    DeviceEvent,
    PairEnd,
    ProfileOrder,
    Wanted,
    WriteOrder,
    pattern,
)
from openmrc.core.rows import table
from openmrc.engine import endpoint as doors
from openmrc.engine import lifecycle
from openmrc.engine.paths import ev_states
from openmrc.engine.responder import regions
from openmrc.engine.state.build import TableSizes, build
from openmrc.engine.state.machines import EvEvent, QpEvent
from openmrc.engine.state.params import Settings
from openmrc.engine.state.tables import NONE, CompletionKind, Engine, WcStatus, WriteRequest
from openmrc.units import PS_PER_US
from openmrc.wire import codec, icrc
from openmrc.wire.codes import CONGESTED, DSCP, DSCP_TRIMMED, DSCP_TRIMMED_LASTHOP, ECT0, TrafficClass, Trim, WireStatus
from openmrc.wire.entropy import SRV6_PORT_BASE, on_plane
from openmrc.wire.layout import ICRC_LENGTH, LONGEST_HEADER
from openmrc.wire.packet import NOWHERE

NAME = "openmrc, in virtual time"
REGION_VA = 0x7F00_0000_1000
R_KEY = 0x0012_3456
TESTER = 1  # the engine's number of the tester's address
IN, OUT = 0, 1  # packet rows
_TRIMS = {DSCP_TRIMMED: Trim.TRIMMED, DSCP_TRIMMED_LASTHOP: Trim.TRIMMED_LASTHOP}


def links(side: int, planes: int) -> list[TapLink]:
    """Return the made-up addresses between the tester and the device of a side: IPv4 and IPv6 in turn."""
    return [
        TapLink(IPv6Address(f"fd00:{plane}:{side}::1"), IPv6Address(f"fd00:{plane}:{side}::2"))
        if plane % 2
        else TapLink(IPv4Address(f"10.{plane}.{side}.1"), IPv4Address(f"10.{plane}.{side}.2"))
        for plane in range(planes)
    ]


def _both_ways(link: TapLink) -> tuple[Any, Any]:
    return icrc.flow(link.there, link.here, link.here_port), icrc.flow(link.here, link.there, link.there_port)


def _sizes(wanted: Wanted) -> TableSizes:
    return TableSizes(
        ports=wanted.planes,
        qps=wanted.pairs,
        evs_per_rotation=wanted.evs,
        wimms=wanted.max_wimm,
        sends=MOST_WRITES,
        receives=max(wanted.receives, 1),
        window=wanted.mpr * 128,
        tracked=wanted.mpr * 128,
    )


class VirtualDevice:
    """One endpoint, its memory and its application."""

    def __init__(self, side: int, seed: int = 1, **settings: Any) -> None:
        """Make the device of a side; `settings` are fields of the engine's `Settings`."""
        self.side = side
        self.seed = seed
        self.now = PS_PER_US  # ps; 0 would mean never
        self._settings = settings
        self._engine: Engine | None = None
        self._wanted = Wanted()
        self._links: list[TapLink] = []
        self._memory = bytearray()

    # The contract

    def open(self, wanted: Wanted) -> Description:
        """Make a fresh engine."""
        self._wanted = wanted
        self._links = links(self.side, wanted.planes)
        settings: dict[str, Any] = {"mtu": wanted.mtu, "link_gbps": 100.0, "base_rtt_us": 12.0, **self._settings}
        self._engine = build(_sizes(wanted), Settings(**settings), packets=2, seed=self.seed)
        self._matrix = codec.as_matrix(self._engine.packets)
        self._request = table(WriteRequest, 1)
        self._memory = bytearray(wanted.pairs * wanted.bytes + LARGEST_WRITE)
        self._prefixes = np.zeros((2 * wanted.planes, icrc.PREFIX_WORDS), np.int64)
        self._flows = [flow for link in self._links for flow in _both_ways(link)]
        self._ports = [[source_port(plane, k) for k in range(wanted.evs)] for plane in range(wanted.planes)]
        self._denied: list[int] = []
        lifecycle.open_peer(self._engine, self.now, 0, TESTER)
        access = regions.Access.REMOTE_WRITE if wanted.writable else regions.Access.LOCAL_WRITE
        for pair in range(wanted.pairs):
            local = pair * wanted.bytes
            regions.register(self._engine, 0, R_KEY + pair, REGION_VA + local, wanted.bytes, access, 1 + pair, local)
        return self._described()

    def _described(self) -> Description:
        wanted, engine = self._wanted, self._up()
        planes = [str(link.there) for link in self._links]
        ends = [
            PairEnd(qpn=int(engine.qps[n].qpn), psn=wanted.psn, addr=REGION_VA + n * wanted.bytes, r_key=R_KEY + n)
            for n in range(wanted.pairs)
        ]
        return wanted.description(NAME, planes, ends)

    def reset(self) -> Description:
        lifecycle.move(self._up(), self.now, 0, QpEvent.TO_RESET)
        return self._described()

    def connect(self, peer: Description) -> None:
        """Bring the queue pairs up."""
        self._peer = peer
        for number, end in enumerate(peer.pairs()):
            self._connect(number, end, peer)

    def _connect(self, qp: int, end: PairEnd, peer: Description) -> None:
        engine, wanted = self._up(), self._wanted
        row = engine.qps[qp]
        row.peer = 0
        row.dest_qpn = end.qpn
        row.pd = 1 + qp
        row.access = regions.Access.REMOTE_WRITE
        row.path_mtu = min(wanted.mtu, peer.mtu)
        row.timeout = int(1.024 * PS_PER_US) << wanted.timeout
        row.linear_count, row.exponential_count = wanted.linear, wanted.exponential
        row.mpr, row.mpr_dest = wanted.mpr, peer.mpr
        row.max_wimm, row.max_wimm_dest = peer.max_wimm, wanted.max_wimm
        row.trim_nack_dest = peer.trim_nack
        row.dynamic_mpr = wanted.dynamic_mpr and peer.dynamic_mpr
        row.first_psn = wanted.psn
        row.expected_psn = end.psn
        for plane, values in enumerate(self._ports):
            for k, value in enumerate(values):
                ev_states.set_ev(engine, qp, plane, k, value)
        ev_states.begin(engine, self.now, qp, max(1, wanted.evs - wanted.evs // 4), 1)
        for value in self._denied:
            ev_states.transition(engine, self.now, ev_states.find(engine, qp, value), EvEvent.DENY)
        for event in (QpEvent.TO_INIT, QpEvent.TO_RTR, QpEvent.TO_RTS):
            if lifecycle.move(engine, self.now, qp, event) == 0:
                raise AssertionError(f"no transition {event.name}")
        for number in range(wanted.receives):
            doors.post_receive(engine, qp, number)

    def write(self, order: WriteOrder) -> None:
        engine, row, at = self._up(), self._request[0], self._wanted.pairs * self._wanted.bytes
        end = self._peer.pairs()[order.pair]
        self._memory[at : at + order.length] = pattern(order.offset, order.length, order.fill)
        for number in range(order.count):
            row.wr_id, row.local, row.length = number, at, order.length
            row.va, row.r_key, row.signaled = end.addr + order.offset, end.r_key, 1
            row.immediate, row.has_immediate = order.immediate or 0, int(order.immediate is not None)
            doors.post_write(engine, self.now, order.pair, row)

    def memory(self, offset: int, length: int, pair: int = 0) -> bytes:
        begin = pair * self._wanted.bytes + offset
        return bytes(self._memory[begin : begin + length])

    def set_port(self, plane: int, up: bool) -> None:
        doors.set_port(self._up(), self.now, 0, plane, int(up))

    def profile(self, order: ProfileOrder) -> str:
        """Make an EV profile; its EVs are those of the next connection."""
        refused, made = virtual_profiles.made(order, self._wanted.planes, self._wanted.evs)
        if not refused and made.ports:
            self._ports, self._denied = made.ports, made.denied
        return refused

    def events(self) -> list[DeviceEvent]:
        engine, found = self._up(), []
        while (index := doors.next_completion(engine, 0)) != NONE:
            done = engine.completions[index]
            received = done.kind == CompletionKind.RECEIVE
            found.append(
                DeviceEvent(
                    event="receive" if received else "completion",
                    status=WcStatus(done.status).name,
                    immediate=int(done.immediate) if done.has_immediate else None,
                    length=int(done.length),
                    pair=int(done.qp),
                )
            )
        return found

    def close(self) -> None:
        self._engine = None

    # Time and packets

    def arrive(self, datagram: TapDatagram) -> None:
        """Take one datagram off the network, as the data path does: decode, check, engine, memory."""
        engine = self._engine
        if engine is None or not datagram.body:
            return
        packet, body = engine.packets[IN], np.frombuffer(bytearray(datagram.body), np.uint8)
        packet.entropy, packet.port, packet.source = datagram.source_port, datagram.plane, TESTER
        packet.source += datagram.is_of_stranger
        packet.marked = int(datagram.ecn == CONGESTED)
        packet.trimmed = _TRIMS.get(datagram.dscp, Trim.WHOLE)
        if codec.decode(body, 0, len(body), self._matrix, IN) != WireStatus.OK:
            return
        if packet.trimmed == Trim.WHOLE and not datagram.is_of_stranger and not self._is_intact(datagram, body):
            return
        doors.receive(engine, self.now, 0, IN)
        if packet.payload != NOWHERE and packet.payload_length > 0:
            begin = codec.header_length(self._matrix, IN)
            place, length = int(packet.payload), int(packet.payload_length)
            self._memory[place : place + length] = datagram.body[begin : begin + length]

    def departures(self) -> list[TapDatagram]:
        """Return what it wants to send now."""
        engine, out = self._engine, []
        if engine is None:
            return []
        free = (1 << self._wanted.planes) - 1
        while doors.next_packet(engine, self.now, 0, free, OUT) == 1:
            out.append(self._emitted(engine))
            if len(out) > 1 << 14:
                raise AssertionError("the endpoint never stops sending")
        return out

    def deadline(self) -> int:
        """Return when it wants to be woken (ps)."""
        return doors.next_deadline(self._engine, 0) if self._engine is not None else 1 << 62

    def expire(self) -> None:
        """Serve the deadlines that are due."""
        if self._engine is not None:
            doors.expire(self._engine, self.now, 0)

    def _up(self) -> Engine:
        if self._engine is None:
            raise AssertionError("the device is not open")
        return self._engine

    def _is_intact(self, datagram: TapDatagram, body: Any) -> bool:
        at = 2 * datagram.plane + 1
        crc = icrc.prefix(self._flows[at], self._prefixes[at], datagram.source_port, len(body), body.ctypes.data)
        return icrc.is_intact(crc, body, 0, len(body))

    def _emitted(self, engine: Engine) -> TapDatagram:
        out = engine.packets[OUT]
        arena = np.zeros(LONGEST_HEADER + ICRC_LENGTH + 4, np.uint8)
        headers = codec.encode(self._matrix, OUT, arena, 0)
        length = int(out.payload_length)
        payload = np.frombuffer(bytearray(self._memory[out.payload : out.payload + length]) or bytearray(1), np.uint8)
        whole = headers + length + icrc.trailer_length(length)
        at, port = 2 * out.port, out.entropy & 0xFFFF
        crc = icrc.prefix(self._flows[at], self._prefixes[at], port, whole, arena.ctypes.data)
        tail = icrc.seal(crc, arena, 0, headers, payload.ctypes.data, length, headers)
        body = arena[:headers].tobytes() + payload[:length].tobytes() + arena[headers : headers + tail].tobytes()
        dscp = DSCP[TrafficClass(out.traffic_class)]
        return TapDatagram(self.side, int(out.port), int(port), body, dscp, ECT0)


def source_port(plane: int, k: int) -> int:
    """Return the source port of a device's k-th path on a plane."""
    return SRV6_PORT_BASE | on_plane(plane, k)
