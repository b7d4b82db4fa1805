"""The egress queue without events: the departure of a packet is known on arrival.

`busy_until` gives the time until all queued data is sent, so trimming and drops are decided on arrival and a packet
costs one step. Control has strict priority. Exact: FIFO order of data, non-preemption, the buffer limit. Approximate,
because the departure of queued data is already fixed: a control packet delays later data instead of queued data, and
the packet in service on its arrival is assumed to be as long as the last one queued. Ports with two classes of data:
`sharing`.

The receiver of the wire decides on ECN (`ingress.collect`), from the queue length at the packet's departure.
"""

from openmrc.core import rng
from openmrc.core.jit import kernel, rare_kernel
from openmrc.sim.network import packet_pool, sharing
from openmrc.sim.network.network_tables import BYTE_TIME_BITS, COUNT_MASK, NONE, Network, Service, Trimming
from openmrc.wire.codes import Trim


@kernel
def enqueue(network: Network, shard: int, now: int, link: int, hop: int) -> bool:
    """Queue a packet on a link's port, or trim or drop it; return whether the caller has to send it back, trimmed."""
    if network.hops[hop].service == Service.CONTROL:
        _enqueue_control(network, shard, now, link, hop)
        return False
    if network.config[0].services > Service.SECOND:
        return _enqueue_shared(network, shard, now, link, hop)
    return _enqueue_data(network, shard, now, link, hop)


@kernel
def backlog(network: Network, link: int, now: int) -> int:
    """Return the time to send the queued data of a port (ps)."""
    return max(0, network.ports[link].busy_until - now)


@kernel
def _enqueue_data(network: Network, shard: int, now: int, link: int, hop: int) -> bool:
    port = network.ports[link]
    row = network.hops[hop]
    duration = (row.size * port.byte_time) >> BYTE_TIME_BITS
    begin = max(now, port.busy_until)
    if begin - now + duration > port.capacity:
        return _overflow(network, shard, now, link, hop)
    port.peak = max(port.peak, begin - now)
    begin = max(begin, port.control_until)
    port.busy_until = begin + duration
    port.last_time = duration
    port.tail_begins = begin
    port.queued_bytes = (port.queued_bytes + row.size) & COUNT_MASK
    port.tail = hop
    port.data_packets += 1
    port.data_bytes += row.size
    row.queued_bytes = port.queued_bytes
    send(network, shard, now, link, hop, begin + duration)
    return False


@rare_kernel
def _enqueue_shared(network: Network, shard: int, now: int, link: int, hop: int) -> bool:
    """Queue data on a port that two classes share."""
    port, shares, row = network.ports[link], network.class_shares[link], network.hops[hop]
    duration = (row.size * port.byte_time) >> BYTE_TIME_BITS
    queued = sharing.waiting(network, link, now, row.service)
    if queued + duration > port.capacity:
        return _overflow(network, shard, now, link, hop)
    port.peak = max(port.peak, queued)
    departs = sharing.add(network, link, now, row.service, duration)
    port.last_time = duration
    port.data_packets += 1
    port.data_bytes += row.size
    if row.service == Service.SECOND:
        shares.second_bytes = (shares.second_bytes + row.size) & COUNT_MASK
        row.queued_bytes = shares.second_bytes
    else:
        port.tail_begins = departs - duration
        port.queued_bytes = (port.queued_bytes + row.size) & COUNT_MASK
        port.tail = hop
        row.queued_bytes = port.queued_bytes
    send(network, shard, now, link, hop, departs)
    return False


@kernel
def _enqueue_control(network: Network, shard: int, now: int, link: int, hop: int) -> None:
    port = network.ports[link]
    duration = (network.hops[hop].size * port.byte_time) >> BYTE_TIME_BITS
    begin = max(now, port.control_until)
    if begin - now + duration > port.control_capacity:
        network.link_losses[link].control_full += 1
        _drop(network, shard, link, hop)
        return
    if port.busy_until > now:
        if begin == now and port.last_time > 0:
            begin += (port.busy_until - now) % port.last_time  # no preemption
        port.busy_until += duration
        if network.config[0].services > Service.SECOND:
            sharing.hold(network, link, duration)
    port.control_until = begin + duration
    port.control_packets += 1
    send(network, shard, now, link, hop, begin + duration)


@kernel
def send(network: Network, shard: int, now: int, link: int, hop: int, departs: int) -> None:
    """Put a packet on the wire: its last bit leaves the port at `departs`."""
    row = network.hops[hop]
    port = network.ports[link]
    owner = network.shards[shard]
    row.enqueued = now
    row.arrives = departs + port.delay
    row.next = NONE
    owner.earliest = min(owner.earliest, row.arrives)
    out = network.outgoing[(link * network.config[0].services + row.service) * 2 + owner.turn]
    if out.tail == NONE:
        out.head = hop
    else:
        network.hops[out.tail].next = hop
    out.tail = hop
    network.mails[port.destination * 2 + owner.turn].new = True
    network.link_mails[link * 2 + owner.turn].new = True


@rare_kernel
def _overflow(network: Network, shard: int, now: int, link: int, hop: int) -> bool:
    """Trim the packet that found a full queue or the last queued one, or drop it; return whether it has to turn back.

    A short packet stays whole and takes the priority of trimmed packets (Cumulus Linux 5.14, "Packet Trimming"). Short
    is up to twice the trimmed size, 128 bytes as in SAI's default: its trimmed form and the NACK that it draws would
    load the network more, and many senders of short packets would fill a link with headers alone.
    """
    port = network.ports[link]
    if port.trimming == Trimming.NEVER or not network.hops[hop].trimmable:
        _drop(network, shard, link, hop)
        return False
    if port.trimming == Trimming.EITHER and network.hops[hop].service == Service.DATA:
        port.random = rng.following(port.random)
        if rng.below(port.random, 2) == 1 and _tail_can_go(network, now, link, hop):
            _exchange(network, port.tail, hop)
    row = network.hops[hop]
    if row.size > 2 * network.config[0].trim_size:
        row.trimmed = Trim.TRIMMED_LASTHOP if port.last_hop else Trim.TRIMMED
        row.size = network.config[0].trim_size
        port.trimmed += 1
    row.service = Service.CONTROL
    if row.trimmed != Trim.WHOLE and network.config[0].trim_to_sender and row.source != NONE:  # a probe has none
        return True
    _enqueue_control(network, shard, now, link, hop)
    return False


@kernel
def _tail_can_go(network: Network, now: int, link: int, hop: int) -> bool:
    """Return whether the last packet of the queue has not started to leave and is as long as `hop`."""
    port = network.ports[link]
    tail = network.hops[port.tail]
    return port.tail_begins > now and tail.size == network.hops[hop].size and tail.trimmable


@kernel
def _exchange(network: Network, queued: int, other: int) -> None:
    """Replace `queued` by `other`; the slot keeps its times, which its reader uses."""
    a, b = network.hops[queued], network.hops[other]
    a.frame, b.frame = b.frame, a.frame
    a.entropy, b.entropy = b.entropy, a.entropy
    a.source, b.source = b.source, a.source
    a.destination, b.destination = b.destination, a.destination
    a.path_number, b.path_number = b.path_number, a.path_number
    a.t0, b.t0 = b.t0, a.t0
    a.pod, b.pod = b.pod, a.pod
    a.site, b.site = b.site, a.site
    a.marked, b.marked = b.marked, a.marked


@kernel
def _drop(network: Network, shard: int, link: int, hop: int) -> None:
    network.ports[link].dropped += 1
    packet_pool.release(network, shard, hop)
