"""Routes around withdrawn links: which of several equal links still leads to a packet's destination.

A routing protocol withdraws a failed link from the tables of every switch whose packets would end up on it, not only of
its neighbours: a T0 avoids a T1 that has lost its link to the destination's T0. Instead of tables, the path is followed
when a packet needs it, and only while any link is withdrawn. The switches' hash is resilient: only flows over a
withdrawn link move.
"""

from openmrc.core.jit import kernel, rare_kernel
from openmrc.sim.network.network_tables import NONE, Network


@rare_kernel
def usable(network: Network, node: int, hop: int, link: int) -> bool:
    """Return whether routing would send a packet from a switch over a link."""
    if network.ports[link].withdrawn:
        return False
    if is_below(network, node, hop):
        return True
    following = network.ports[link].destination
    if is_below(network, following, hop):
        return _descends(network, following, hop)
    row = network.nodes[following]
    for up in range(row.up_base, row.up_base + row.up_count):
        if not network.ports[up].withdrawn and _leads(network, network.ports[up].destination, hop):
            return True
    return False


@kernel
def is_below(network: Network, node: int, hop: int) -> bool:
    """Return whether a packet's destination is below a switch."""
    row = network.nodes[node]
    packet = network.hops[hop]
    below = packet.t0
    if row.tier == 1:
        below = packet.pod
    elif row.tier == 2:
        below = packet.site
    return below == row.own or row.up_count == 0


@kernel
def down_link(network: Network, node: int, hop: int) -> int:
    """Return the first of the equal links from a switch down towards a packet's destination."""
    row = network.nodes[node]
    packet = network.hops[hop]
    index = packet.destination
    if row.tier == 1:
        index = packet.t0
    elif row.tier == 2:
        index = packet.pod
    return row.down_base + index * row.down_stride


@kernel
def _descends(network: Network, node: int, hop: int) -> bool:
    """Return whether a switch above the destination's T0 has a path down to it."""
    at = node
    while network.nodes[at].tier > 0:
        first, found = down_link(network, at, hop), NONE
        for link in range(first, first + max(1, network.nodes[at].down_bundle)):
            if not network.ports[link].withdrawn:
                found = link
        if found == NONE:
            return False
        at = network.ports[found].destination
    return True


@kernel
def _leads(network: Network, node: int, hop: int) -> bool:
    """Return whether a top switch reaches the destination's T0, directly or over an inter-site link."""
    if is_below(network, node, hop):
        return _descends(network, node, hop)
    row = network.nodes[node]
    for link in range(row.up_base, row.up_base + row.up_count):
        if not network.ports[link].withdrawn and _descends(network, network.ports[link].destination, hop):
            return True
    return False


@kernel
def open_ports(network: Network, nic: int, destination: int) -> int:
    """Return the mask of planes that a bond uses from one NIC to another: all if none is left, so that retries run out.

    A NIC's bond avoids its own ports that are down; a remote port is excluded once routing has withdrawn it.
    """
    planes, own = network.config[0].planes, network.nics[nic].ports
    every = (1 << own) - 1
    if network.config[0].detours == 0:
        return every
    found = 0
    for plane in range(own):
        ours, theirs = network.nic_ports[nic * planes + plane], network.nic_ports[destination * planes + plane]
        # In an irregular fabric any port leads to any: the switches handle the remote NIC's failed ports.
        reaches = not theirs.withdrawn or network.config[0].routed > 0
        if not ours.left and not ours.withdrawn and reaches:
            found |= 1 << plane
    return found if found != 0 else every


@kernel
def plane_for(network: Network, nic: int, destination: int, plane: int, turn: int) -> int:
    """Return the plane of a connection that prefers `plane`: another, by its `turn`, while that one is down."""
    mask = open_ports(network, nic, destination)
    if (mask >> plane) & 1 == 1 or network.config[0].detours == 0:
        return plane
    planes = network.config[0].planes
    left = 0
    for other in range(planes):
        left += (mask >> other) & 1
    rank = turn % left
    for other in range(planes):
        if (mask >> other) & 1 == 1:
            if rank == 0:
                return other
            rank -= 1
    return plane
