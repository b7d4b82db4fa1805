"""The receiving side of links: packets that arrive at a node in a window, in order of time; losses in flight; ECN.

Marking depends on the bytes that a packet leaves behind in its queue. They are known only here: the sender has already
served all packets that it queued before the departure. A link to a switch delays packets by at least a window, and a
NIC is served after the switches.
"""

from openmrc.core import rng
from openmrc.core.jit import kernel, rare_kernel
from openmrc.core.memory import prefetch_row
from openmrc.sim.network import impairments, packet_pool, transport_api
from openmrc.sim.network.network_tables import COUNT_MASK, NONE, TOGETHER, Network, Service
from openmrc.units import NEVER

INDEX_BITS = 24  # of BatchEntry.key: order of collection
INDEX_MASK = (1 << INDEX_BITS) - 1
FEW = 24  # packets below which insertion sort alone is faster
DEPTH = 32  # packets of a list that are prefetched


@rare_kernel
def collect(state: transport_api.State, network: Network, shard: int, node: int) -> None:
    """Collect the packets that reach a node before the window ends in the shard's batch, sorted.

    Sets the node's `next_at` to the earliest of the remaining packets.
    """
    row, owner = network.nodes[node], network.shards[shard]
    network.mails[node * 2 + owner.joined].new = False
    owner.batch_count = 0
    following = NEVER
    for index in range(row.first_in, row.first_in + row.in_count):
        if index >= owner.prefetched:
            _prefetch(state, network, shard, index, row.tier == NONE)
        if _is_active(network, shard, index):
            _collect_link(state, network, shard, index)
        following = min(following, network.in_links[index].due)
    row.next_at = following
    _sort(network, shard)
    owner.hops += owner.batch_count


@kernel
def _collect_link(state: transport_api.State, network: Network, shard: int, index: int) -> None:
    """Collect the packets of one of the node's links."""
    row = network.in_links[index]
    row.due = NEVER
    network.link_mails[row.link * 2 + network.shards[shard].joined].new = False
    if network.wires[row.link].impaired & impairments.HOLDS != 0:
        _admit_delayed(network, shard, index)
    _drain(state, network, shard, index, Service.CONTROL)
    _drain(state, network, shard, index, Service.DATA)
    if network.config[0].services > Service.SECOND:
        _drain(state, network, shard, index, Service.SECOND)


@kernel
def _is_active(network: Network, shard: int, index: int) -> bool:
    """Return whether a link has due packets, or some to append; in sparse traffic few of a node's links do."""
    row, owner = network.in_links[index], network.shards[shard]
    return row.due < owner.end or network.link_mails[row.link * 2 + owner.joined].new


@rare_kernel
def _prefetch(state: transport_api.State, network: Network, shard: int, first: int, to_nic: bool) -> None:
    """Prefetch the packets that arrive over some links from `first` on, and the rows of as many links after those.

    A packet of an earlier window is in no near cache, and only the packet before it says which it is. So the lists of
    many links are followed in turn: their misses overlap. The links into a node are followed by those into the next.
    """
    owner, services = network.shards[shard], network.config[0].services
    behind = min(first + TOGETHER, len(network.in_links))
    owner.prefetched = behind
    for index in range(behind, min(behind + TOGETHER, len(network.in_links))):
        if _is_active(network, shard, index):
            link = network.in_links[index].link
            prefetch_row(network.channels, link * services)
            prefetch_row(network.outgoing, link * services * 2)
            prefetch_row(network.wires, link)
            prefetch_row(network.ports, link)
    lists = 0
    for index in range(first, behind):
        if _is_active(network, shard, index):
            link = network.in_links[index].link
            for channel in range(link * services, (link + 1) * services):
                lists = _follow(network, shard, lists, network.channels[channel].head)
                sent = network.outgoing[channel * 2 + owner.joined]
                lists = _follow(network, shard, lists, sent.head)
                prefetch_row(network.hops, sent.tail)  # for `_is_short`
    depth = 0
    while lists > 0 and depth < DEPTH:
        lists = _advance(state, network, shard, lists, to_nic)
        depth += 1


@kernel
def _advance(state: transport_api.State, network: Network, shard: int, lists: int, to_nic: bool) -> int:
    """Prefetch the next packet of each list; return how many lists have more that is due."""
    base, end = network.shards[shard].follow_base, network.shards[shard].end
    left = 0
    for index in range(base, base + lists):
        hop = network.hops[network.follows[index].hop]
        if hop.arrives < end:
            if to_nic:
                prefetch_row(state.frames, hop.frame)
            left = _follow(network, shard, left, hop.next)
    return left


@kernel
def _follow(network: Network, shard: int, lists: int, hop: int) -> int:
    """Prefetch a packet and note that its list continues there; return the number of lists."""
    if hop == NONE:
        return lists
    prefetch_row(network.hops, hop)
    network.follows[network.shards[shard].follow_base + lists].hop = hop
    return lists + 1


@kernel
def due(network: Network, shard: int, index: int) -> int:
    """Return the hop at a position of the sorted batch."""
    base = network.shards[shard].batch_base
    return network.batch[base + (network.batch[base + index].key & INDEX_MASK)].hop


@kernel
def arrival(network: Network, shard: int, index: int) -> int:
    """Return when the packet at a position of the sorted batch arrives (ps), NEVER behind the last."""
    if index >= network.shards[shard].batch_count:
        return NEVER
    return network.hops[due(network, shard, index)].arrives


@kernel
def has_mail(network: Network, shard: int, node: int) -> bool:
    """Return whether packets were sent to a node that it has not appended to its channels."""
    return network.mails[node * 2 + network.shards[shard].joined].new


@kernel
def _join(network: Network, shard: int, channel: int) -> None:
    """Append the packets sent in the previous window, to a NIC those of this window."""
    out = network.outgoing[channel * 2 + network.shards[shard].joined]
    if out.head == NONE:
        return
    row = network.channels[channel]
    if row.tail == NONE:
        row.head = out.head
    else:
        network.hops[row.tail].next = out.head
    row.tail = out.tail
    out.head = NONE
    out.tail = NONE


@kernel
def _drain(state: transport_api.State, network: Network, shard: int, index: int, service: int) -> None:
    """Move the due packets of one channel to the batch."""
    link, end = network.in_links[index].link, network.shards[shard].end
    channel = link * network.config[0].services + service
    _join(network, shard, channel)
    row = network.channels[channel]
    while row.head != NONE:
        hop = row.head
        arrives = network.hops[hop].arrives
        if arrives >= end:
            network.in_links[index].due = min(network.in_links[index].due, arrives)
            break
        row.head = network.hops[hop].next
        prefetch_row(network.hops, row.head)
        if service != Service.CONTROL:
            _mark(network, link, channel, hop)
        if row.head == NONE:
            row.tail = NONE
        network.hops[hop].link = link
        if network.wires[link].impaired != 0:
            _impair(state, network, shard, index, hop)
        else:
            _admit(network, shard, link, hop)


@kernel
def _admit(network: Network, shard: int, link: int, hop: int) -> None:
    """Add an arrival to the batch, unless the link failed while it was in flight."""
    wire, owner = network.wires[link], network.shards[shard]
    row = network.hops[hop]
    if row.enqueued < wire.alive_from:
        _discard(network, shard, link, hop)
        return
    wire.arrived += 1
    wire.arrived_bytes += row.size
    due = network.batch[owner.batch_base + owner.batch_count]
    due.key = ((row.arrives - owner.start) << INDEX_BITS) | owner.batch_count
    due.hop = hop
    owner.batch_count += 1


@kernel
def _discard(network: Network, shard: int, link: int, hop: int) -> None:
    network.wires[link].lost += 1
    packet_pool.release(network, shard, hop)


@rare_kernel
def _impair(state: transport_api.State, network: Network, shard: int, index: int, hop: int) -> None:
    """Apply the impairments of a link to a packet."""
    link = network.in_links[index].link
    effects = impairments.decide(network, link, hop)
    if effects & impairments.LOST != 0:
        network.link_losses[link].at_random += 1
        _discard(network, shard, link, hop)
        return
    if effects & impairments.TRIM != 0:
        impairments.trim(network, hop)
    if effects & impairments.DUPLICATE != 0:
        copy = packet_pool.allocate(network, shard)
        if copy != NONE:
            network.link_losses[link].duplicated += 1
            impairments.duplicate(state, network, hop, copy)
            _delay(network, shard, index, copy, effects)
    _delay(network, shard, index, hop, effects)


@kernel
def _delay(network: Network, shard: int, index: int, hop: int, effects: int) -> None:
    row = network.in_links[index]
    link = row.link
    network.hops[hop].arrives = impairments.arrival(network, link, hop, effects)
    if network.hops[hop].arrives < network.shards[shard].end:
        _admit(network, shard, link, hop)
    else:
        impairments.hold(network, link, hop)
        row.due = min(row.due, network.hops[hop].arrives)


@rare_kernel
def _admit_delayed(network: Network, shard: int, index: int) -> None:
    """Add the due delayed packets of a link to the batch."""
    here, owner = network.in_links[index], network.shards[shard]
    link = here.link
    most = owner.batch_size // 2  # the other half is for packets without delay
    while True:
        hop = network.link_impairments[link].late
        if hop == NONE:
            return
        row = network.hops[hop]
        if row.arrives >= owner.end or owner.batch_count >= most:
            here.due = min(here.due, max(row.arrives, owner.end))
            return
        impairments.pop_delayed(network, link)
        row.arrives = max(row.arrives, owner.start)
        _admit(network, shard, link, hop)


@kernel
def _mark(network: Network, link: int, channel: int, hop: int) -> None:
    """Mark a data packet by the length of the queue that it left."""
    wire = network.wires[link]
    if wire.ecn_low < 0 or _is_short(network, channel, hop, wire.ecn_low):
        return
    left = _left_behind(network, link, channel, hop)
    if left <= wire.ecn_low:
        return
    if left < wire.ecn_high:
        wire.random = rng.following(wire.random)
        if rng.below(wire.random, wire.ecn_high - wire.ecn_low) >= left - wire.ecn_low:
            return
    network.hops[hop].marked = True
    wire.marked += 1


@kernel
def _is_short(network: Network, channel: int, hop: int, most: int) -> bool:
    """Return whether all that is behind `hop`, the channel's head, is at most so many bytes, queued or on the wire.

    Then the queue need not be walked: its packets are due in a later window, and each would be a cache miss.
    """
    row = network.channels[channel]
    if (network.hops[row.tail].queued_bytes - network.hops[hop].queued_bytes) & COUNT_MASK > most:
        return False
    row.cursor = NONE  # it may be a packet that is taken off before the next walk
    return True


@kernel
def _left_behind(network: Network, link: int, channel: int, hop: int) -> int:
    """Return the data bytes that waited on the port after `hop`, the channel's head, left."""
    row = network.channels[channel]
    left_at = network.hops[hop].arrives - network.ports[link].delay
    last = row.cursor if row.cursor != NONE else hop
    following = network.hops[last].next
    while following != NONE and network.hops[following].enqueued < left_at:
        last = following
        following = network.hops[last].next
    row.cursor = last if last != hop else NONE
    return (network.hops[last].queued_bytes - network.hops[hop].queued_bytes) & COUNT_MASK


@kernel
def _sort(network: Network, shard: int) -> None:
    """Order the batch by time, then by order of collection."""
    base, count = network.shards[shard].batch_base, network.shards[shard].batch_count
    if count > FEW:
        _spread(network, shard)
    for index in range(base + 1, base + count):
        key = network.batch[index].key
        place = index
        while place > base and network.batch[place - 1].key > key:
            network.batch[place].key = network.batch[place - 1].key
            place -= 1
        network.batch[place].key = key


@rare_kernel
def _spread(network: Network, shard: int) -> None:
    """Presort the batch: count the packets in each part of the window, then place them by part."""
    owner = network.shards[shard]
    base, first, count, window = owner.batch_base, owner.bucket_base, owner.batch_count, owner.end - owner.start
    shift = INDEX_BITS
    while (window << INDEX_BITS) >> shift > count:
        shift += 1
    parts = ((window << INDEX_BITS) >> shift) + 1
    for part in range(first, first + parts):
        network.buckets[part].count = 0
    for index in range(base, base + count):
        network.buckets[first + (network.batch[index].key >> shift)].count += 1
    total = 0
    for part in range(first, first + parts):
        here = network.buckets[part].count
        network.buckets[part].count = total
        total += here
    for index in range(base, base + count):
        bucket = network.buckets[first + (network.batch[index].key >> shift)]
        network.batch[base + bucket.count].sorted = network.batch[index].key
        bucket.count += 1
    for index in range(base, base + count):
        network.batch[index].key = network.batch[index].sorted
