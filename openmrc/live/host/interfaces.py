"""The network interfaces of this machine: which ones can be planes, and their MTUs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from openmrc.live.host import netlink

ON_HARDWARE = frozenset({"", "bond", "ipoib", "ipvlan", "macvlan", "team", "vlan"})  # kinds; empty: hardware itself
INTO_CONTAINERS = frozenset({"netkit", "veth"})


@dataclass(frozen=True, kw_only=True)
class Interface(netlink.NetlinkInterface):
    """A link with one of its addresses."""

    address: IPv4Address | IPv6Address

    @property
    def scope(self) -> int:
        """Index, for link-local addresses."""
        return self.index if self.address.is_link_local and self.address.version == 6 else 0


def interfaces() -> list[Interface]:
    """Return all addresses of working interfaces, in the order of their index."""
    return _working(netlink.links())


def _working(links: Mapping[int, netlink.NetlinkInterface]) -> list[Interface]:
    return sorted((each for each in all_interfaces(links) if each.works), key=lambda each: each.index)


def all_interfaces(links: Mapping[int, netlink.NetlinkInterface]) -> list[Interface]:
    """Return all addresses of these links, as `netlink.links` has just read them, working or not."""
    found = [(links[index], address) for index, address in netlink.addresses() if index in links]
    return [Interface(**vars(link), address=address) for link, address in found]


def find_planes(most: int) -> list[Interface]:
    """Return one address of each interface that can be a plane; of the loopback if there is no other.

    The kernel tells what kind of link it is. Those on hardware are used, and bridges with a port on hardware; if there
    are none, as in a container, the ends of pairs whose other end is elsewhere; tunnels, other bridges and the like
    never. The first global address of an interface is used, IPv4 before IPv6.
    """
    links = netlink.links()
    working = _working(links)
    bridged = {link.master for link in links.values() if link.kind in ON_HARDWARE and not link.is_loopback}
    outer = {
        index
        for index, link in links.items()
        if link.kind in ON_HARDWARE or (link.kind == "bridge" and index in bridged)
    }
    inner = {index for index, link in links.items() if link.kind in INTO_CONTAINERS and link.is_peer_elsewhere}
    for indices in (outer, inner):
        chosen: dict[str, Interface] = {}
        for interface in working:
            if interface.index in indices and not interface.is_loopback and not interface.scope:
                chosen.setdefault(interface.name, interface)
        if chosen:
            return list(chosen.values())[:most]
    return [each for each in working if each.is_loopback][:1]


def interface_of(
    address: IPv4Address | IPv6Address, scope: int = 0, among: Sequence[Interface] | None = None
) -> Interface | None:
    """Return the interface that has this address, working or not, of all now or `among` some; None if there is none.

    Every address of 127.0.0.0/8 belongs to the loopback, and one with a scope to that interface.
    """
    for interface in all_interfaces(netlink.links()) if among is None else among:
        is_its_own = interface.address == address and (not scope or interface.index == scope)
        if is_its_own or (interface.is_loopback and address.is_loopback):
            return interface
    return None
