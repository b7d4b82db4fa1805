"""The compiled entries of the loop: one window of one shard, and the work between windows.

A window [start, end) is no longer than the shortest link delay, so packets sent in it arrive later and nodes are
independent of each other: shards run in parallel, and the result does not depend on their number.
"""

from __future__ import annotations

from openmrc.core.jit import entry, kernel
from openmrc.sim.loop import fault_actions, flows, nic
from openmrc.sim.network import ingress, packet_pool, pfc, switch, transport_api
from openmrc.sim.network.tables import NONE, Network
from openmrc.units import NEVER


@entry
def run_window(state: transport_api.State, network: Network, shard: int, turn: int, start: int, end: int) -> int:
    """Advance the nodes of a shard by [start, end) ps; return the earliest time of their next work."""
    owner = network.shards[shard]
    owner.turn = turn
    owner.earliest = NEVER
    for index in range(owner.first_node, owner.first_node + owner.node_count):
        node = network.members[index].node
        row = network.nodes[node]
        if row.next_at < end or ingress.has_mail(network, shard, node):
            if row.tier == NONE:
                nic.serve(state, network, shard, node, start, end)
            elif network.config[0].lossless == 1 and row.plane != NONE:  # scale-up switches have no plane
                pfc.serve(state, network, shard, node, start, end)
            else:
                switch.serve(state, network, shard, node, start, end)
        owner.earliest = min(owner.earliest, row.next_at)
    return owner.earliest


@entry
def deliver_signals(network: Network) -> int:
    """Deliver releases between NICs, in order of the shards' nodes; return the earliest start (ps)."""
    earliest = NEVER
    for shard in range(len(network.shards)):
        owner = network.shards[shard]
        for index in range(owner.signal_base, owner.signal_base + owner.signals):
            signal = network.signals[index]
            flows.release(network, signal.flow, signal.at)
            earliest = min(earliest, max(signal.at, network.flows[signal.flow].start))
        owner.signals = 0
    return earliest


@entry
def level(network: Network, reserve: int) -> int:
    """Balance free packets between shards; return the smallest number that a shard has."""
    least = NEVER
    for taker in range(len(network.shards)):
        if packet_pool.available(network, taker) < reserve:
            _borrow(network, taker, reserve)
        least = min(least, packet_pool.available(network, taker))
    return least


@kernel
def _borrow(network: Network, taker: int, reserve: int) -> None:
    for giver in range(len(network.shards)):
        spare = packet_pool.available(network, giver) - reserve
        if giver != taker and spare > 0:
            packet_pool.lend(network, giver, taker, spare // 2 + 1)


@entry
def apply_fault(state: transport_api.State, network: Network, now: int, kind: int, subject: int, value: int) -> None:
    """Apply one fault, between windows."""
    fault_actions.apply(state, network, now, kind, subject, value)
