"""Lossless ports: real queues, served packet by packet, that the neighbour can pause (IEEE 802.1Qbb).

A switch counts the bytes that arrived over each link and are still queued. Above one threshold it pauses the sender of
that link, below another it resumes it; PAUSE and RESUME are control frames, so they take a link's delay, and buffers
must absorb the data in flight meanwhile. Only data is paused. A PAUSE lasts 65,535 quanta and is repeated while needed,
so a lost RESUME does not stop a port for ever. Each busy port has one event in its node's heap: the departure of the
packet in service; each paused port another: the expiry of the PAUSE.
"""

from __future__ import annotations

from openmrc.core import rng
from openmrc.core.jit import kernel, rare_kernel
from openmrc.sim.network import egress, ingress, packet_pool, switch, transport_api
from openmrc.sim.network.network_tables import BYTE_TIME_BITS, NONE, Network, Service
from openmrc.units import NEVER

PAUSE, RESUME = 1, 0  # Hop.entropy of a frame to NONE
FRAME = 64  # bytes on the wire
_QUANTA = 65_535 * 64  # byte times


@rare_kernel
def serve(state: transport_api.State, network: Network, shard: int, node: int, start: int, end: int) -> None:
    """Advance a switch with lossless ports by one window."""
    count = ingress.collect(state, network, shard, node, start, end)
    network.shards[shard].hops += count
    index = 0
    arrives = _arrival(network, shard, index, count)
    departs = _next_departure(network, node)
    while min(arrives, departs) < end:
        if departs <= arrives:
            _on_departure(network, shard, node, departs)
        else:
            _on_arrival(network, shard, node, arrives, ingress.due(network, shard, index))
            index += 1
            arrives = _arrival(network, shard, index, count)
        departs = _next_departure(network, node)
    network.nodes[node].next_at = min(network.nodes[node].next_at, departs)


@kernel
def is_pause(network: Network, hop: int) -> bool:
    """Return whether a packet is a PAUSE or RESUME frame."""
    return network.hops[hop].destination == NONE


@kernel
def _arrival(network: Network, shard: int, index: int, count: int) -> int:
    return network.hops[ingress.due(network, shard, index)].arrives if index < count else NEVER


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
    waiting.paused = what
    if what == PAUSE:
        waiting.paused_until = now + longest_pause(network, link)
        if waiting.check_at == NEVER:
            waiting.check_at = waiting.paused_until
            _push(network, node, waiting.check_at, link)
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
    waiting.paused = 0
    waiting.pausing = 0
    if waiting.check_at == NEVER:
        waiting.check_at = now
        _push(network, node, now, link)
        network.nodes[node].next_at = min(network.nodes[node].next_at, now)


@rare_kernel
def _on_pause_check(network: Network, shard: int, node: int, now: int, link: int) -> None:
    """Process the possible expiry of a PAUSE."""
    waiting = network.queues[link]
    waiting.check_at = NEVER
    if waiting.paused == 1 and waiting.paused_until > now:
        waiting.check_at = waiting.paused_until
        _push(network, node, waiting.check_at, link)
        return
    waiting.paused = 0
    _begin(network, shard, node, now, link)


@kernel
def _begin(network: Network, shard: int, node: int, now: int, link: int) -> None:
    """Start to send the next packet, unless the port is busy, paused or empty."""
    waiting = network.queues[link]
    if waiting.serving != NONE or waiting.paused == 1 or waiting.head == NONE:
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
    _push(network, node, departs, link)


@kernel
def _on_departure(network: Network, shard: int, node: int, now: int) -> None:
    """Process a departure: mark the packet by the remaining queue, release its space, send the next."""
    link = _pop(network, node)
    waiting = network.queues[link]
    if waiting.check_at <= now and (waiting.serving == NONE or network.ports[link].busy_until != now):
        _on_pause_check(network, shard, node, now, link)
        return
    # The receiver reads the packet in a later window, so this node may still change it.
    hop = waiting.serving
    row = network.hops[hop]
    waiting.serving = NONE
    waiting.bytes -= row.size
    if _is_marked(network, link):
        row.marked = 1
        network.queues[link].marked += 1
    _count_out(network, shard, now, row.link, row.size)
    _begin(network, shard, node, now, link)


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
    if came.pausing == 0 or now - came.paused_at > longest_pause(network, link) // 2:
        came.pausing = 1
        came.pauses += 1
        came.paused_at = now
        _notify(network, shard, now, link, PAUSE)


@kernel
def _count_out(network: Network, shard: int, now: int, link: int, size: int) -> None:
    came = network.queues[link]
    came.held -= size
    if came.held < came.resume_below and came.pausing == 1:
        came.pausing = 0
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
    row.marked = 0
    egress.enqueue(network, shard, now, network.queues[link].reverse, hop)


@kernel
def _next_departure(network: Network, node: int) -> int:
    row = network.nodes[node]
    return network.departures[row.first_departure].at if row.departures > 0 else NEVER


@kernel
def _comes_first(network: Network, a: int, b: int) -> bool:
    one, other = network.departures[a], network.departures[b]
    return one.at < other.at or (one.at == other.at and one.link < other.link)


@kernel
def _swap(network: Network, a: int, b: int) -> None:
    one, other = network.departures[a], network.departures[b]
    at, link = one.at, one.link
    one.at, one.link = other.at, other.link
    other.at, other.link = at, link


@kernel
def _push(network: Network, node: int, at: int, link: int) -> None:
    """Put a departure into the node's heap."""
    row = network.nodes[node]
    base, place = row.first_departure, row.departures
    row.departures += 1
    network.departures[base + place].at = at
    network.departures[base + place].link = link
    while place > 0 and _comes_first(network, base + place, base + (place - 1) // 2):
        _swap(network, base + place, base + (place - 1) // 2)
        place = (place - 1) // 2


@kernel
def _pop(network: Network, node: int) -> int:
    """Remove the earliest departure from the node's heap and return its link."""
    row = network.nodes[node]
    base = row.first_departure
    link = network.departures[base].link
    row.departures -= 1
    last = row.departures
    _swap(network, base, base + last)
    place = 0
    while 2 * place + 1 < last:
        child = 2 * place + 1
        if child + 1 < last and _comes_first(network, base + child + 1, base + child):
            child += 1
        if not _comes_first(network, base + child, base + place):
            break
        _swap(network, base + place, base + child)
        place = child
    return link
