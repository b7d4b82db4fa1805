"""The compiled entries of the loop: one window of one shard, and the work between windows.

A window [start, end) has two phases: first all switches, then all NICs. It is no longer than the shortest delay of a
link to a switch, so packets to switches arrive in a later window, and those to NICs were sent in the phase before. The
nodes of a phase are independent of each other: shards run in parallel, and the result does not depend on their number.
Cables to NICs are the shortest of a fabric, and a switch delays what it receives, a NIC does not: with one phase,
windows would be ten times shorter.
"""

from openmrc.core.arrays import Ints
from openmrc.core.jit import entry, kernel
from openmrc.sim.loop import fault_actions, flows, nic
from openmrc.sim.network import ingress, packet_pool, transport_api
from openmrc.sim.network.forwarding import pfc, probe_packets, switch
from openmrc.sim.network.network_tables import NONE, Network
from openmrc.units import NEVER

SWITCHES, NICS = 0, 1  # phases of a window


@entry
def run_window(
    state: transport_api.State, network: Network, shard: int, turn: int, phase: int, start: int, end: int
) -> int:
    """Advance the switches or the NICs of a shard by [start, end) ps.

    Return the earliest time of the shard's next work; after the phase SWITCHES it is not final.
    """
    owner = network.shards[shard]
    owner.turn = turn
    owner.start = start
    owner.end = end
    owner.prefetched = 0
    first_switch = owner.first_node + owner.nic_count
    if phase == SWITCHES:
        owner.earliest = NEVER
        owner.joined = 1 - turn
        for index in range(first_switch, owner.first_node + owner.node_count):
            _serve_switch(state, network, shard, network.members[index].node)
    else:
        owner.joined = turn
        for index in range(owner.first_node, first_switch):
            _prefetch_nics(state, network, shard, index, first_switch)
            _serve_nic(state, network, shard, network.members[index].node)
    return owner.earliest


@kernel
def _serve_switch(state: transport_api.State, network: Network, shard: int, node: int) -> None:
    row = network.nodes[node]
    if row.next_at < network.shards[shard].end or ingress.has_mail(network, shard, node):
        if network.config[0].lossless and row.plane != NONE:  # scale-up switches have no plane
            pfc.serve(state, network, shard, node)
        else:
            switch.serve(state, network, shard, node)
    network.shards[shard].earliest = min(network.shards[shard].earliest, row.next_at)


@kernel
def _prefetch_nics(state: transport_api.State, network: Network, shard: int, index: int, behind: int) -> None:
    """Prefetch the rows of the next two NICs that have something to do."""
    for step in range(nic.PREFETCH_STEPS):
        ahead = index + nic.PREFETCH_STEPS - step
        if ahead < behind:
            node = network.members[ahead].node
            if network.nodes[node].next_at < network.shards[shard].end:
                nic.prefetch(state, network, node, step)


@kernel
def _serve_nic(state: transport_api.State, network: Network, shard: int, node: int) -> None:
    row = network.nodes[node]
    if row.next_at < network.shards[shard].end or ingress.has_mail(network, shard, node):
        nic.serve(state, network, shard, node)
    network.shards[shard].earliest = min(network.shards[shard].earliest, row.next_at)


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
def send_probes(network: Network, now: int, numbers: Ints, size: int, service: int) -> None:
    """Send a packet of each of these probes, between windows; the network has one shard."""
    for index in range(len(numbers)):
        probe_packets.send(network, 0, now, numbers[index], size, service)


@entry
def apply_fault(state: transport_api.State, network: Network, now: int, kind: int, subject: int, value: int) -> None:
    """Apply one fault, between windows."""
    fault_actions.apply(state, network, now, kind, subject, value)
