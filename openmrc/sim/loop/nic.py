"""One NIC: passes arrivals to its transport, starts messages, and sends while a port is free."""

from openmrc.core.jit import kernel, rare_kernel
from openmrc.core.memory import prefetch_lines, prefetch_row
from openmrc.sim.loop import flows
from openmrc.sim.network import egress, ingress, packet_pool, transport_api
from openmrc.sim.network.forwarding import pfc, probe_packets, scale_up, switch
from openmrc.sim.network.network_tables import NONE, Network, Service
from openmrc.units import NEVER

PREFETCH_STEPS = 2  # of transport_api.prefetch


@rare_kernel
def serve(state: transport_api.State, network: Network, shard: int, nic: int) -> None:
    """Advance one NIC by one time window."""
    ingress.collect(state, network, shard, nic)
    count, end = network.shards[shard].batch_count, network.shards[shard].end
    for step in range(PREFETCH_STEPS):
        for index in range(count):
            transport_api.prefetch(state, nic, network.hops[ingress.due(network, shard, index)].frame, step)
    row = network.nics[nic]
    index, clock = 0, network.shards[shard].start
    arrives = ingress.arrival(network, shard, index)
    while min(arrives, row.wake) < end:
        if arrives <= row.wake:
            clock = max(clock, arrives)
            _receive(state, network, shard, clock, nic, ingress.due(network, shard, index))
            index += 1
            arrives = ingress.arrival(network, shard, index)
        else:
            clock = max(clock, row.wake)
            transport_api.expire(state, network, clock, nic)
        _process(state, network, shard, clock, nic)
    network.nodes[nic].next_at = min(network.nodes[nic].next_at, row.wake)


@kernel
def prefetch(state: transport_api.State, network: Network, nic: int, step: int) -> None:
    """Prefetch the rows of a NIC that will be served soon; step 0, then step 1."""
    transport_api.prefetch_nic(state, nic, step)
    if step == 0:
        planes = network.config[0].planes
        prefetch_row(network.nics, nic)
        prefetch_lines(network.nic_ports, nic * planes, 0, 1 + planes // 2)


@kernel
def _receive(state: transport_api.State, network: Network, shard: int, now: int, nic: int, hop: int) -> None:
    if network.hops[hop].destination < 0:
        _receive_of_network(network, now, nic, hop)
    elif network.hops[hop].link >= network.config[0].first_scale_up:
        flows.settle_scale_up(network, shard, now, nic, hop)
    else:
        transport_api.receive(state, network, shard, now, nic, hop)
    packet_pool.release(network, shard, hop)


@rare_kernel
def _receive_of_network(network: Network, now: int, nic: int, hop: int) -> None:
    """Receive a packet that is not the transport's."""
    if pfc.is_pause(network, hop):
        _pause(network, now, nic, hop)
    else:
        probe_packets.arrive(network, hop)


@rare_kernel
def _pause(network: Network, now: int, nic: int, hop: int) -> None:
    """Pause or resume data on a port."""
    link = network.queues[network.hops[hop].link].reverse
    planes = network.config[0].planes
    for plane in range(planes):
        port = network.nic_ports[nic * planes + plane]
        if port.link == link:
            is_paused = network.hops[hop].entropy == pfc.PAUSE
            free_at = max(now, network.ports[link].busy_until)
            port.free_at = free_at + pfc.longest_pause(network, link) if is_paused else free_at


@kernel
def _process(state: transport_api.State, network: Network, shard: int, now: int, nic: int) -> None:
    """Process completions, start due messages, send, and record when to wake."""
    flows.settle(state, network, shard, now, nic)
    port_free = _send(state, network, shard, now, nic)
    if len(network.scale_up_ports) > 0:
        port_free = min(port_free, scale_up.send(network, shard, now, nic))
    wake = min(transport_api.next_deadline(state, nic), port_free)
    network.nics[nic].wake = min(wake, flows.next_start(network, nic))


@kernel
def _send(state: transport_api.State, network: Network, shard: int, now: int, nic: int) -> int:
    """Send until the transport has no packet for the free ports; return when the next port is free (ps)."""
    planes = network.config[0].planes
    while True:
        free, free_at = _free_ports(network, now, nic, planes)
        hop = packet_pool.allocate(network, shard)
        if hop == NONE:
            return free_at if free == 0 else now + network.config[0].shortest_delay
        if not transport_api.next_packet(state, network, shard, now, nic, free, hop):
            network.shards[shard].allocated -= 1
            network.shards[shard].released -= 1
            packet_pool.release(network, shard, hop)
            return free_at
        _launch(network, shard, now, nic, hop, planes)


@kernel
def _free_ports(network: Network, now: int, nic: int, planes: int) -> tuple[int, int]:
    """Return the mask of ports that can take data, and when the next of the others can."""
    free, free_at = 0, NEVER
    for plane in range(planes):
        at = network.nic_ports[nic * planes + plane].free_at
        if at <= now:
            free |= 1 << plane
        else:
            free_at = min(free_at, at)
    return free, free_at


@kernel
def _launch(network: Network, shard: int, now: int, nic: int, hop: int, planes: int) -> None:
    """Put a packet on the NIC's own link."""
    row = network.hops[hop]
    row.source = nic
    row.marked = False
    row.trimmed = 0
    switch.address(network, hop)
    # A reply uses the port on which the request arrived; if NICs differ, the port may not exist.
    port = network.nic_ports[nic * planes + row.plane % network.nics[nic].ports]
    is_data = row.service != Service.CONTROL
    egress.enqueue(network, shard, now, port.link, hop)
    if is_data:
        port.free_at = network.ports[port.link].busy_until
