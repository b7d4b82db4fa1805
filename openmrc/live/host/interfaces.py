"""The network interfaces of this machine: which could be planes, and how long packets may be there."""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

_SIOCGIFADDR, _SIOCGIFMTU, _SIOCGIFFLAGS = 0x8915, 0x8921, 0x8913
_UP, _LOOPBACK, _RUNNING = 0x1, 0x8, 0x40
_VIRTUAL = ("docker", "veth", "br-", "virbr", "cni", "flannel", "tun", "tap", "wg", "ifb", "dummy")


@dataclass(frozen=True)
class Interface:
    """One address of one interface."""

    name: str
    address: IPv4Address | IPv6Address
    mtu: int  # bytes
    is_loopback: bool
    scope: int  # index, for link-local addresses


def interfaces() -> list[Interface]:
    """Return all addresses of interfaces that are up, in the order of their index."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for index, name in socket.if_nameindex():
            flags = struct.unpack_from("=H", _ask(probe, _SIOCGIFFLAGS, name) or bytes(32), 16)[0]
            mtu = struct.unpack_from("=i", _ask(probe, _SIOCGIFMTU, name) or bytes(32), 16)[0]
            if flags & (_UP | _RUNNING) == _UP | _RUNNING:
                for address in _addresses(probe, name):
                    scope = index if address.is_link_local and address.version == 6 else 0
                    found.append(Interface(name, address, mtu, bool(flags & _LOOPBACK), scope))
    return found


def find_planes(most: int) -> list[Interface]:
    """Return one address of each interface that may be a plane; of the loopback if there is no other.

    The first global address of an interface counts, IPv4 before IPv6; container and tunnel
    interfaces are left out.
    """
    chosen: dict[str, Interface] = {}
    for interface in interfaces():
        if not interface.is_loopback and not interface.scope and not interface.name.startswith(_VIRTUAL):
            chosen.setdefault(interface.name, interface)
    return list(chosen.values())[:most] or [each for each in interfaces() if each.is_loopback][:1]


def mtu_of(address: IPv4Address | IPv6Address) -> int | None:
    """Return the MTU of the interface with this address, None if none has it exactly (127.0.1.1 and the like)."""
    for interface in interfaces():
        if interface.address == address or (interface.is_loopback and address.is_loopback):
            return interface.mtu
    return None


def _addresses(probe: socket.socket, name: str) -> Iterator[IPv4Address | IPv6Address]:
    answer = _ask(probe, _SIOCGIFADDR, name)
    if answer is not None:
        yield IPv4Address(answer[20:24])
    try:
        lines = Path("/proc/net/if_inet6").read_text("ascii").splitlines()
    except OSError:
        return
    for line in lines:
        digits, *_, device = line.split()
        if device == name:
            yield IPv6Address(bytes.fromhex(digits))


def _ask(probe: socket.socket, request: int, name: str) -> bytes | None:
    try:
        return fcntl.ioctl(probe, request, struct.pack("16s16x", name.encode()) + bytes(8))
    except OSError:
        return None
