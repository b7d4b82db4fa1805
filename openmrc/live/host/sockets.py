"""The sockets of a NIC: per plane, one that receives, and one that sends for each entropy value (decision 8).

With SRv6, each entropy value has another destination address, which is another path.
"""

import errno
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from openmrc.errors import ConfigError
from openmrc.live import checks
from openmrc.live.attributes import ContextAttr, EvFormat
from openmrc.live.datapath.libc import (
    IPPROTO_IP,
    IPPROTO_IPV6,
    SO_RXQ_OVFL,
    SOL_UDP,
    UDP_GRO,
    UDP_NO_CHECK6_RX,
    UDP_NO_CHECK6_TX,
    UDP_SEGMENT,
)
from openmrc.live.host.addresses import SHARED_PORTS, PlaneAddress, names_port
from openmrc.live.host.interfaces import find_planes, interface_of
from openmrc.wire.entropy import PATHS_OF_A_PLANE, SRV6_PORT_BASE, EvPlacement, entropy, on_plane

MAX_PLANES = 16
_PLACEMENTS = {EvFormat.UDP: EvPlacement.UDP, EvFormat.STEV: EvPlacement.STEV, EvFormat.SRV6: EvPlacement.SRV6}
_IP_RECVTOS, _IPV6_RECVTCLASS, _IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER, _PMTUDISC_PROBE = 13, 66, 10, 23, 3
_IPV6_FLOWINFO_SEND, _IPV6_FLOWINFO = 33, 11
_SO_RCVBUFFORCE = 33
LONGEST_HEADERS = 12 + 4 + 4 + 16 + 4 + 3 + 4  # bytes behind UDP around one packet's payload, BTH to ICRC
_LONGEST_OVERHEAD = 40 + 8 + LONGEST_HEADERS  # from IPv6 on
_USUAL_MTU = 1500  # bytes, assumed if the interface is unknown
MTUS = checks.MTUS[::-1]  # the largest first

CarrierOf = Callable[[str, int, int], str]  # (remote plane address, plane, EV) -> address that leads there


class Sockets:
    def __init__(self, planes: Sequence[str], attr: ContextAttr) -> None:
        """Open the sockets; ConfigError or OSError names the address that cannot be opened."""
        self.found = not planes
        self.addresses = _choose(planes)
        self._ports_are_named = [names_port(text) for text in planes] or [False] * len(self.addresses)
        self.attr = attr
        self.placement = _PLACEMENTS[attr.ev_format]
        self.receivers: list[socket.socket] = []
        self.senders: list[list[socket.socket]] = []
        self.source_ports: list[list[int]] = []
        self.receive_buffer = 0  # bytes granted by the kernel, smallest of all planes
        try:
            self.segmentation = attr.segmentation and attr.ev_format != EvFormat.SRV6 and _can_segment()
            for plane, address in enumerate(self.addresses):
                self._open_plane(plane, address)
        except BaseException:
            self.close()
            raise
        self.plane_mtus = [_largest_payload(address) for address in self.addresses]
        self.mtu = min(self.plane_mtus)  # bytes, the largest path MTU that every plane supports

    def evs(self, plane: int) -> list[int]:
        return [
            entropy(self.placement, port, port if self.placement == EvPlacement.STEV else 0)
            for port in self.source_ports[plane]
        ]

    def describe(self) -> str:
        where = ", ".join(f"{plane}: {address}" for plane, address in enumerate(self.addresses))
        how = "UDP_SEGMENT and UDP_GRO" if self.segmentation else "one datagram a packet"
        origin = "found" if self.found else "given"
        planes = "1 plane" if len(self.addresses) == 1 else f"{len(self.addresses)} planes"
        return (
            f"{planes} {origin} ({where}); EV format {self.attr.ev_format.name}, "
            f"{self.attr.evs_per_plane} EVs a plane; {how}; receive buffer {self.receive_buffer >> 10} KiB; "
            f"path MTU at most {self._describe_mtu()}"
        )

    def _describe_mtu(self) -> str:
        if max(self.plane_mtus) == self.mtu:
            return str(self.mtu)
        each = ", ".join(f"plane {plane}: {mtu}" for plane, mtu in enumerate(self.plane_mtus))
        return f"{self.mtu}, the least of {each}"

    def close(self) -> None:
        for sock in (*self.receivers, *(sock for senders in self.senders for sock in senders)):
            sock.close()

    def _open_plane(self, plane: int, address: PlaneAddress) -> None:
        receiver = self._socket(address)
        self.receivers.append(receiver)
        with suppress(OSError):  # only counts; emulations of Linux may lack it
            receiver.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
        if address.ip.version == 4:
            receiver.setsockopt(IPPROTO_IP, _IP_RECVTOS, 1)
        else:
            receiver.setsockopt(IPPROTO_IPV6, _IPV6_RECVTCLASS, 1)
            if self.placement == EvPlacement.STEV:
                receiver.setsockopt(IPPROTO_IPV6, _IPV6_FLOWINFO, 1)
        if self.attr.segmentation:
            with suppress(OSError):  # kernels before 5.0: one datagram at a time
                receiver.setsockopt(SOL_UDP, UDP_GRO, 1)
        granted = _ask_buffer(receiver, self.attr.receive_buffer)
        self.receive_buffer = min(granted, self.receive_buffer or granted)
        self.addresses[plane] = self._bind_receiver(receiver, plane, address)
        self.senders.append([])
        self.source_ports.append([])
        self._open_senders(plane, address)

    def _bind_receiver(self, receiver: socket.socket, plane: int, address: PlaneAddress) -> PlaneAddress:
        """Bind to the port that was named, or to the first that no other process on this NIC has; return the address.

        The peer learns the port with the address (docs/decisions/0022-shared-nic.md).
        """
        ports = [address.port] if self._ports_are_named[plane] else SHARED_PORTS
        for port in ports:
            try:
                receiver.bind(address.socket_name(port))
            except OSError as error:
                is_taken = error.errno == errno.EADDRINUSE
                if not is_taken or port == ports[-1]:
                    what = f"{address}, ports {ports[0]} to {port}" if is_taken and len(ports) > 1 else address
                    raise ConfigError(f"planes: plane {plane} cannot receive on {what}: {error.strerror}") from error
            else:
                return replace(address, port=port)
        raise AssertionError("unreachable: the last port is bound or raises")

    def _open_senders(self, plane: int, address: PlaneAddress) -> None:
        first = os.getpid() * 67  # otherwise all processes on one address would try the same ports first
        for step in range(PATHS_OF_A_PLANE):
            if len(self.senders[plane]) == self.attr.evs_per_plane:
                return
            port = SRV6_PORT_BASE + on_plane(plane, (first + step) % PATHS_OF_A_PLANE)
            sender = self._socket(address)
            try:
                sender.bind(address.socket_name(port))
            except OSError as error:
                sender.close()
                if error.errno != errno.EADDRINUSE:
                    raise ConfigError(f"planes: plane {plane} cannot send from {address}: {error.strerror}") from error
                continue
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)  # never written
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.attr.receive_buffer)
            self.senders[plane].append(sender)
            self.source_ports[plane].append(port)
        raise ConfigError(f"planes: plane {plane} ({address}) has no {self.attr.evs_per_plane} free source ports")

    def _socket(self, address: PlaneAddress) -> socket.socket:
        sock = socket.socket(address.family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            if address.ip.version == 4:
                sock.setsockopt(IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_PROBE)  # never fragment
            else:
                sock.setsockopt(IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                sock.setsockopt(IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PMTUDISC_PROBE)
            if self.placement == EvPlacement.SRV6:
                self._allow_carriers(sock, address)
            if self.placement == EvPlacement.STEV and address.ip.version == 6:
                sock.setsockopt(IPPROTO_IPV6, _IPV6_FLOWINFO_SEND, 1)
        except BaseException:
            sock.close()
            raise
        return sock

    def _allow_carriers(self, sock: socket.socket, address: PlaneAddress) -> None:
        """Disable the UDP checksum: switches change the destination in transit (RFC 6935)."""
        if address.ip.version != 6:
            raise ConfigError(f"planes: {address} is IPv4, but the SRV6 format needs IPv6")
        sock.setsockopt(SOL_UDP, UDP_NO_CHECK6_TX, 1)
        sock.setsockopt(SOL_UDP, UDP_NO_CHECK6_RX, 1)


def _choose(planes: Sequence[str]) -> list[PlaneAddress]:
    if planes:
        chosen = [PlaneAddress.parse(text, f"planes, plane {plane}") for plane, text in enumerate(planes)]
    else:
        chosen = [PlaneAddress(found.address, scope=found.scope) for found in find_planes(MAX_PLANES)]
    if not 1 <= len(chosen) <= MAX_PLANES:
        raise ConfigError(f"planes: {len(chosen)} addresses, not 1 to {MAX_PLANES}")
    if len({(address.ip, address.port) for address in chosen}) < len(chosen):
        raise ConfigError(f"planes: duplicate address in {', '.join(map(str, chosen))}")
    return chosen


def _can_segment() -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.setsockopt(SOL_UDP, UDP_SEGMENT, 1000)
        except OSError:
            return False
        return True


def _ask_buffer(sock: socket.socket, wanted: int) -> int:
    """Request a receive buffer, beyond the limit if privileged; return the granted size."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, wanted)
    except OSError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, wanted)
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2  # the kernel doubles the requested size


def payload_that_fits(mtu: int) -> int:
    """Return the largest path MTU that fits an interface's MTU (bytes); 0: none."""
    return next((payload for payload in MTUS if payload + _LONGEST_OVERHEAD <= mtu), 0)


def _largest_payload(address: PlaneAddress) -> int:
    """Return the path MTU of a plane's interface, with or without carrier."""
    interface = interface_of(address.ip, address.scope)
    mtu = interface.mtu if interface is not None else _USUAL_MTU
    payload = payload_that_fits(mtu)
    if payload == 0:
        raise ConfigError(
            f"planes: the interface of {address} has an MTU of {mtu} bytes, "
            f"path MTU {MTUS[-1]} needs {MTUS[-1] + _LONGEST_OVERHEAD}"
        )
    return payload
