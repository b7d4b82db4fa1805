"""The network of a scale-up domain: every NIC's GPUs have a port to the domain's switch; messages are sent in chunks.

A port sends messages one after the other, in chunks; the switch stores and forwards chunks, and its egress to
one port is a queue without limit. Nothing is lost, marked or paused, and headers are not counted: `gbps` of the fabric
is the payload rate. The receiver acknowledges the last chunk. Without contention, a message of S bytes arrives after
(S + CHUNK) / rate + latency, S a multiple of CHUNK.
"""

from openmrc.core.jit import kernel, rare_kernel
from openmrc.sim.network import egress, packet_pool
from openmrc.sim.network.completed import completed
from openmrc.sim.network.network_tables import NONE, Network, Service
from openmrc.sim.workloads.traffic import CompletionSide
from openmrc.units import NEVER

ANSWER = 64  # bytes
CHUNK = 4096  # bytes; smaller chunks cost run time and change a completion by less than a chunk's time


@kernel
def post(network: Network, nic: int, flow: int) -> None:
    """Queue a message after those of the same NIC."""
    port = network.scale_up_ports[nic]
    network.flows[flow].next = NONE
    if port.head == NONE:
        port.head = flow
    else:
        network.flows[port.tail].next = flow
    port.tail = flow


@rare_kernel
def send(network: Network, shard: int, now: int, nic: int) -> int:
    """Send chunks while the port is free; return when it is free again (ps), NEVER if nothing waits."""
    port = network.scale_up_ports[nic]
    while port.head != NONE:
        if port.free_at > now:
            return port.free_at
        hop = packet_pool.allocate(network, shard)
        if hop == NONE:
            return now + network.config[0].shortest_delay
        flow = port.head
        message = network.flows[flow]
        size = min(CHUNK, message.size - message.sent)
        message.sent += size
        if message.sent == message.size:
            port.head = message.next
        _launch(network, shard, now, nic, hop, flow, message.destination, size, Service.DATA.value)
        port.free_at = network.ports[port.link].busy_until
    return NEVER


@rare_kernel
def receive(network: Network, shard: int, now: int, nic: int, hop: int) -> int:
    """Process a chunk or an acknowledgement; return the completion it brings (`completed`), or NONE."""
    row = network.hops[hop]
    flow = row.entropy
    if row.service == Service.CONTROL:
        return completed(flow, CompletionSide.SENDER.value)
    message = network.flows[flow]
    message.arrived += row.size
    if message.arrived < message.size:
        return NONE
    answer = packet_pool.allocate(network, shard)
    assert answer != NONE, "out of packet rows"
    _launch(network, shard, now, nic, answer, flow, message.source, ANSWER, Service.CONTROL.value)
    return completed(flow, CompletionSide.RECEIVER.value)


@kernel
def _launch(
    network: Network, shard: int, now: int, nic: int, hop: int, flow: int, destination: int, size: int, service: int
) -> None:
    row = network.hops[hop]
    row.entropy = flow
    row.source = nic
    row.destination = destination
    row.size = size
    row.service = service
    row.trimmable = False
    row.trimmed = 0
    row.marked = False
    egress.enqueue(network, shard, now, network.scale_up_ports[nic].link, hop)
