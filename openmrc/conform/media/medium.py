"""What the tester sends and receives through: a medium with a clock; in virtual time here, `sockets` has the real."""

import functools
import heapq
import os
import select
import struct
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from openmrc.conform.datagrams import (
    DscpNumbers,
    TapDatagram,
    TapLink,
    hidden_change,
    icrc_change,
    ip_frame,
    readdressed,
)
from openmrc.conform.devices.process import ProcessDevice
from openmrc.conform.devices.virtual import VirtualDevice, links
from openmrc.units import NS_PER_S, PS_PER_NS
from openmrc.wire.ip import PROTOCOL_UDP, Address, checksum, parse_ip, parse_udp

MOST_PLANES = 16
_SIDES = 2
LATENCY = 5_000  # ns from the tester to a device in virtual time, and back
LONGEST_POLL = 2_000_000  # ns
LONGEST_PAUSE = 6  # crowded polls in a row make a pause of 2**6 - 1 waits at most
CROWDED = 50_000  # ns: ten looks and an offer of the processor; somebody else had it meanwhile
_YIELDS = 8  # looks between two offers
ANCILLARY = 256  # bytes
SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("qq")


class TapArrival(NamedTuple):
    """A datagram from a device, and when it came (ns)."""

    at: int
    datagram: TapDatagram


class Medium(Protocol):
    """The network between the tester and the devices on its sides."""

    def now(self) -> int:
        """Return the time (ns), monotonic."""
        ...

    def meet(self, side: int, planes: Sequence[str], dscps: DscpNumbers) -> None:
        """Learn the addresses of the device on a side, one a plane, and the DSCPs of its deployment."""
        ...

    def links(self, side: int) -> Sequence[TapLink]:
        """Return the addresses of a side, one pair a plane."""
        ...

    def send(self, datagram: TapDatagram) -> None: ...

    def onward(self, datagram: TapDatagram, side: int) -> TapDatagram:
        """Return a datagram that arrived as it leaves on another side."""
        ...

    def wait(self, until: int, polls: bool = False) -> Iterable[TapArrival]:
        """Yield what arrives until a time (ns), as soon as something does or a device reports an event.

        `polls` allows to poll before sleeping, so that a packet need not wait until a processor wakes up.
        """
        ...

    def standstill(self) -> int:
        """Return for how long (ns) this host has kept tester and devices from running, since the medium was made."""
        ...


def arrived_at(stamp: bytes) -> int:
    """Return the monotonic time (ns) of what the kernel stamped (struct timespec), rather late than early.

    An answer must not seem to come before its cause. So the clocks are compared for each packet, in this order: a pause
    of this process between the two readings makes the packet later, and steps of the clock before it do not matter.
    """
    seconds, rest = _TIMESPEC.unpack(stamp[: _TIMESPEC.size])
    age: int = time.time_ns() - (seconds * NS_PER_S + rest)
    return time.monotonic_ns() - max(age, 0)


class Readiness:
    """Waits for the sockets of a medium and for the reports of its devices.

    A processor that sleeps between two packets adds its wake-up to every packet that is relayed: 30 to 60 us on a
    virtual machine, as much as all else (`python -m bench.conform.relay`). So a wait looks again and again if the one
    before it, however it waited, was over within `LONGEST_POLL`: in a transfer packets follow each other faster, and
    where nothing comes one poll is wasted. As at an endpoint (`openmrc.live.datapath.loop.waiting`) it offers the
    processor to others, and if they had it meanwhile the poll ends and the next waits sleep at once: one of them,
    then three, seven and so on.
    """

    def __init__(
        self, sockets: Iterable[int], devices: Sequence[ProcessDevice], longest_poll: int = LONGEST_POLL
    ) -> None:
        """Watch these descriptors; a poll ends after `longest_poll` (ns), 0: all waits sleep at once."""
        self._sockets = frozenset(sockets)
        self._devices = devices
        self._longest_poll = longest_poll
        self._was_short = True
        self._crowded = 0  # polls in a row that others cut short
        self._pause = 0  # waits that sleep at once
        self.polls = 0  # that brought something

    def now(self) -> list[int]:
        """Return the sockets that are readable."""
        return select.select(self._sockets, (), (), 0)[0]

    def wait(self, until: int, polls: bool = False) -> list[int]:
        """Wait for a socket or a report until a time (ns, monotonic) at most; return the sockets that are readable.

        `polls` allows to look again and again before sleeping.
        """
        watched = [*self._sockets, *(at for device in self._devices if (at := device.fileno()) is not None)]
        begun = time.monotonic_ns()
        ready = self._poll(watched, begun, until) if polls and self._was_short else []
        if not ready:
            ready = select.select(watched, (), (), max(until - time.monotonic_ns(), 0) / NS_PER_S)[0]
        self._was_short = bool(ready) and time.monotonic_ns() - begun < self._longest_poll
        return [each for each in ready if each in self._sockets]

    def _poll(self, watched: list[int], now: int, until: int) -> list[int]:
        """Look for a little while, unless others wanted the processor lately."""
        if self._pause:
            self._pause -= 1
            return []
        end, looks = min(now + self._longest_poll, until), 0
        while now < end:
            if ready := select.select(watched, (), (), 0)[0]:
                self.polls += 1
                self._crowded = 0
                return ready
            looks += 1
            if looks % _YIELDS == 0:
                os.sched_yield()
            before, now = now, time.monotonic_ns()
            if now - before > CROWDED:
                self._crowded = min(self._crowded + 1, LONGEST_PAUSE)
                self._pause = (1 << self._crowded) - 1
                break
        return []


class VirtualMedium:
    """Virtual devices joined to the tester by links of one latency, over which whole IP packets pass."""

    def __init__(self, devices: Sequence[VirtualDevice]) -> None:
        """Join these devices; their position is their side."""
        self.devices = devices
        self._now = 1_000  # ns
        self._flying: list[tuple[int, int, bytes, bool]] = []  # at, order, IP packet, from an unknown address
        self._order = 0

    def now(self) -> int:
        """Return the time (ns)."""
        return self._now

    def meet(self, side: int, planes: Sequence[str], dscps: DscpNumbers) -> None:
        """Do nothing: the addresses are made up."""

    def links(self, side: int) -> Sequence[TapLink]:
        return _links(side)

    def send(self, datagram: TapDatagram) -> None:
        self._fly(datagram, False)

    def onward(self, datagram: TapDatagram, side: int) -> TapDatagram:
        arrived, leaves = (_links(each)[datagram.plane] for each in (datagram.side, side))
        change = icrc_change(arrived, leaves, datagram.source_port, len(datagram.body))
        return readdressed(datagram, side, change ^ hidden_change(datagram, arrived))

    def wait(self, until: int, polls: bool = False) -> list[TapArrival]:
        """Let time pass until something reaches the tester, a device reports, or `until`."""
        self._depart()
        while True:
            following = min([until, *[-(-device.deadline() // PS_PER_NS) for device in self.devices]])
            if self._flying:
                following = min(following, self._flying[0][0])
            self._now = max(self._now, following)
            arrived = self._step()
            if arrived or self._now >= until:
                return arrived

    def standstill(self) -> int:
        """Return 0: virtual time stands for nobody."""
        return 0

    def _step(self) -> list[TapArrival]:
        for device in self.devices:
            device.now = self._now * PS_PER_NS
            device.expire()
        arrived = []
        while self._flying and self._flying[0][0] <= self._now:
            at, _, packet, is_of_stranger = heapq.heappop(self._flying)
            to_tester, datagram = _passed_up(packet, is_of_stranger)
            if datagram is None:
                continue
            if to_tester:
                arrived.append(TapArrival(at, datagram))
            else:
                self.devices[datagram.side].arrive(datagram)
                self._depart()  # after each packet: nothing that one asks for may be joined with what the next asks for
        self._depart()
        return arrived

    def _depart(self) -> None:
        for device in self.devices:
            device.now = self._now * PS_PER_NS
            for datagram in device.departures():
                self._fly(datagram, True)

    def _fly(self, datagram: TapDatagram, to_tester: bool) -> None:
        self._order += 1
        packet = ip_frame(datagram, _links(datagram.side)[datagram.plane], to_tester)
        heapq.heappush(self._flying, (self._now + LATENCY, self._order, packet, datagram.is_of_stranger))


@functools.cache
def _links(side: int) -> Sequence[TapLink]:
    return links(side, MOST_PLANES)


@functools.cache
def _ways() -> dict[tuple[Address, Address], tuple[bool, int, int]]:
    """Return for each pair of addresses whether it leads to the tester, the side and the plane."""
    found = {}
    for side in range(_SIDES):
        for plane, link in enumerate(_links(side)):
            found[link.here, link.there] = False, side, plane
            found[link.there, link.here] = True, side, plane
    return found


def _passed_up(packet: bytes, is_of_stranger: bool) -> tuple[bool, TapDatagram | None]:
    """Return whether an IP packet is for the tester, and its datagram as a host passes it to a socket; None: dropped.

    Hosts drop what has a wrong length or checksum (RFC 1122, 3.2.1.2 and 4.1.3.4).
    """
    header, udp_at = parse_ip(packet)
    udp, at = parse_udp(packet, udp_at)
    to_tester, side, plane = _ways()[header.source, header.destination]
    link = _links(side)[plane]
    pseudo = header.source.packed + header.destination.packed + struct.pack("!II", udp.length, PROTOCOL_UDP)
    is_intact = (
        header.protocol == PROTOCOL_UDP
        and header.payload_length == udp.length == len(packet) - udp_at
        and udp.destination_port == (link.here_port if to_tester else link.there_port)
        and (header.version == 6 or checksum(packet[:udp_at]) == 0)
        and checksum(pseudo + packet[udp_at:]) == 0
    )
    if not is_intact:
        return to_tester, None
    body = packet[at : udp_at + udp.length]
    dscp = link.from_wire[header.dscp]
    datagram = TapDatagram(side, plane, udp.source_port, body, dscp, header.ecn, b"", is_of_stranger)
    return to_tester, datagram
