"""Probes beside data: packets whose path is told, not computed, and which no transport sees.

They cross the links, queues and faults of everything else, in the class of control or of data, and end at a NIC.
`SimulatedProbe` counts what became of them. Their path lies in `Network.probe_links`, `PLACES` links a probe; a switch
forwards on the link behind the one on which the packet came, as no path crosses a link twice.
"""

from openmrc.core.jit import kernel, rare_kernel
from openmrc.sim.network import egress, packet_pool
from openmrc.sim.network.network_tables import NONE, Network, Service
from openmrc.wire.codes import Trim

PROBE = -2  # Hop.destination; Hop.path_number is the probe's row
PLACES = 8  # links of the longest path


@rare_kernel
def send(network: Network, shard: int, now: int, probe: int, size: int, service: int) -> None:
    """Put a packet of a probe on the first link of its path; without a free packet row, leave it out."""
    hop = packet_pool.allocate(network, shard)
    if hop == NONE:
        return
    row, link = network.hops[hop], network.probe_links[probe * PLACES].link
    row.destination = PROBE
    row.path_number = probe
    row.source = NONE
    row.size = size
    row.service = service
    row.trimmable = service != Service.CONTROL
    row.trimmed = 0
    row.marked = False
    network.probes[probe].sent += 1
    network.probes[probe].out += 1
    egress.enqueue(network, shard, now, link, hop)


@rare_kernel
def next_link(network: Network, hop: int) -> int:
    """Return the link on which a switch forwards a probe."""
    packet = network.hops[hop]
    place = packet.path_number * PLACES
    while network.probe_links[place].link != packet.link:
        place += 1
    return network.probe_links[place + 1].link


@kernel
def arrive(network: Network, hop: int) -> None:
    """Count a probe that has come to the end of its path; a copy of it counts only while others are out."""
    row, packet = network.probes[network.hops[hop].path_number], network.hops[hop]
    if row.out > 0:
        row.out -= 1
        row.arrived += 1
        row.late += 1 if packet.arrives > row.due and packet.trimmed == Trim.WHOLE else 0
