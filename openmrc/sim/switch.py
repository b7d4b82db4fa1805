"""A switch: for each packet the link it leaves on, by arithmetic over the plane's shape."""

from __future__ import annotations

from openmrc.core.jit import kernel, rare_kernel
from openmrc.sim import graph_routes, queue, wire
from openmrc.sim.tables import NONE, Network, Node, Routing

T0_DIGIT = 12  # bits of an entropy that name the T0's uplink; above them the T1's, then the long link
T1_DIGIT = 12
_MASK = (1 << 32) - 1


@rare_kernel
def serve(network: Network, shard: int, node: int, start: int, end: int) -> None:
    """Forward everything that reaches the switch in the window."""
    count = wire.collect(network, shard, node, start, end)
    for index in range(count):
        hop = wire.due(network, shard, index)
        now = network.hops[hop].arrives
        queue.enqueue(network, shard, now, route(network, node, now, hop), hop)
    network.shards[shard].hops += count


@kernel
def route(network: Network, node: int, now: int, hop: int) -> int:
    """Return the link on which a switch sends a packet on."""
    row = network.nodes[node]
    packet = network.hops[hop]
    if network.rules[0].routed > 0 and row.plane != NONE:
        hashed = mix(packet.entropy, packet.source * 65599 + packet.destination, row.salt)
        return graph_routes.follow(network, node, now, hop, hashed)
    below, index = packet.t0, packet.destination
    if row.tier == 1:
        below, index = packet.pod, packet.t0
    elif row.tier == 2:
        below, index = packet.site, packet.pod
    if below == row.own or row.up_count == 0:
        link = row.down_base + index * row.down_stride
        if row.down_bundle > 1:
            # The link of a bundle is the same on the way down as on the way up: the tier below has chosen it.
            link += choose(network, row, now, hop, link, row.down_bundle, row.tier - 1)
        return link
    return row.up_base + choose(network, row, now, hop, row.up_base, row.up_count, row.tier)


@kernel
def choose(network: Network, row: Node, now: int, hop: int, first: int, count: int, tier: int) -> int:
    """Return which of `count` equal links, from `first` on, a packet takes; its entropy may say so for a tier."""
    packet = network.hops[hop]
    routing = network.rules[0].routing
    if routing == Routing.ENTROPY:
        return digit(packet.entropy, tier) % count
    if routing == Routing.ADAPTIVE and packet.service == 1:
        return _least_busy(network, now, first, count, mix(packet.entropy, packet.source, row.salt))
    return (mix(packet.entropy, packet.source * 65599 + packet.destination, row.salt) * count) >> 32


@kernel
def digit(entropy: int, tier: int) -> int:
    """Return the part of an entropy that a tier's switches read."""
    if tier == 0:
        return entropy & ((1 << T0_DIGIT) - 1)
    if tier == 1:
        return (entropy >> T0_DIGIT) & ((1 << T1_DIGIT) - 1)
    return entropy >> (T0_DIGIT + T1_DIGIT)


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
def _least_busy(network: Network, now: int, first: int, count: int, begin: int) -> int:
    """Return the link with the shortest queue; among equals the first from a random one on."""
    best, shortest = 0, -1
    for step in range(count):
        index = (begin + step) % count
        waiting = queue.backlog(network, first + index, now)
        if shortest < 0 or waiting < shortest:
            best, shortest = index, waiting
        if waiting == 0:
            break
    return best
