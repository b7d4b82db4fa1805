"""The plan of a lab: the namespaces, cables and addresses of a fabric. Nothing is created here.

Names, ports and uSIDs are those of `openmrc.fabric`. A lab adds:

* Each NIC and each switch is a namespace. Port 2 is called `p2` everywhere, and a NIC's port is its plane; both ends of
  a cable have a static neighbour, `fe80::1`.
* A NIC's address on a plane is the carrier as it arrives (`UsidPlan.nic_address`): `fcbb:bb02:e001:1003::` is
  downlink 1 of T0 3 on plane 2. It must be unique, so a fabric whose paths leave no room for it is refused.
* For programs without SRv6 support (TCP), a NIC also has the plain address of `usid.identity`, reached through IPv6
  in IPv6 over the same paths, and decapsulated by the uSID `d006` after the downlink.
* A management network, as in real clusters: `10.91.x.y`, with host names.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address

from openmrc.errors import ConfigError
from openmrc.fabric.addressing.paths import Choice, choices, path
from openmrc.fabric.addressing.usid import DEEPEST, UsidPlan
from openmrc.fabric.export.addresses import mac
from openmrc.fabric.export.options import ExportOptions
from openmrc.fabric.export.view import linux_name
from openmrc.fabric.model.port_settings import DEFAULT_BUFFER
from openmrc.fabric.model.topology import LinkTier, NodeKind, Topology
from openmrc.lab.port import MOST_PORTS

GATEWAY = "fe80::1"  # a NIC's next hop on each of its cables
MTU = 9000
EXPORT = ExportOptions(mtu=MTU)  # of the Linux export, which configures the switches
DECAPSULATE = 0xD006
MANAGEMENT = "mgmt"
_MANAGEMENT_NET = int(IPv4Address("10.91.0.0"))
MANAGEMENT_BITS = 16
MOST_NODES = 2000  # beyond this, the machine itself is the bottleneck


@dataclass(frozen=True)
class CableEnd:
    node: str
    interface: str
    mac: str
    rate: int  # bit/s, egress
    buffer: int  # bytes
    link: int  # directed link of the topology, egress
    is_nic: bool
    is_last_hop: bool  # this direction ends at a NIC


@dataclass(frozen=True)
class Cable:
    """Two connected ports; `lower` is the one nearer to the hosts."""

    lower: CableEnd
    upper: CableEnd
    plane: int
    tier: LinkTier

    @property
    def name(self) -> str:
        """Return LOWER<>UPPER, with the port if several cables connect the two."""
        return f"{self.lower.node}:{self.lower.interface}<>{self.upper.node}:{self.upper.interface}"


@dataclass(frozen=True)
class Lab:
    """A fabric to build, or already built."""

    name: str
    plan: UsidPlan
    cables: tuple[Cable, ...]

    @property
    def topology(self) -> Topology:
        return self.plan.topology

    def nics(self) -> list[str]:
        return [self.topology.name(nic) for nic in range(self.topology.nics)]

    def switches(self) -> list[str]:
        return [self.topology.name(node) for node in range(self.topology.nics, self.topology.nodes)]

    def ports(self) -> Iterator[CableEnd]:
        """Yield both ends of every cable."""
        for cable in self.cables:
            yield cable.lower
            yield cable.upper

    def tunnel(self, source: int, destination: int, choice: Choice) -> str:
        """Return the address whose path ends with decapsulation."""
        sids = self.plan.planes[choice.plane]
        way = path(self.plan, source, destination, choice).sids
        consumed = way[: len(way) - len(sids.tail(0, 0))]
        return self.plan.address(choice.plane, [*consumed, *([sids.nic] if sids.nic else []), DECAPSULATE])

    def decapsulating(self, plane: int, nic: int) -> str:
        sids = self.plan.planes[plane]
        downlink = sids.nic or sids.downlink_sid(sids.shape.t0_of(nic), sids.shape.t0_port_of(nic))
        return self.plan.address(plane, [downlink, DECAPSULATE])

    def ways(self, plane: int, source: int, destination: int) -> list[Choice]:
        """Return every path of a plane between two NICs."""
        return list(choices(self.topology.planes[plane], source, destination))

    def management(self, nic: int) -> str:
        """Return a NIC's address on the management network."""
        return str(IPv4Address(_MANAGEMENT_NET + nic + 1))


def plan_lab(name: str, plan: UsidPlan) -> Lab:
    """Plan a lab; refuse a fabric that exceeds one machine or the address format."""
    topology = plan.topology
    if topology.nodes > MOST_NODES:
        near = "scenarios/fabrics/lab.yaml has 48"
        raise ConfigError(
            f"{topology.fabric.name}: {topology.nodes} nodes exceed a lab's limit of {MOST_NODES}; {near}"
        )
    if topology.links > MOST_PORTS:
        raise ConfigError(f"{topology.fabric.name}: {topology.links} ports exceed a lab's limit of {MOST_PORTS}")
    if not all(sids.is_unique for sids in plan.planes):
        raise ConfigError(
            f"{topology.fabric.name}: a path has {plan.depth} of at most {DEEPEST} uSIDs, none left for the NIC; "
            "use two tiers"
        )
    return Lab(name, plan, tuple(_cables(topology)))


def _cables(topology: Topology) -> Iterator[Cable]:
    for link in range(topology.links):
        source, reverse = int(topology.link_source[link]), int(topology.link_reverse[link])
        destination = int(topology.link_destination[link])
        height = (int(topology.node_tier[source]), source)
        if height < (int(topology.node_tier[destination]), destination):
            tier = LinkTier(int(topology.link_tier[link]))
            yield Cable(_port(topology, link), _port(topology, reverse), int(topology.link_plane[link]), tier)


def _port(topology: Topology, link: int) -> CableEnd:
    node, number = int(topology.link_source[link]), int(topology.link_port[link])
    is_nic = int(topology.node_kind[node]) == NodeKind.NIC
    return CableEnd(
        node=topology.name(node),
        interface=f"p{number}" if is_nic else linux_name(topology.port_name(node, number), number),
        mac=mac(topology, int(topology.link_plane[link]), node, number),
        rate=int(topology.link_rate[link]),
        buffer=int(topology.link_buffer[link]) or DEFAULT_BUFFER,
        link=link,
        is_nic=is_nic,
        is_last_hop=int(topology.node_kind[int(topology.link_destination[link])]) == NodeKind.NIC,
    )
