"""Routes through an irregular fabric: from every switch to every NIC, all links on shortest paths.

The shortest paths are numbered. A switch assigns the first numbers to paths that begin with its first link, the next
ones to its second link, and so on; so a number n selects one path, and 0 to `ways` - 1 select all. Under
Routing.ENTROPY the entropy is that number (modulo the count), and each switch passes the remainder to the next, as
it shifts out a uSID. Under ECMP the hash of a packet selects a link at each switch.

NICs do not forward. Every port of a NIC must reach every other NIC.
"""

from dataclasses import dataclass

import numpy as np

from openmrc.core.arrays import Ints
from openmrc.core.jit import kernel, rare_kernel
from openmrc.errors import ConfigError
from openmrc.fabric.model.topology import Topology
from openmrc.sim.network import egress
from openmrc.sim.network.network_tables import FIXED_PATH, PS_PER_S_AND_BITS, Network, Routing, Service, SwitchRoute

NUMBERS = (1 << 31) - 1  # a path number has 31 bits
MOST_ROUTES = 1 << 24  # switches x NICs; 200 MB of routes


@dataclass(frozen=True)
class Routes:
    """The columns of `SwitchRoute` and `NextHop`, and the paths from NICs' ports."""

    first: Ints
    count: Ints
    ways: Ints
    links: Ints
    longest: int  # ps, the longest time of a packet of the given size on any path


def routes_of(topology: Topology, packet: int) -> Routes:
    """Compute the shortest paths; `longest` assumes packets of `packet` bytes."""
    switches = topology.nodes - topology.nics
    if switches * topology.nics > MOST_ROUTES:
        raise ConfigError(
            f"{topology.fabric.name}: {switches} switches x {topology.nics} NICs, at most {MOST_ROUTES} pairs can be "
            "simulated; describe a regular fabric by `hosts` and `planes`"
        )
    cost = topology.link_delay + topology.node_delay[topology.link_destination]
    cost = cost + packet * PS_PER_S_AND_BITS // topology.link_rate
    without = np.setdiff1d(np.arange(topology.nics), topology.link_source)
    if len(without):
        raise ConfigError(f"{topology.fabric.name}: no link leads to the NIC {topology.name(int(without[0]))}")
    parts = [_towards(topology, nic, cost) for nic in range(topology.nics)]
    count = np.concatenate([part.count for part in parts])
    return Routes(
        first=np.cumsum(count) - count,
        count=count,
        ways=np.concatenate([part.ways for part in parts]),
        links=np.concatenate([part.links for part in parts]),
        longest=max(part.longest for part in parts),
    )


def _towards(topology: Topology, nic: int, cost: Ints) -> Routes:
    """Return the routes to one NIC, a row per switch; refuse a NIC port without one."""
    forwards = np.flatnonzero(topology.link_source >= topology.nics)
    source, destination = (
        ends[forwards].astype(np.int64) for ends in (topology.link_source, topology.link_destination)
    )
    distance = _distances(source, destination, topology.nodes, nic)
    nearer = (distance[source] > 0) & (distance[destination] >= 0) & (distance[source] == distance[destination] + 1)
    forwards, source, destination = forwards[nearer], source[nearer], destination[nearer]
    ways, longest = np.zeros(topology.nodes, np.int64), np.zeros(topology.nodes, np.int64)
    ways[nic] = 1
    for level in range(1, int(distance.max()) + 1):
        here = distance[source] == level
        np.add.at(ways, source[here], ways[destination[here]])
        np.minimum(ways, NUMBERS, out=ways)
        np.maximum.at(longest, source[here], longest[destination[here]] + cost[forwards[here]])
    out = np.flatnonzero((topology.link_source < topology.nics) & (topology.link_source != nic))
    _refuse_dead_ends(topology, nic, out, ways)
    order = np.argsort(source, kind="stable")
    count = np.bincount(source, minlength=topology.nodes)[topology.nics :]
    most = longest[topology.link_destination[out]] + cost[out]
    return Routes(count, count, ways[topology.nics :], forwards[order], int(most.max()) if len(out) else 0)


def _distances(source: Ints, destination: Ints, nodes: int, nic: int) -> Ints:
    """Return the hops from every switch to a NIC, -1 without a path."""
    distance = np.full(nodes, -1, np.int64)
    distance[nic] = level = 0
    while True:
        found = source[(distance[destination] == level) & (distance[source] < 0)]
        if not len(found):
            return distance
        level += 1
        distance[found] = level


def _refuse_dead_ends(topology: Topology, nic: int, out: Ints, ways: Ints) -> None:
    stuck = out[ways[topology.link_destination[out]] == 0]
    if len(stuck):
        link = int(stuck[0])
        name, port = topology.name(int(topology.link_source[link])), int(topology.link_port[link])
        raise ConfigError(
            f"{topology.fabric.name}: port {port} of {name} ({topology.link_name(link)}) has no path to "
            f"{topology.name(nic)}; every port of a NIC must reach every NIC: add a link, or remove the port"
        )


def ways_between(network: Network, source: Ints, destination: Ints, ports: int) -> Ints:
    """Return the number of paths from each port of `source` to `destination`, (pairs, ports); 0: no such port."""
    nics = len(network.nics)
    link = np.asarray(network.nic_ports)["link"].reshape(nics, ports)[source]
    first = np.asarray(network.ports)["destination"][link]
    row = destination[:, None] * network.config[0].routed + first - nics
    ways = np.asarray(network.routes)["ways"][np.where(first >= nics, row, 0)]
    own = np.asarray(network.nics)["ports"][source]
    reaches: Ints = np.where(first >= nics, ways, 1) * (np.arange(ports) < own[:, None])
    return reaches


@rare_kernel
def follow(network: Network, node: int, now: int, hop: int, hashed: int) -> int:
    """Return the link on which a switch forwards a packet; `hashed` are 32 bits for ECMP."""
    packet = network.hops[hop]
    route = network.routes[_row(network, node, packet.destination)]
    routing = network.config[0].routing
    if routing == Routing.ENTROPY:
        return _numbered(network, route, hop)
    if routing == Routing.ADAPTIVE and packet.service != Service.CONTROL and packet.entropy < FIXED_PATH:
        return _least_busy(network, route, now, hashed, packet.destination)
    link = network.next_hops[route.first + ((hashed * route.count) >> 32)].link
    if network.config[0].detours > 0 and not _is_open(network, link, packet.destination):
        return _rehashed(network, route, packet.destination, hashed, link)
    return link


@rare_kernel
def _is_open(network: Network, link: int, destination: int) -> bool:
    """Return whether routing uses a link: neither it nor all of the following links are withdrawn."""
    if network.ports[link].withdrawn:
        return False
    following = network.ports[link].destination
    if following == destination:
        return True
    route = network.routes[_row(network, following, destination)]
    for index in range(route.first, route.first + route.count):
        if not network.ports[network.next_hops[index].link].withdrawn:
            return True
    return False


@rare_kernel
def _rehashed(network: Network, route: SwitchRoute, destination: int, hashed: int, instead: int) -> int:
    """Return one of the links that are not withdrawn; `instead` if there is none."""
    left = 0
    for index in range(route.first, route.first + route.count):
        left += 1 if _is_open(network, network.next_hops[index].link, destination) else 0
    rank = hashed % max(1, left)
    for index in range(route.first, route.first + route.count):
        link = network.next_hops[index].link
        if _is_open(network, link, destination):
            if rank == 0:
                return link
            rank -= 1
    return instead


@kernel
def _row(network: Network, node: int, destination: int) -> int:
    return destination * network.config[0].routed + node - len(network.nics)


@kernel
def _numbered(network: Network, route: SwitchRoute, hop: int) -> int:
    """Take the path with the packet's number, and leave the packet the number of the remaining path."""
    packet = network.hops[hop]
    number = packet.path_number % route.ways
    link = 0
    for index in range(route.first, route.first + route.count):
        link = network.next_hops[index].link
        following = network.ports[link].destination
        ways = 1
        if following != packet.destination:
            ways = network.routes[_row(network, following, packet.destination)].ways
        if number < ways:
            break
        number -= ways
    packet.path_number = number
    return link


@kernel
def _least_busy(network: Network, route: SwitchRoute, now: int, begin: int, destination: int) -> int:
    """Return the link with the shortest queue; among equals the first from a random one on."""
    best, shortest = network.next_hops[route.first + begin % route.count].link, -1
    for step in range(route.count):
        link = network.next_hops[route.first + (begin + step) % route.count].link
        if network.config[0].detours > 0 and not _is_open(network, link, destination):
            continue
        waiting = egress.backlog(network, link, now)
        if shortest < 0 or waiting < shortest:
            best, shortest = link, waiting
        if waiting == 0:
            break
    return best
