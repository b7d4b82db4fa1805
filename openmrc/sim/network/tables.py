"""Rows of the simulated network: links as egress ports and wires, nodes, packets on their way, messages, shards.

A directed link has two owners. Its `Port` - the egress queue - is written by the node that sends, its `Wire` by the
node that receives; what lies between is two `Channel`s, FIFOs of `Hop`s, one for control and one for data. A sender
appends to the channel's `Outgoing` list of this window; the receiver joins it to the channel in the next one, so the
two never touch the same list at once.

A `Hop` is one packet on one link, a cache line; `frame` leads to what the transport put into it, which no switch reads.
Time is ps, size bytes; NONE is no row.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from openmrc.core.rows import Float, Int, Int8, Int16, Int32, Table

NONE = -1
COUNT_MASK = (1 << 31) - 1  # of Hop.queued_bytes
FIXED_PATH = 1 << 32  # of Hop.entropy, above its 32 bits: adaptive switches hash this packet instead
BYTE_TIME_BITS = 16  # Port.byte_time counts 2**-16 ps


class Service(IntEnum):
    """What a packet asks of a queue; also the order of the two channels of a link."""

    CONTROL = 0  # strict priority
    DATA = 1


class Hop:
    """A packet on a link."""

    arrives: Int  # ps, its last bit at the next node's forwarding decision
    enqueued: Int  # ps
    entropy: Int
    next: Int32  # in its channel
    frame: Int32
    queued_bytes: Int32  # data ever queued on the link, this packet included, modulo 2**31
    size: Int32  # bytes on the wire
    source: Int32  # NIC
    destination: Int32  # NIC
    t0: Int32  # of the destination, in its plane
    link: Int32  # it came over
    pod: Int16
    site: Int8
    plane: Int8
    service: Int8
    trimmable: Int8
    trimmed: Int8  # wire.codes.Trim
    marked: Int8


class Channel:
    """One FIFO of a wire, as its receiver has it."""

    head: Int32
    tail: Int32
    cursor: Int32  # the last packet that was queued when `head` left the port, or NONE


class Outgoing:
    """What was sent into a channel in one window; two a channel, used in turns."""

    head: Int32
    tail: Int32


class Port:
    """The egress queue of a directed link."""

    busy_until: Int  # ps, when all data accepted so far is sent
    control_until: Int  # ps
    byte_time: Int  # unit 2**-16 ps
    delay: Int  # ps, propagation and the forwarding latency of the switch at the other end
    capacity: Int  # ps of queued data above which packets are trimmed or dropped
    control_capacity: Int  # ps
    last_time: Int  # ps on the wire of the last data packet
    tail_begins: Int  # ps, when it begins to leave
    random: Int
    queued_bytes: Int32  # modulo 2**31
    tail: Int32  # the last data packet queued
    destination: Int32  # node
    trimming: Int8  # Trimming
    last_hop: Int8  # leads to a NIC
    withdrawn: Int8  # 1: routing has taken the link out of its tables
    data_packets: Int
    data_bytes: Int
    control_packets: Int
    trimmed: Int
    dropped: Int
    marked: Int  # by a port with a real queue
    peak: Int  # ps, the longest backlog that a data packet met


class Queue:
    """The real queue of a lossless port, and what its receiver holds of the packets that came over the link."""

    paused_until: Int  # ps, when a PAUSE that nobody repeats or takes back ends
    looks_at: Int  # ps, a look at the port is in its node's heap; NEVER: none
    paused_at: Int  # ps, when the receiver sent its last PAUSE

    head: Int32
    tail: Int32
    serving: Int32  # packet that is leaving, or NONE
    paused: Int32  # by the receiver: PAUSE
    bytes: Int32
    ecn_low: Int32  # bytes; negative: never mark
    ecn_high: Int32
    reverse: Int32  # link
    held: Int32  # bytes that came over the link and have not left the receiver
    pause_above: Int32
    resume_below: Int32
    pausing: Int32  # the receiver has sent PAUSE
    pauses: Int32


class Departure:
    """When a lossless port will have sent its packet; a heap for each node."""

    at: Int
    link: Int32


class Wire:
    """A directed link as its receiver sees it."""

    alive_from: Int  # ps, working without a break since then; NEVER: it is down
    ecn_low: Int32  # bytes left in the queue below which nothing is marked; negative: never
    ecn_high: Int32  # bytes above which everything is marked
    random: Int
    impaired: Int  # of its Fate: fates.CHANCES, fates.HOLDS; 0: as good as new
    arrived: Int  # packets
    arrived_bytes: Int
    marked: Int
    lost: Int  # to faults


class Fate:
    """What a fault does to the packets of a directed link, and those of them that are late. Chances in 2**-32."""

    loss: Int
    byte_loss: Float  # the chance of a bit error in a byte
    duplicate: Int
    reorder: Int
    trim: Int
    delay: Int  # ps, on top of the link's own
    jitter: Int  # ps, added to the delay, uniform from 0
    late: Int32  # packets held back, by time of arrival
    last_late: Int32


class Node:
    """A NIC or a switch: who sends to it, and how a switch finds the way."""

    next_at: Int  # ps, nothing that has been sent to it wants it earlier
    first_in: Int32  # in Network.in_links
    in_count: Int32
    own: Int32  # index, pod or site that lies below
    down_base: Int32  # link
    down_stride: Int32  # links from one subtree below to the next
    up_base: Int32  # link
    up_count: Int32
    salt: Int32
    first_departure: Int32  # in Network.departures
    departures: Int32
    down_bundle: Int16
    plane: Int8
    tier: Int8  # NONE: a NIC


class Mail:
    """Whether something new lies in the outgoing lists to a node, for each of the two turns."""

    even: Int8
    odd: Int8


class InLink:
    """One of the links that lead to a node."""

    link: Int32


class Nic:
    """What the loop keeps of an endpoint."""

    wake: Int  # ps, the next thing it does by itself
    pending: Int32  # first message that waits for its start, in order of time
    sent: Int32  # packets
    ports: Int32  # of its own; in an irregular fabric some have fewer than others


class NicPort:
    """A NIC in one plane: where it hangs, and when it can send again."""

    free_at: Int  # ps; NEVER: a port that the NIC has not
    link: Int32  # to its T0
    t0: Int32
    pod: Int16
    site: Int8
    left: Int8  # 1: the NIC's bond does not send on it
    withdrawn: Int8  # 1: routing leads nobody to it


class ScaleUpPort:
    """A NIC's GPUs on the network of their scale-up domain."""

    free_at: Int  # ps
    link: Int32  # to the domain's switch
    head: Int32  # flow that is being sent, or NONE
    tail: Int32


class Route:
    """The shortest ways from a switch to a NIC, in an irregular fabric."""

    first: Int32  # in Network.next_hops
    count: Int32  # links to begin with
    ways: Int32  # different ways from here on, at most 2**31 - 1


class NextHop:
    """A link on a shortest way."""

    link: Int32


class Flow:
    """A message (`traffic`) on its way."""

    start: Int  # ps, not before
    posted_at: Int  # ps; NEVER: not yet
    sent_at: Int  # ps, all acknowledged at the sender; NEVER
    received_at: Int  # ps, all in the receiver's memory; NEVER
    failed_at: Int  # ps, given up; NEVER
    size: Int  # bytes
    sent: Int  # bytes, over a scale-up network
    arrived: Int  # bytes, over a scale-up network
    source: Int32
    destination: Int32
    inside: Int32  # a scale-up domain: 1
    waits: Int32  # releases still to come
    handle: Int32  # the transport's queue pair
    next: Int32  # that waits at the same NIC
    first_release: Int32
    release_count: Int32
    watched: Int32  # the receiver's completion releases something


class Release:
    """A message that another one lets go."""

    delay: Int
    flow: Int32
    side: Int32  # traffic.Side


class Signal:
    """A release on its way to another NIC, given out between windows."""

    at: Int
    flow: Int32


class Shard:
    """Nodes that one thread serves, and what it needs for that."""

    first_node: Int  # in Network.members
    node_count: Int
    free: Int  # head of its list of free hops
    free_count: Int
    fresh: Int  # next hop never used
    fresh_end: Int
    batch_base: Int
    batch_size: Int
    bucket_base: Int
    signal_base: Int
    signal_size: Int
    signals: Int  # in this window
    turn: Int  # 0 or 1, which outgoing lists this window fills
    earliest: Int  # ps, earliest arrival of what was sent in this window
    allocated: Int
    released: Int
    hops: Int  # packets handled at nodes
    finished: Int  # flows
    starved: Int  # packets not sent because no hop was free
    signals_lost: Int


class Member:
    """A node of a shard."""

    node: Int32


class BatchEntry:
    """A packet to handle in this window."""

    key: Int  # time since the window's start, then order of collection
    sorted: Int
    hop: Int32


class Bucket:
    """How many packets fall into one part of the window."""

    count: Int32


class NetworkConfig:
    """What holds everywhere in the network; one row."""

    planes: Int
    routing: Int  # Routing
    trim_size: Int  # bytes on the wire
    lookahead: Int  # ps
    control_size: Int  # bytes on the wire
    header: Int  # bytes of a data packet besides its payload
    lossless: Int
    routed: Int  # switches of an irregular fabric, which look ways up; 0: a regular one, where ways are arithmetic
    first_scale_up: Int  # links from this one on belong to scale-up networks
    detours: Int  # links and ports that routing or bonds avoid; 0: nobody need look


class Network(NamedTuple):
    """The tables together."""

    hops: Table[Hop]
    channels: Table[Channel]
    outgoing: Table[Outgoing]
    ports: Table[Port]
    queues: Table[Queue]  # of links, in a lossless network
    departures: Table[Departure]
    wires: Table[Wire]
    fates: Table[Fate]
    nodes: Table[Node]
    mails: Table[Mail]
    in_links: Table[InLink]
    nics: Table[Nic]
    nic_ports: Table[NicPort]
    scale_up_ports: Table[ScaleUpPort]  # none where there are no domains
    routes: Table[Route]  # destination x switches + switch
    next_hops: Table[NextHop]
    flows: Table[Flow]
    releases: Table[Release]
    signals: Table[Signal]
    shards: Table[Shard]
    members: Table[Member]
    batch: Table[BatchEntry]
    buckets: Table[Bucket]
    config: Table[NetworkConfig]


class Routing(IntEnum):
    """How a switch chooses among its uplinks."""

    ENTROPY = 0  # the entropy names the uplink, as SRv6 uSIDs do
    HASH = 1  # ECMP: a hash of addresses and entropy
    ADAPTIVE = 2  # the uplink with the shortest queue


class Trimming(IntEnum):
    """What a full queue does."""

    NEVER = 0  # drops what arrives
    ARRIVING = 1  # trims what arrives
    EITHER = 2  # trims what arrives or the last in the queue, by a coin (htsim's composite queue)
