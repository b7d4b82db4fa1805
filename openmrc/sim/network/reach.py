"""Properties of a network: the ports of a NIC, their rates, and the longest unloaded round-trip time."""

from dataclasses import dataclass

import numpy as np

from openmrc.core.arrays import Ints
from openmrc.fabric.model.shape import PlaneShape
from openmrc.fabric.model.topology import Topology
from openmrc.sim.network.network_tables import PS_PER_S_AND_BITS


@dataclass(frozen=True)
class NicReach:
    rate: int  # bit/s of the port; if NICs differ, the highest
    round_trip: int  # ps of a full packet and its acknowledgement over the longest path

    @property
    def bdp(self) -> int:
        """Return the bandwidth-delay product in bytes."""
        return self.round_trip * self.rate // PS_PER_S_AND_BITS


def reaches(topology: Topology, mtu: int, header: int) -> list[NicReach]:
    """Return one entry per port of a NIC, in order."""
    packet = mtu + 2 * header
    if topology.planes:
        rates = [int(topology.link_rate[shape.host_up]) for shape in topology.planes]
        trips = [_round_trip(topology, shape, packet) for shape in topology.planes]
        return [NicReach(rate, trip) for rate, trip in zip(rates, trips, strict=True)]
    from openmrc.sim.network.forwarding.graph_routes import routes_of

    trip = 2 * routes_of(topology, packet).longest
    return [NicReach(int(rate), trip) for rate in _port_rates(topology)]


def nic_rate(topology: Topology) -> int:
    """Return the rate of a NIC, all its ports together (bit/s); if NICs differ, each port at its highest."""
    if topology.planes:
        return sum(int(topology.link_rate[shape.host_up]) for shape in topology.planes)
    return int(_port_rates(topology).sum())


def _port_rates(topology: Topology) -> Ints:
    own = topology.link_source < topology.nics
    rates = np.zeros(int(topology.link_port[own].max()) + 1, np.int64)
    np.maximum.at(rates, topology.link_port[own], topology.link_rate[own])
    return rates


def _round_trip(topology: Topology, shape: PlaneShape, packet: int) -> int:
    """Return the round-trip time over a plane's longest path.

    Twice the propagation and switching, plus the packet's time on each link at the NIC's rate, as in htsim.
    """
    path = topology.longest_path(shape)
    serialisation = packet * PS_PER_S_AND_BITS // int(topology.link_rate[shape.host_up])
    return 2 * int(topology.delays(path).sum()) + len(path) * serialisation
