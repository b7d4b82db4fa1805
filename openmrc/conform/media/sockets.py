"""The tester on real networks: a UDP socket per local address to receive, and one per local address and EV to send.

Both sides may have the same local addresses, as those of a host with one address a plane: the address that a packet
comes from tells which device sent it. Nothing here needs privileges. Arrival times are the kernel's, so a tester that
was kept from its processor still knows when a packet came.
"""

import errno
import functools
import heapq
import os
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from operator import attrgetter
from typing import NamedTuple

from openmrc.conform.datagrams import (
    USUAL_DSCPS,
    DscpNumbers,
    TapDatagram,
    TapLink,
    hidden_change,
    icrc_change,
    readdressed,
    translations,
)
from openmrc.conform.devices.contract import DeviceUnsupportedError
from openmrc.conform.devices.process import ProcessDevice, RunDelays
from openmrc.conform.media.medium import ANCILLARY, LONGEST_POLL, SO_TIMESTAMPNS, Readiness, TapArrival, arrived_at
from openmrc.errors import ConfigError
from openmrc.live.host.addresses import PlaneAddress
from openmrc.wire.codes import UDP_PORT

LARGEST = 1 << 16  # bytes of a datagram
_BUFFER = 4 << 20  # bytes asked of the kernel
_INT = struct.Struct("i")
_SIDES = 2
_LOST = (errno.EAGAIN, errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENOBUFS)  # as on any network
_arrived_at = attrgetter("at")
_MOST_AT_ONCE = 256  # datagrams before the tester looks at time and reports again


class _Departure(NamedTuple):
    """How packets of one EV leave."""

    sender: socket.socket
    service: tuple[int, int]  # of the traffic class, as ancillary data
    there: tuple[str, int]
    to_wire: bytes  # DSCPs


class SocketMedium:
    """Sockets of the tester, and the adapters whose reports it waits for."""

    def __init__(
        self, addresses: Sequence[Sequence[str]], devices: Sequence[ProcessDevice], longest_poll: int = LONGEST_POLL
    ) -> None:
        """Receive on these local addresses: for each side, one a plane; `longest_poll` (ns) is that of a relay."""
        self._delays = RunDelays(devices)
        self._links: list[list[TapLink]] = []
        self._receivers: dict[PlaneAddress, socket.socket] = {}
        self._senders: dict[tuple[IPv4Address | IPv6Address, int], socket.socket] = {}  # of address and source port
        self._ends: dict[tuple[int, int, int, bool], _Departure] = {}  # of side, plane, source port; of a stranger?
        self._changes: dict[tuple[int, int, int, int], int] = {}  # in ICRCs: from side, plane, source port and length
        self._hides: dict[int, bool] = {}  # side -> whether its ICRCs cover fields that sockets hide, once known
        self._places: dict[int, list[tuple[int, int]]] = {}  # descriptor -> sides and planes whose packets arrive there
        try:
            for side, texts in enumerate(addresses):
                here = [PlaneAddress.parse(text) for text in texts]
                self._links.append([TapLink(each.ip, each.ip, each.port) for each in here])
                for plane, each in enumerate(here):
                    if each not in self._receivers:
                        self._receivers[each] = _receiver(each)
                    self._places.setdefault(self._receivers[each].fileno(), []).append((side, plane))
        except BaseException:
            self.close()
            raise
        self._by_descriptor = {sock.fileno(): sock for sock in self._receivers.values()}
        self._readiness = Readiness(self._places, devices, longest_poll)

    def now(self) -> int:
        """Return the time (ns)."""
        return time.monotonic_ns()

    def meet(self, side: int, planes: Sequence[str], dscps: DscpNumbers = USUAL_DSCPS) -> None:
        """Learn the addresses of the device on a side, and the DSCPs of its deployment.

        DeviceUnsupportedError if there are too few local ones, or if the device cannot be told from that of a side
        before; ConfigError if they are of another version of IP.
        """
        self._changes.clear()
        self._ends.clear()
        self._hides.clear()
        known = self._links[side]
        if len(planes) > len(known):
            raise DeviceUnsupportedError(f"the test needs {len(planes)} planes, the tester has {len(known)} addresses")
        for plane, text in enumerate(planes):
            there, link = PlaneAddress.parse(text), known[plane]
            if there.ip.version != link.here.version:
                raise ConfigError(
                    f"the device has {there} on plane {plane}, the tester {link.here}: IP versions differ"
                )
            known[plane] = TapLink(link.here, there.ip, link.here_port, there.port, *translations(dscps))
            before = [other[plane] for other in self._links[:side]]
            if any((each.here, each.here_port, each.there) == (link.here, link.here_port, there.ip) for each in before):
                raise DeviceUnsupportedError(
                    f"both devices have the address {there.ip}: the tester cannot tell them apart"
                )

    def links(self, side: int) -> Sequence[TapLink]:
        return self._links[side]

    def send(self, datagram: TapDatagram) -> None:
        """Send a datagram from the source port that is its EV."""
        key = datagram.side, datagram.plane, datagram.source_port, datagram.is_of_stranger
        end = self._ends.get(key) or self._end(key)
        tos = (*end.service, _INT.pack(end.to_wire[datagram.dscp] << 2 | datagram.ecn))
        try:
            end.sender.sendmsg((datagram.body,), (tos,), 0, end.there)
        except OSError as error:
            if error.errno not in _LOST:
                raise ConfigError(
                    f"cannot send {len(datagram.body)} bytes to {end.there[0]}: {error.strerror}"
                ) from error

    def onward(self, datagram: TapDatagram, side: int) -> TapDatagram:
        key = datagram.side, datagram.plane, datagram.source_port, len(datagram.body)
        change = self._changes.get(key)
        if change is None:
            arrived, leaves = self._links[datagram.side][datagram.plane], self._links[side][datagram.plane]
            change = self._changes[key] = icrc_change(arrived, leaves, datagram.source_port, len(datagram.body))
        if self._hides.get(datagram.side, True):
            hidden = hidden_change(datagram, self._links[datagram.side][datagram.plane])
            self._hides[datagram.side] = hidden != 0  # so of its first packet, so of all
            change ^= hidden
        return readdressed(datagram, side, change)

    def wait(self, until: int, polls: bool = False) -> Iterable[TapArrival]:
        """Wait for datagrams or reports, at most until a time (ns); datagrams come in order of their arrival."""
        ready = self._readiness.wait(until, polls)
        return self._arrivals(ready) if ready else ()

    def _arrivals(self, ready: list[int]) -> Iterator[TapArrival]:
        """Yield what has arrived, one at a time: the receiver may pass on each before the next is looked at."""
        taken = 0
        while ready and taken < _MOST_AT_ONCE:
            drains = [self._drain(each) for each in ready]
            in_order = drains[0] if len(drains) == 1 else heapq.merge(*drains, key=_arrived_at)
            for arrival in in_order:
                taken += 1
                yield arrival
            ready = self._readiness.now()

    def standstill(self) -> int:
        """Return how long (ns) tester and adapters were ready to run and had no processor."""
        return self._delays.total()

    def close(self) -> None:
        for sock in (*self._receivers.values(), *self._senders.values()):
            sock.close()

    def _drain(self, descriptor: int) -> Iterator[TapArrival]:
        sock = self._by_descriptor[descriptor]
        links = [(self._links[side][plane], side, plane) for side, plane in self._places[descriptor]]
        service = _service(links[0][0].here.version)
        while True:
            try:
                body, ancillary, _, name = sock.recvmsg(LARGEST, ANCILLARY)
            except (BlockingIOError, ConnectionRefusedError):
                return
            at, tos = self.now(), 0
            for level, kind, data in ancillary:
                if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
                    at = arrived_at(data)
                elif (level, kind) == service:
                    tos = data[0]
            sender = _address(name[0])
            for link, side, plane in links:
                if sender == link.there:
                    yield TapArrival(at, TapDatagram(side, plane, name[1], body, link.from_wire[tos >> 2], tos & 3))
                    break

    def _end(self, key: tuple[int, int, int, bool]) -> _Departure:
        """Return how packets of a side, plane and source port leave; those of a stranger, as from the other side."""
        side, plane, port, is_of_stranger = key
        link = self._links[side][plane]
        here = self._links[1 - side][plane].here if is_of_stranger else link.here
        sender = here, port
        if sender not in self._senders:
            sock = _socket(link.here.version)
            try:
                sock.bind((str(here), port))
            except OSError as error:
                sock.close()
                raise ConfigError(f"cannot send from {here} port {port}: {error.strerror}") from error
            self._senders[sender] = sock
        end = _Departure(
            self._senders[sender], _service(link.here.version), (str(link.there), link.there_port), link.to_wire
        )
        self._ends[key] = end
        return end


@functools.lru_cache
def _address(text: str) -> IPv4Address | IPv6Address:
    return ip_address(text)


def _service(version: int) -> tuple[int, int]:
    if version == 4:
        return socket.IPPROTO_IP, socket.IP_TOS
    return socket.IPPROTO_IPV6, socket.IPV6_TCLASS


def _socket(version: int) -> socket.socket:
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    return socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)


def _receiver(address: PlaneAddress) -> socket.socket:
    sock = _socket(address.ip.version)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    if address.ip.version == 4:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    else:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
    try:
        sock.bind((str(address.ip), address.port))
    except OSError as error:
        sock.close()
        raise ConfigError(f"cannot receive on {address}: {error.strerror}") from error
    return sock


def own_loopback(planes: int) -> list[list[str]]:
    """Return loopback addresses of the tester, for each side one a plane, that no other process uses."""
    high, low = divmod(os.getpid() & 0x3FFF, 256)
    return [
        [f"127.{64 + high}.{low}.{101 + 16 * side + plane}:{UDP_PORT}" for plane in range(planes)]
        for side in range(_SIDES)
    ]
