"""Lossless ports: real queues, served packet by packet, that the neighbour can pause (IEEE 802.1Qbb).

A switch counts the bytes that arrived over each link and are still queued. Above one threshold it pauses the sender of
that link, below another it resumes it; PAUSE and RESUME are control frames, so they take a link's delay, and buffers
must absorb the data in flight meanwhile. Only data is paused. A PAUSE lasts 65,535 quanta and is repeated while needed,
so a lost RESUME does not stop a port for ever. A port that is busy or paused is in its node's heap, with the earlier of
two times: the departure of the packet in service, and the expiry of the PAUSE.
"""

from openmrc.core import heap, rng
from openmrc.core.jit import kernel, rare_kernel
from openmrc.sim.network import egress, ingress, packet_pool, transport_api
from openmrc.sim.network.forwarding import switch
from openmrc.sim.network.network_tables import BYTE_TIME_BITS, NONE, Network, Service
from openmrc.units import NEVER

PAUSE, RESUME = 1, 0  # Hop.entropy of a frame to NONE
FRAME = 64  # bytes on the wire
_QUANTA = 65_535 * 64  # byte times


@rare_kernel
def serve(state: transport_api.State, network: Network, shard: int, node: int) -> None:
    """Advance a switch with lossless ports by one window."""
    ingress.collect(state, network, shard, node)
    end = network.shards[shard].end
    index = 0
    arrives = ingress.arrival(network, shard, index)
    departs = heap.first_at(network.nodes[node], network.port_timers)
    while min(arrives, departs) < end:
        if departs <= arrives:
            _serve_port(network, shard, node, departs)
        else:
            _on_arrival(network, shard, node, arrives, ingress.due(network, shard, index))
            index += 1
            arrives = ingress.arrival(network, shard, index)
        departs = heap.first_at(network.nodes[node], network.port_timers)
    network.nodes[node].next_at = min(network.nodes[node].next_at, departs)


@kernel
def is_pause(network: Network, hop: int) -> bool:
    """Return whether a packet is a PAUSE or RESUME frame."""
    return network.hops[hop].destination == NONE


@kernel
def _on_arrival(network: Network, shard: int, node: int, now: int, hop: int) -> None:
    row = network.hops[hop]
    if is_pause(network, hop):
        _on_pause(network, shard, node, now, network.queues[row.link].reverse, row.entropy)
        packet_pool.release(network, shard, hop)
        return
    link = switch.route(network, node, now, hop)
    if row.service == Service.CONTROL:
        egress.enqueue(network, shard, now, link, hop)
        return
    _count_in(network, shard, now, row.link, row.size)
    port = network.ports[link]
    waiting = network.queues[link]
    port.peak = max(port.peak, (waiting.bytes * port.byte_time) >> BYTE_TIME_BITS)
    port.data_packets += 1
    port.data_bytes += row.size
    waiting.bytes += row.size
    row.next = NONE
    if waiting.tail == NONE:
        waiting.head = hop
    else:
        network.hops[waiting.tail].next = hop
    waiting.tail = hop
    _begin(network, shard, node, now, link)


@rare_kernel
def _on_pause(network: Network, shard: int, node: int, now: int, link: int, what: int) -> None:
    """Pause or resume a port."""
    waiting = network.queues[link]
    waiting.paused = what == PAUSE
    if what == PAUSE:
        waiting.paused_until = now + longest_pause(network, link)
        if waiting.check_at == NEVER:
            waiting.check_at = waiting.paused_until
            _arm(network, node, link)
    else:
        _begin(network, shard, node, now, link)


@kernel
def longest_pause(network: Network, link: int) -> int:
    """Return the longest duration of one PAUSE (ps)."""
    return (_QUANTA * network.ports[link].byte_time) >> BYTE_TIME_BITS


@rare_kernel
def release_pause(network: Network, node: int, now: int, link: int) -> None:
    """Clear the pause of a link at both ends after it failed or returned. Call between windows."""
    waiting = network.queues[link]
    waiting.paused = False
    waiting.pausing = False
    if waiting.check_at == NEVER:
        waiting.check_at = now
        _arm(network, node, link)
        network.nodes[node].next_at = min(network.nodes[node].next_at, now)


@rare_kernel
def _on_pause_check(network: Network, shard: int, node: int, now: int, link: int) -> None:
    """Process the possible expiry of a PAUSE."""
    waiting = network.queues[link]
    waiting.check_at = NEVER
    if waiting.paused and waiting.paused_until > now:
        waiting.check_at = waiting.paused_until
    else:
        waiting.paused = False
        _begin(network, shard, node, now, link)
    _arm(network, node, link)


@kernel
def _begin(network: Network, shard: int, node: int, now: int, link: int) -> None:
    """Start to send the next packet, unless the port is busy, paused or empty."""
    waiting = network.queues[link]
    if waiting.serving != NONE or waiting.paused or waiting.head == NONE:
        return
    hop = waiting.head
    waiting.head = network.hops[hop].next
    if waiting.head == NONE:
        waiting.tail = NONE
    waiting.serving = hop
    port = network.ports[link]
    duration = (network.hops[hop].size * port.byte_time) >> BYTE_TIME_BITS
    departs = max(now, port.control_until) + duration
    port.busy_until = departs
    port.last_time = duration
    egress.send(network, shard, now, link, hop, departs)
    waiting.departs_at = departs
    _arm(network, node, link)


@kernel
def _arm(network: Network, node: int, link: int) -> None:
    """Set the timer of a port."""
    waiting = network.queues[link]
    heap.arm(network.nodes[node], network.port_timers, link, min(waiting.departs_at, waiting.check_at))


@kernel
def _serve_port(network: Network, shard: int, node: int, now: int) -> None:
    """Serve the port whose timer is due first."""
    link = network.port_timers[network.nodes[node].heap_base].item
    waiting = network.queues[link]
    if waiting.check_at <= now and (waiting.serving == NONE or network.ports[link].busy_until != now):
        _on_pause_check(network, shard, node, now, link)
    else:
        _on_departure(network, shard, node, now, link)


@kernel
def _on_departure(network: Network, shard: int, node: int, now: int, link: int) -> None:
    """Process a departure: mark the packet by the remaining queue, release its space, send the next."""
    waiting = network.queues[link]
    # The receiver reads the packet in a later window, so this node may still change it.
    hop = waiting.serving
    row = network.hops[hop]
    waiting.serving = NONE
    waiting.departs_at = NEVER
    waiting.bytes -= row.size
    if _is_marked(network, link):
        row.marked = True
        network.queues[link].marked += 1
    _count_out(network, shard, now, row.link, row.size)
    _begin(network, shard, node, now, link)
    _arm(network, node, link)


@kernel
def _is_marked(network: Network, link: int) -> bool:
    waiting = network.queues[link]
    if waiting.ecn_low < 0 or waiting.bytes <= waiting.ecn_low:
        return False
    if waiting.bytes >= waiting.ecn_high:
        return True
    port = network.ports[link]
    port.random = rng.following(port.random)
    return rng.below(port.random, waiting.ecn_high - waiting.ecn_low) < waiting.bytes - waiting.ecn_low


@kernel
def _count_in(network: Network, shard: int, now: int, link: int, size: int) -> None:
    """Count bytes that arrived over a link; pause its sender above the threshold."""
    came = network.queues[link]
    came.held += size
    if came.held <= came.pause_above:
        return
    if not came.pausing or now - came.paused_at > longest_pause(network, link) // 2:
        came.pausing = True
        came.paused_at = now
        _notify(network, shard, now, link, PAUSE)


@kernel
def _count_out(network: Network, shard: int, now: int, link: int, size: int) -> None:
    came = network.queues[link]
    came.held -= size
    if came.held < came.resume_below and came.pausing:
        came.pausing = False
        _notify(network, shard, now, link, RESUME)


@rare_kernel
def _notify(network: Network, shard: int, now: int, link: int, what: int) -> None:
    """Send PAUSE or RESUME to the sender of a link."""
    hop = packet_pool.allocate(network, shard)
    assert hop != NONE, "out of packet rows"
    row = network.hops[hop]
    row.destination = NONE
    row.entropy = what
    row.size = FRAME
    row.service = Service.CONTROL
    row.trimmed = 0
    row.marked = False
    egress.enqueue(network, shard, now, network.queues[link].reverse, hop)
