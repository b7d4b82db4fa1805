"""The tester as a bridge: two network interfaces for each plane, one towards each device, and no address of its own.

For devices that cannot be told to talk to the tester, and for packets whose path is in the flow label or in an outer
IPv6 header (SRv6). Frames that are not of MRC pass untouched, in both directions. Packet sockets need CAP_NET_RAW. The
devices see each other's addresses, so that ICRCs stay as they are.
"""

import socket
import struct
import time
from collections.abc import Iterable, Iterator, Sequence

from msgspec import structs

from openmrc.conform.datagrams import (
    AS_THEY_ARE,
    OTHER_SIDE,
    DscpNumbers,
    TapDatagram,
    TapLink,
    translations,
)
from openmrc.conform.devices.process import ProcessDevice, RunDelays
from openmrc.conform.media.frames import NOTHING_LEFT, OFFLOAD, as_changed, bridged, segments
from openmrc.conform.media.medium import ANCILLARY, SO_TIMESTAMPNS, Readiness, TapArrival, arrived_at
from openmrc.errors import ConfigError
from openmrc.live.host.addresses import PlaneAddress
from openmrc.wire.codes import UDP_PORTS_ACCEPTED

LARGEST = 1 << 17  # bytes of a frame, before segmentation
_EVERY_PROTOCOL = 0x0003  # ETH_P_ALL
_SOL_PACKET, _ADD_MEMBERSHIP, _PROMISCUOUS, _VNET_HEADER, _IGNORE_OUTGOING = 263, 1, 1, 15, 23
_BUFFER = 4 << 20  # bytes asked of the kernel


class BridgeMedium:
    """Pairs of interfaces, one a plane: the first of each leads to the requester, the second to the responder."""

    def __init__(self, planes: Sequence[tuple[str, str]], devices: Sequence[ProcessDevice]) -> None:
        self._planes = len(planes)
        self._addresses: dict[int, list[PlaneAddress]] = {}
        self._dscps = dict.fromkeys(OTHER_SIDE, (AS_THEY_ARE, AS_THEY_ARE))  # to the wire and from it
        self._ports: tuple[int, ...] = UDP_PORTS_ACCEPTED
        self._sockets: dict[tuple[int, int], socket.socket] = {}
        self._delays = RunDelays(devices)
        try:
            for plane, pair in enumerate(planes):
                for side, name in enumerate(pair):
                    self._sockets[side, plane] = _packet_socket(name)
        except BaseException:
            self.close()
            raise
        self._places = {sock.fileno(): place for place, sock in self._sockets.items()}
        self._readiness = Readiness(self._places, devices)

    def now(self) -> int:
        """Return the time (ns)."""
        return time.monotonic_ns()

    def meet(self, side: int, planes: Sequence[str], dscps: DscpNumbers) -> None:
        """Learn the addresses of the device on a side, and the DSCPs of its deployment."""
        if len(planes) > self._planes:
            raise ConfigError(f"the device has {len(planes)} planes, the bridge {self._planes} pairs of interfaces")
        self._addresses[side] = [PlaneAddress.parse(text) for text in planes]
        self._dscps[side] = translations(dscps)
        own = {each.port for addresses in self._addresses.values() for each in addresses}
        self._ports = tuple(sorted({*own, *UDP_PORTS_ACCEPTED}))

    def links(self, side: int) -> Sequence[TapLink]:
        """Return the addresses of a side: as it sees them, the tester is the other device."""
        here, there = self._addresses.get(OTHER_SIDE[side], []), self._addresses.get(side, [])
        dscps = self._dscps[side]
        return [TapLink(mine.ip, its.ip, mine.port, its.port, *dscps) for mine, its in zip(here, there, strict=False)]

    def onward(self, datagram: TapDatagram, side: int) -> TapDatagram:
        """Return a datagram towards the other side: nothing else changes."""
        return structs.replace(datagram, side=side)

    def send(self, datagram: TapDatagram) -> None:
        """Send the frame of a datagram out of the interface of its side."""
        if not datagram.frame:
            raise ConfigError("a bridge passes on what devices send: only tests of two devices run through it")
        to_wire, _ = self._dscps[datagram.side]
        self._transmit(datagram.side, datagram.plane, NOTHING_LEFT + as_changed(datagram, to_wire))

    def wait(self, until: int, polls: bool = False) -> Iterable[TapArrival]:
        """Wait for frames or reports, at most until a time (ns); pass on what is not of MRC."""
        return self._arrivals([self._places[each] for each in self._readiness.wait(until, polls)])

    def standstill(self) -> int:
        """Return how long (ns) tester and adapters were ready to run and had no processor."""
        return self._delays.total()

    def close(self) -> None:
        for sock in self._sockets.values():
            sock.close()

    def _arrivals(self, ready: list[tuple[int, int]]) -> Iterator[TapArrival]:
        for side, plane in ready:
            while (taken := self._receive(side, plane)) is not None:
                at, offload, data = taken
                whole = bridged(data, self._ports)
                if whole is None:
                    self._transmit(OTHER_SIDE[side], plane, offload + data)
                    continue
                _, from_wire = self._dscps[side]
                for each in segments(offload, whole):
                    if (frame := bridged(each, self._ports)) is not None:
                        yield TapArrival(at, frame.tap(side, plane, from_wire))

    def _receive(self, side: int, plane: int) -> tuple[int, bytes, bytes] | None:
        try:
            data, ancillary, _, _ = self._sockets[side, plane].recvmsg(LARGEST, ANCILLARY)
        except BlockingIOError:
            return None
        except OSError as error:
            raise ConfigError(f"the interface of side {side}, plane {plane} is gone: {error.strerror}") from error
        at = self.now()
        for level, kind, value in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
                at = arrived_at(value)
        return at, data[: OFFLOAD.size], data[OFFLOAD.size :]

    def _transmit(self, side: int, plane: int, frame: bytes) -> None:
        try:
            self._sockets[side, plane].send(frame)
        except OSError:
            return  # lost, as on any network: full, down, or longer than the interface takes


def _packet_socket(interface: str) -> socket.socket:
    known = {name: index for index, name in socket.if_nameindex()}
    if interface not in known:
        raise ConfigError(f"there is no interface {interface!r}; there are {', '.join(known)}")
    try:
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    except PermissionError as error:
        raise ConfigError("a bridge needs the right to open packet sockets (root, or CAP_NET_RAW)") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        sock.setsockopt(_SOL_PACKET, _VNET_HEADER, 1)
        sock.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
        sock.bind((interface, _EVERY_PROTOCOL))
        promiscuous = struct.pack("iHH8s", known[interface], _PROMISCUOUS, 0, b"")
        sock.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, promiscuous)
    except OSError as error:  # gone meanwhile, or down
        sock.close()
        raise ConfigError(f"{interface}: {error.strerror}") from error
    return sock
