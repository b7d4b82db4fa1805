"""The network interfaces of this machine: which ones can be planes, and their MTUs."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from openmrc.live.host import netlink

_VIRTUAL = ("docker", "veth", "br-", "virbr", "cni", "flannel", "tun", "tap", "wg", "ifb", "dummy")


@dataclass(frozen=True)
class Interface:
    """One address of one interface."""

    name: str
    address: IPv4Address | IPv6Address
    mtu: int  # bytes
    is_loopback: bool
    scope: int  # index, for link-local addresses
    index: int
    works: bool  # it is up and has a carrier


def interfaces() -> list[Interface]:
    """Return all addresses of working interfaces, in the order of their index."""
    return sorted((each for each in all_interfaces() if each.works), key=lambda each: each.index)


def all_interfaces() -> list[Interface]:
    """Return all addresses of all interfaces, working or not."""
    links = netlink.links()
    return [
        Interface(
            link.name,
            assigned.address,
            link.mtu,
            link.is_loopback,
            link.index if assigned.address.is_link_local and assigned.address.version == 6 else 0,
            link.index,
            link.works,
        )
        for assigned in netlink.addresses()
        if (link := links.get(assigned.index)) is not None
    ]


def find_planes(most: int) -> list[Interface]:
    """Return one address of each interface that can be a plane; of the loopback if there is no other.

    The first global address of an interface is used, IPv4 before IPv6; container and tunnel interfaces are skipped.
    """
    working = interfaces()
    chosen: dict[str, Interface] = {}
    for interface in working:
        if not interface.is_loopback and not interface.scope and not interface.name.startswith(_VIRTUAL):
            chosen.setdefault(interface.name, interface)
    return list(chosen.values())[:most] or [each for each in working if each.is_loopback][:1]


def interface_of(address: IPv4Address | IPv6Address, scope: int = 0) -> Interface | None:
    """Return the interface that has this address, working or not; None if there is none.

    Every address of 127.0.0.0/8 belongs to the loopback, and one with a scope to that interface.
    """
    for interface in all_interfaces():
        is_its_own = interface.address == address and (not scope or interface.index == scope)
        if is_its_own or (interface.is_loopback and address.is_loopback):
            return interface
    return None
