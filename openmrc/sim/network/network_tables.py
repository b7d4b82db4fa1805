"""Rows of the simulated network: links as egress ports and wires, nodes, packets in flight, messages, shards.

A directed link has two owners. Its `EgressPort`, the egress queue, is written by the sending node, its `Wire` by the
receiving node; between them are `LinkFifo`s of `Hop`s, one for each `Service` that the network has. A sender appends to
the channel's `Outgoing` list of the current window; the receiver joins it to the channel in the next one, so the two
never use the same list at once.

A `Hop` is one packet on one link, a cache line; `frame` is the row of its transport content, which only NICs read.
Time is ps, size bytes; NONE is no row.
"""

from enum import IntEnum
from typing import NamedTuple

from openmrc.core.rows import Bool, Float, Int, Int8, Int16, Int32, Table

NONE = -1
COUNT_MASK = (1 << 31) - 1  # of Hop.queued_bytes
FIXED_PATH = 1 << 32  # bit of Hop.entropy above its 32 bits: adaptive switches hash this packet instead
BYTE_TIME_BITS = 16  # Port.byte_time counts 2**-16 ps
PS_PER_S_AND_BITS = 8 * 10**12  # bytes at a rate in bit/s to ps
RETURNED = 4  # bit of Hop.trimmed: on the way back to its sender
LARGEST = (1 << 15) - 1  # of Hop.size, Hop.t0 and Hop.pod
TOGETHER = 16  # links whose packets are prefetched together
FOLLOWED = 2 * 3 * TOGETHER  # their lists: those of each service, in channels and in outgoing lists


class Service(IntEnum):
    """Service class of a packet; also the order of the channels of a link."""

    CONTROL = 0  # strict priority
    DATA = 1
    SECOND = 2  # data of the second class (`sharing`), in networks that have one


class Hop:
    """A packet on a link."""

    arrives: Int  # ps, its last bit at the next node's forwarding decision
    enqueued: Int  # ps
    entropy: Int
    next: Int32  # in its channel
    frame: Int32
    queued_bytes: Int32  # data of its class ever queued on the link, this packet included, modulo 2**31
    source: Int32  # NIC
    destination: Int32  # NIC
    path_number: Int32  # irregular fabrics: of the path from here on (`graph_routes`)
    link: Int32  # incoming link
    size: Int16  # bytes on the wire
    t0: Int16  # regular fabrics: of the destination, in its plane
    pod: Int16
    site: Int8
    plane: Int8
    service: Int8
    trimmable: Bool
    trimmed: Int8  # wire.codes.Trim, and RETURNED
    marked: Bool


class LinkFifo:
    """One FIFO of a wire, on the receiver's side."""

    head: Int32
    tail: Int32
    cursor: Int32  # the last packet that was queued when `head` left the port, or NONE


class Outgoing:
    """Packets sent into a channel in one window; two per channel, used alternately."""

    head: Int32
    tail: Int32


class EgressPort:
    """The egress queue of a directed link: two cache lines."""

    busy_until: Int  # ps, when all accepted data is sent
    control_until: Int  # ps
    byte_time: Int  # unit 2**-16 ps
    delay: Int  # ps, propagation and the forwarding latency of the switch at the other end
    capacity: Int  # ps of queued data above which packets are trimmed or dropped
    last_time: Int  # ps on the wire of the last data packet
    queued_bytes: Int32  # modulo 2**31
    tail: Int32  # the last data packet queued
    destination: Int32  # node
    trimming: Int8  # Trimming
    last_hop: Bool  # leads to a NIC
    withdrawn: Bool  # from the routing tables

    tail_begins: Int  # ps, start of the last data packet's transmission
    data_packets: Int
    data_bytes: Int
    peak: Int  # ps, the longest backlog that a data packet met
    control_packets: Int
    control_capacity: Int  # ps
    random: Int
    trimmed: Int32
    dropped: Int32


class ClassShares:
    """The two classes of data of a directed link, in a network that has a second one."""

    at: Int  # ps, the time of the next two: later than now while a control packet goes first
    first: Float  # ps of the line that what waits needs
    second: Float
    share: Float  # of the rate, for the second class while both wait
    first_departs: Int  # ps, of its last packet
    second_departs: Int
    second_bytes: Int32  # as EgressPort.queued_bytes, which is that of the first class


class Queue:
    """The queue of a lossless port, and the receiver's count of packets from the link."""

    paused_until: Int  # ps, expiry of a PAUSE that is neither repeated nor cancelled
    departs_at: Int  # ps, when the packet in service has left; NEVER: none is in service
    check_at: Int  # ps, when the port looks whether its PAUSE has expired; NEVER: never
    paused_at: Int  # ps, when the receiver sent its last PAUSE
    marked: Int  # packets, by the port

    head: Int32
    tail: Int32
    serving: Int32  # packet in service, or NONE
    paused: Bool  # by the receiver
    bytes: Int32
    ecn_low: Int32  # bytes; negative: never mark
    ecn_high: Int32
    reverse: Int32  # link
    held: Int32  # bytes that arrived over the link and are still at the receiver
    pause_above: Int32
    resume_below: Int32
    pausing: Bool  # the receiver has sent PAUSE


class PortTimer:
    """An entry of the nodes' heaps, and the place of a lossless port in its node's (`core.heap`)."""

    at: Int  # ps, the earlier of `Queue.departs_at` and `Queue.check_at`
    item: Int32  # link
    slot: Int32


class Wire:
    """The receiver's side of a directed link."""

    alive_from: Int  # ps, up without a break since then; NEVER: down
    ecn_low: Int32  # bytes left in the queue below which no packet is marked; negative: never
    ecn_high: Int32  # bytes above which all are marked
    random: Int
    impaired: Int  # of its LinkImpairments: impairments.CHANCES, impairments.HOLDS; 0: unimpaired
    arrived: Int  # packets
    arrived_bytes: Int
    marked: Int
    lost: Int  # to faults


class LinkLosses:
    """What `Port.dropped` and `Wire.lost` of a directed link consist of, and the packets that its wire added."""

    control_full: Int  # of those dropped: control and trimmed packets, whose own queue was full; written by the sender
    at_random: Int  # of those lost: by chance (impairments); the rest was in flight when the link went down
    duplicated: Int  # copies, by chance


class LinkImpairments:
    """Impairments of a directed link, and its delayed packets. Probabilities in 2**-32."""

    loss: Int
    byte_loss: Float  # bit errors per byte
    data_loss: Int  # of packets of data, beside `loss`
    mtu: Int  # bytes above which all packets are lost; 0: no limit
    duplicate: Int
    reorder: Int
    trim: Int
    delay: Int  # ps, on top of the link's own
    jitter: Int  # ps, added to the delay, uniform from 0
    late: Int32  # packets held back, by time of arrival; valid while the wire is impaired by HOLDS
    last_late: Int32


class Node:
    """A NIC or a switch: its incoming links, and its forwarding data."""

    next_at: Int  # ps, earliest time of a received packet
    first_in: Int32  # in Network.in_links
    in_count: Int32
    own: Int32  # index, pod or site below
    down_base: Int32  # link
    down_stride: Int32  # links from one subtree below to the next
    up_base: Int32  # link
    up_count: Int32
    salt: Int32
    heap_base: Int32  # in Network.port_timers
    heap_count: Int32
    down_bundle: Int16
    plane: Int8
    tier: Int8  # NONE: a NIC


class Mail:
    """Whether the outgoing lists of one turn have packets: those of a link, or of all links to a node."""

    new: Bool


class InLink:
    """One of the links that lead to a node: a node with many idle links reads nothing else of them."""

    due: Int  # ps, the earliest arrival in its channels, NEVER: none; the outgoing lists are not counted
    link: Int32


class SimulatedNic:
    """The loop's state of an endpoint."""

    wake: Int  # ps, its next own event
    pending: Int32  # first message that waits for its start, in order of time
    ports: Int32  # number of its ports; in an irregular fabric NICs may differ


class NicPort:
    """A NIC in one plane: its T0 port, and when it can send again."""

    free_at: Int  # ps; NEVER: the NIC has no such port
    link: Int32  # to its T0
    t0: Int16
    pod: Int16
    site: Int8
    left: Bool  # the NIC's bond does not use it
    withdrawn: Bool  # no route leads to it


class ScaleUpPort:
    """A NIC's GPUs on the network of their scale-up domain."""

    free_at: Int  # ps
    link: Int32  # to the domain's switch
    head: Int32  # flow that is being sent, or NONE
    tail: Int32


class SwitchRoute:
    """The shortest paths from a switch to a NIC, in an irregular fabric."""

    first: Int32  # in Network.next_hops
    count: Int32  # first links
    ways: Int32  # number of paths from here on, at most 2**31 - 1


class NextHop:
    """A link on a shortest path."""

    link: Int32


class SimulatedProbe:
    """A probe of a plan (`probe_packets`)."""

    due: Int  # ps: what arrives later has waited longer than in full queues of healthy ports
    sent: Int32  # packets
    arrived: Int32
    late: Int32  # of those that arrived, whole
    out: Int32  # on their way, or lost


class ProbeLink:
    """A link on a probe's path."""

    link: Int32  # -1 behind the last


class Flow:
    """The progress of a message (`traffic`)."""

    start: Int  # ps, not before
    posted_at: Int  # ps; NEVER: not yet
    sent_at: Int  # ps, all acknowledged at the sender; NEVER
    received_at: Int  # ps, all in the receiver's memory; NEVER
    failed_at: Int  # ps, abandoned; NEVER
    size: Int  # bytes
    sent: Int  # bytes, over a scale-up network
    arrived: Int  # bytes, over a scale-up network
    source: Int32
    destination: Int32
    inside: Bool  # a scale-up domain
    waits: Int32  # releases still missing
    handle: Int32  # the transport's queue pair
    next: Int32  # waiting at the same NIC
    first_release: Int32
    release_count: Int32
    second_class: Bool  # of data
    watched: Bool  # the receiver's completion releases other messages


class Release:
    """A message that another one releases."""

    delay: Int
    flow: Int32
    side: Int32  # traffic.CompletionSide


class ReleaseSignal:
    """A release for another NIC, delivered between windows."""

    at: Int
    flow: Int32


class Shard:
    """Nodes that one thread serves, with its working memory."""

    first_node: Int  # in Network.members; its NICs come before its switches
    node_count: Int
    nic_count: Int
    free: Int  # head of its list of free hops
    free_count: Int
    fresh: Int  # next hop never used
    fresh_end: Int
    start: Int  # ps, of the window
    end: Int  # ps, when the next one starts
    batch_base: Int
    batch_size: Int
    batch_count: Int  # packets that reach the node being served in the window
    bucket_base: Int
    follow_base: Int
    prefetched: Int  # links before this one, in Network.in_links: their packets have been prefetched in this phase
    signal_base: Int  # as many for each shard as there are releases
    signals: Int
    turn: Int  # 0 or 1, which outgoing lists this window fills
    joined: Int  # 0 or 1, which outgoing lists the nodes now served append to their channels
    earliest: Int  # ps, earliest arrival of a packet sent in this window
    allocated: Int
    released: Int
    hops: Int  # packets handled at nodes
    finished: Int  # flows


class Member:
    """A node of a shard."""

    node: Int32


class BatchEntry:
    """A packet to handle in this window."""

    key: Int  # time since the window's start, then order of collection
    sorted: Int
    hop: Int32


class Bucket:
    """Number of packets in one part of the window."""

    count: Int32


class Follow:
    """Progress in a list of packets while those of many links are prefetched."""

    hop: Int32


class NetworkConfig:
    """Global configuration of the network; one row."""

    planes: Int
    routing: Int  # Routing
    trim_size: Int  # bytes on the wire
    trim_to_sender: Bool
    lookahead: Int  # ps, the longest window: the shortest delay of a link that does not end at a NIC
    shortest_delay: Int  # ps, of all links
    control_size: Int  # bytes on the wire
    header: Int  # bytes of a data packet besides its payload
    lossless: Bool
    services: Int  # channels of a link: 3 with a second class of data, else 2
    routed: Int  # switches of an irregular fabric, which look up routes; 0: a regular one, where routes are computed
    first_scale_up: Int  # links from this one on belong to scale-up networks
    detours: Int  # number of links and ports that routing or bonds avoid; 0: no check needed


class Network(NamedTuple):
    """The tables together."""

    hops: Table[Hop]
    channels: Table[LinkFifo]
    outgoing: Table[Outgoing]
    ports: Table[EgressPort]
    class_shares: Table[ClassShares]  # of links, in a network with two classes of data
    queues: Table[Queue]  # of links, in a lossless network
    port_timers: Table[PortTimer]  # of links, in a lossless network
    wires: Table[Wire]
    link_impairments: Table[LinkImpairments]
    link_losses: Table[LinkLosses]
    nodes: Table[Node]
    mails: Table[Mail]  # node x 2 + turn
    link_mails: Table[Mail]  # link x 2 + turn
    in_links: Table[InLink]
    nics: Table[SimulatedNic]
    nic_ports: Table[NicPort]
    scale_up_ports: Table[ScaleUpPort]  # empty without domains
    routes: Table[SwitchRoute]  # destination x switches + switch
    next_hops: Table[NextHop]
    probes: Table[SimulatedProbe]  # empty where nobody probes
    probe_links: Table[ProbeLink]
    flows: Table[Flow]
    releases: Table[Release]
    signals: Table[ReleaseSignal]
    shards: Table[Shard]
    members: Table[Member]
    batch: Table[BatchEntry]
    buckets: Table[Bucket]
    follows: Table[Follow]
    config: Table[NetworkConfig]


class Routing(IntEnum):
    """Uplink selection of a switch."""

    ENTROPY = 0  # the entropy names the uplink, as SRv6 uSIDs do
    HASH = 1  # ECMP: a hash of addresses and entropy
    ADAPTIVE = 2  # the uplink with the shortest queue


class Trimming(IntEnum):
    """Behaviour of a full queue."""

    NEVER = 0  # drops the arriving packet
    ARRIVING = 1  # trims the arriving packet
    EITHER = 2  # trims the arriving packet or the last in the queue, at random (htsim's composite queue)
