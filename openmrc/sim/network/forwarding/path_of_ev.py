"""The path of an EV: the links over which the loop sends its packets, computed by the same kernel."""

from typing import Any

import numpy as np

from openmrc.core.arrays import Ints
from openmrc.core.jit import entry
from openmrc.core.rows import column, table
from openmrc.fabric.model.shape import IntOrInts, PlaneShape
from openmrc.sim.network.forwarding import switch
from openmrc.sim.network.network_tables import Hop, Network, Service
from openmrc.wire.layout import Matrix

LONGEST = 8  # links of a path: up and down three tiers, and between two sites


def choices(shape: PlaneShape, ev: IntOrInts) -> tuple[IntOrInts, IntOrInts, IntOrInts]:
    """Return the T0's uplink, the T1's uplink and the inter-site link of an EV: each tier reads its digit."""
    first, second = (1 << switch.T0_DIGIT) - 1, (1 << switch.T1_DIGIT) - 1
    digits = (ev & first, ev >> switch.T1_AT & second, ev >> switch.LONG_AT)
    uplink = digits[0] % max(1, shape.t0_up) if shape.tiers > 1 else 0 * ev
    core = digits[1] % max(1, shape.t1_up) if shape.tiers > 2 else 0 * ev
    return uplink, core, digits[shape.tiers - 1] % max(1, shape.long)


def links_of(network: Network, source: Ints, destination: Ints, plane: Ints, ev: Ints) -> Matrix:
    """Return a row per packet: the links on its path, -1 after the last."""
    packets = np.stack([source, destination, plane, ev], axis=1).astype(np.int64)
    links = np.full((len(packets), LONGEST), -1, np.int64)
    _follow(network._replace(hops=table(Hop, 1)), packets, links)
    return links


def connected_evs(engine: Any) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the EV rows of all queue pairs with a peer, and (queue pair, source, destination) of each."""
    base, count, peer = (column(engine.qps, name).astype(np.int64) for name in ("ev_base", "ev_count", "peer"))
    rows = np.flatnonzero((count > 0) & (peer >= 0))
    of = np.repeat(rows, count[rows])
    within = np.arange(len(of)) - np.repeat(np.cumsum(count[rows]) - count[rows], count[rows])
    destination = column(engine.peers, "address").astype(np.int64)[peer[of]]
    source = column(engine.qps, "endpoint").astype(np.int64)[of]
    known = destination >= 0
    return (base[of] + within)[known], of[known], source[known], destination[known]


@entry
def _follow(network: Network, packets: Matrix, links: Matrix) -> None:
    planes = network.config[0].planes
    hop = network.hops[0]
    hop.service = Service.DATA.value
    for index in range(len(packets)):
        source, destination, plane = packets[index, 0], packets[index, 1], packets[index, 2]
        hop.source = source
        hop.destination = destination
        hop.plane = plane
        hop.entropy = packets[index, 3]
        switch.address(network, 0)
        link = network.nic_ports[source * planes + plane].link
        links[index, 0] = link
        for place in range(1, LONGEST):
            node = network.ports[link].destination
            if node < len(network.nics):
                break
            link = switch.route(network, node, 0, 0)
            links[index, place] = link
