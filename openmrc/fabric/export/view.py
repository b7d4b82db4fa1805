"""One switch as its operating system will see it: ports with names and neighbours, uSIDs, entries.

Every port of a node has the node's own link-local address, `fe80::` and the node's tier and index: `fe80::1:3` is
T0 3, `fe80::2:5` T1 5, `fe80::e:...` a NIC. Planes share nothing, so they repeat the same addresses. MAC addresses are
locally administered: 02, plane, tier and index, port.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass

from openmrc.errors import ConfigError
from openmrc.fabric.shape import PlaneShape
from openmrc.fabric.tables import Action, Tables, switch_tables
from openmrc.fabric.topology import Topology
from openmrc.fabric.usid import UsidPlan, prefix_text

_NIC_MARK = 0xE  # first digit of a NIC's addresses


@dataclass(frozen=True)
class Options:
    """Hold what differs between images and cages."""

    breakout: int = 1  # ports a cage
    lanes: int = 8  # a cage
    image: str = "current"  # or old: a SONiC whose YANG model knows uN and uDT46 only


@dataclass(frozen=True)
class Port:
    """Hold one port of a switch."""

    number: int
    peer: str
    peer_port: int
    address: str  # link-local
    mac: str
    peer_address: str
    peer_mac: str
    peer_identity: str  # a NIC's own address, else empty
    gbps: float


@dataclass(frozen=True)
class Entry:
    """Hold one entry of a table."""

    prefix: str
    action: Action
    port: int


@dataclass(frozen=True)
class SwitchView:
    """Hold what an exporter needs of one switch."""

    name: str
    plane: int
    tier: int
    ports: tuple[Port, ...]
    entries: tuple[Entry, ...]
    options: Options

    @property
    def own(self) -> list[str]:
        """Return the prefixes of the switch's own uSIDs."""
        return [entry.prefix for entry in self.entries if entry.action == Action.UN]

    def port(self, number: int) -> Port:
        return self.ports[number]

    @property
    def loopback(self) -> str:
        """Return an address of the switch itself, inside its first uSID."""
        return str(ipaddress.IPv6Network(self.own[0]).network_address + 1)


PortName = Callable[[int, Options], str]


def view(plan: UsidPlan, switch: int, options: Options | None = None, tables: Tables | None = None) -> SwitchView:
    """Return one switch's view."""
    topology = plan.topology
    if switch < topology.nics:
        raise ConfigError(f"{topology.name(switch)} is a NIC; exports are for switches")
    shape = topology.planes[int(topology.node_plane[switch])]
    own = tables.of(switch) if tables is not None else switch_tables(plan, switch)
    first, out = topology.outgoing()
    links = [int(link) for link in out[first[switch] : first[switch + 1]]]
    found = {int(topology.link_port[link]): _port(plan, shape, switch, link) for link in links}
    gaps = [number for number in range(max(found) + 1) if number not in found]
    found.update({number: Port(number, "", -1, "", "", "", "", "", 0) for number in gaps})
    entries = tuple(
        Entry(prefix_text(int(own.block[row]), int(own.usid[row])), Action(int(own.action[row])), int(own.port[row]))
        for row in range(len(own))
    )
    ports = tuple(found[number] for number in sorted(found))
    tier = int(topology.node_tier[switch])
    return SwitchView(topology.name(switch), shape.plane, tier, ports, entries, options or Options())


def _port(plan: UsidPlan, shape: PlaneShape, switch: int, link: int) -> Port:
    topology = plan.topology
    peer, back = int(topology.link_destination[link]), int(topology.link_reverse[link])
    number, peer_port = int(topology.link_port[link]), int(topology.link_port[back])
    return Port(
        number=number, peer=topology.name(peer), peer_port=peer_port,
        address=link_local(topology, switch), mac=mac(topology, shape.plane, switch, number),
        peer_address=link_local(topology, peer), peer_mac=mac(topology, shape.plane, peer, peer_port),
        peer_identity=plan.identity(shape.plane, peer) if peer < topology.nics else "",
        gbps=int(topology.link_rate[link]) / 1e9,
    )  # fmt: skip


def link_local(topology: Topology, node: int) -> str:
    """Return the link-local address of all ports of a node, in the usual form (RFC 5952): an index has 16 bits."""
    if node < topology.nics:
        return f"fe80::{_NIC_MARK:x}:{node >> 16:x}:{node & 0xFFFF:x}"
    tier, index = int(topology.node_tier[node]), int(topology.node_index[node])
    return f"fe80::{tier + 1:x}:{index:x}"


def mac(topology: Topology, plane: int, node: int, port: int) -> str:
    """Return the MAC address of a port; a NIC has one port a plane."""
    if node < topology.nics:
        low = _NIC_MARK << 28 | node
    else:
        low = (int(topology.node_tier[node]) + 1) << 28 | int(topology.node_index[node]) << 16 | port
    return (0x02 << 40 | plane << 32 | low).to_bytes(6, "big").hex(":")


def linux_port(port: int, options: Options) -> str:
    """Name a port as Linux and FRR know it."""
    return f"p{port}"


def sonic_port(port: int, options: Options) -> str:
    """Name a port by its first lane."""
    return f"Ethernet{port * options.lanes // options.breakout}"


def cumulus_port(port: int, options: Options) -> str:
    """Name a port by its cage, and its part of the cage where that is split."""
    cage, part = divmod(port, options.breakout)
    return f"swp{cage + 1}" if options.breakout == 1 else f"swp{cage + 1}s{part}"


def eos_port(port: int, options: Options) -> str:
    """Name a port by cage and part, both from 1."""
    cage, part = divmod(port, options.breakout)
    return f"Ethernet{cage + 1}/{part * options.lanes // options.breakout + 1}"


def containerlab_port(port: int, options: Options) -> str:
    """Name a port of a container; eth0 is its management port."""
    return f"eth{port + 1}"
