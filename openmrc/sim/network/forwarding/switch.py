"""A switch: computes each packet's output link from the plane's shape."""

from openmrc.core.jit import kernel, rare_kernel
from openmrc.core.memory import prefetch_row
from openmrc.sim.network import egress, ingress, transport_api
from openmrc.sim.network.forwarding import graph_routes, probe_packets, reroute
from openmrc.sim.network.network_tables import FIXED_PATH, NONE, RETURNED, Network, Routing, Service
from openmrc.wire.entropy import PATH_BITS, PLANE_BITS

# Bits of an entropy (wire.entropy.on_plane): the T0's uplink, the plane, the T1's uplink, the long link.
T0_DIGIT = PATH_BITS
T1_AT = PATH_BITS + PLANE_BITS
T1_DIGIT = 10
LONG_AT = T1_AT + T1_DIGIT
_MASK = (1 << 32) - 1
AHEAD = 4  # packets
_SDBM = 65_599  # multiplier of the string hash of sdbm (Yigit's public-domain ndbm), a prime
_AGAIN = 0x5BD1E995  # selects another hash of the same packet


@rare_kernel
def serve(state: transport_api.State, network: Network, shard: int, node: int) -> None:
    """Forward all packets that reach the switch in the window."""
    ingress.collect(state, network, shard, node)
    count = network.shards[shard].batch_count
    for index in range(count):
        prefetch_row(network.hops, ingress.due(network, shard, min(index + AHEAD, count - 1)))
        hop = ingress.due(network, shard, index)
        now = network.hops[hop].arrives
        if egress.enqueue(network, shard, now, route(network, node, now, hop), hop):
            _send_back(network, shard, now, node, hop)


@rare_kernel
def _send_back(network: Network, shard: int, now: int, node: int, hop: int) -> None:
    """Send a trimmed packet to its source: addresses change places, the entropy selects the path as before."""
    row = network.hops[hop]
    row.source, row.destination = row.destination, row.source
    row.trimmed |= RETURNED
    address(network, hop)
    egress.enqueue(network, shard, now, route(network, node, now, hop), hop)


@kernel
def address(network: Network, hop: int) -> None:
    """Note in a packet what switches read of its destination."""
    row = network.hops[hop]
    if network.config[0].routed == 0:
        target = network.nic_ports[row.destination * network.config[0].planes + row.plane]
        row.t0 = target.t0
        row.pod = target.pod
        row.site = target.site
    else:
        row.path_number = row.entropy & graph_routes.NUMBERS


@kernel
def route(network: Network, node: int, now: int, hop: int) -> int:
    """Return the link on which a switch forwards a packet."""
    row = network.nodes[node]
    packet = network.hops[hop]
    if packet.destination == probe_packets.PROBE:
        return probe_packets.next_link(network, hop)
    if network.config[0].routed > 0 and row.plane != NONE:
        hashed = mix(packet.entropy, packet.source * _SDBM + packet.destination, row.salt)
        return graph_routes.follow(network, node, now, hop, hashed)
    if reroute.is_below(network, node, hop):
        link = reroute.down_link(network, node, hop)
        if row.down_bundle > 1:
            # A packet uses the same link of a bundle downwards as upwards; the tier below chose it.
            link += choose(network, node, now, hop, link, row.down_bundle, row.tier - 1)
        return link
    return row.up_base + choose(network, node, now, hop, row.up_base, row.up_count, row.tier)


@kernel
def choose(network: Network, node: int, now: int, hop: int, first: int, count: int, tier: int) -> int:
    """Return which of `count` equal links, from `first` on, a packet takes; for a tier its entropy may decide."""
    row = network.nodes[node]
    packet = network.hops[hop]
    routing = network.config[0].routing
    if routing == Routing.ENTROPY:
        return digit(packet.entropy, tier) % count
    if routing == Routing.ADAPTIVE and packet.service != Service.CONTROL and packet.entropy < FIXED_PATH:
        return _least_busy(network, node, now, hop, first, count)
    chosen = (mix(packet.entropy, packet.source * _SDBM + packet.destination, row.salt) * count) >> 32
    if network.config[0].detours > 0 and not reroute.usable(network, node, hop, first + chosen):
        return _rehashed(network, node, hop, first, count, chosen)
    return chosen


@rare_kernel
def _rehashed(network: Network, node: int, hop: int, first: int, count: int, instead: int) -> int:
    """Return one of the links that are not withdrawn, by another hash; `instead` if there is none."""
    left = 0
    for index in range(count):
        left += 1 if reroute.usable(network, node, hop, first + index) else 0
    packet = network.hops[hop]
    rank = (
        mix(packet.entropy ^ _AGAIN, packet.source * _SDBM + packet.destination, network.nodes[node].salt) * left
    ) >> 32
    for index in range(count):
        if reroute.usable(network, node, hop, first + index):
            if rank == 0:
                return index
            rank -= 1
    return instead


@kernel
def digit(entropy: int, tier: int) -> int:
    """Return the part of an entropy that a tier's switches read."""
    if tier == 0:
        return entropy & ((1 << T0_DIGIT) - 1)
    if tier == 1:
        return (entropy >> T1_AT) & ((1 << T1_DIGIT) - 1)
    return entropy >> LONG_AT


@kernel
def mix(a: int, b: int, salt: int) -> int:
    """Return a 32-bit hash (the finalizer of MurmurHash3, by Appleby, over a sum)."""
    value = (a * 0x9E3779B1 + b * 0x85EBCA77 + salt * 0xC2B2AE3D) & _MASK
    value ^= value >> 16
    value = (value * 0x85EBCA6B) & _MASK
    value ^= value >> 13
    value = (value * 0xC2B2AE35) & _MASK
    return value ^ (value >> 16)


@kernel
def _least_busy(network: Network, node: int, now: int, hop: int, first: int, count: int) -> int:
    """Return the link with the shortest queue; among equals the first from a random one on."""
    packet = network.hops[hop]
    begin = mix(packet.entropy, packet.source, network.nodes[node].salt)
    best, shortest = begin % count, -1
    for step in range(count):
        index = (begin + step) % count
        if network.config[0].detours > 0 and not reroute.usable(network, node, hop, first + index):
            continue
        waiting = egress.backlog(network, first + index, now)
        if shortest < 0 or waiting < shortest:
            best, shortest = index, waiting
        if waiting == 0:
            break
    return best
