"""Rows of the UET-style transport: a sending and a receiving half per message, and its packets.

Behaviour and constants follow UEC 1.0.3 §3.6 and the public simulator github.com/ultraethernet/uet-htsim (sim/uec.cpp,
sim/uec_mp.cpp), so that results are comparable. Every message is a separate connection.
"""

from enum import IntEnum
from typing import NamedTuple

from openmrc.core.rows import Bool, Float, Int, Int8, Int16, Int32, Table
from openmrc.sim.transports.senders import SenderLink, SenderNic, SenderRing, SenderTimer

NONE = -1


class Feedback(IntEnum):
    """Feedback for a path."""

    GOOD = 0
    MARKED = 1
    NACKED = 2
    TIMED_OUT = 3


class UetPacketKind(IntEnum):
    DATA = 0
    ACK = 1
    NACK = 2


class PacketState(IntEnum):
    UNSENT = 0
    IN_FLIGHT = 1
    LOST = 2
    ACKED = 3


class UetParams:
    """NSCC's constants for this network, and the other parameters of all connections; one row."""

    mtu: Int  # payload bytes
    packet: Int  # bytes on the wire of a full packet
    header: Int
    rate: Int  # bits/s of a NIC
    network_rtt: Int  # ps
    target: Int  # ps
    alpha: Float
    fair: Float
    eta: Float
    fast_scale: Float
    adjust_bytes: Int
    qa_threshold: Int  # ps
    retransmit_after: Int  # ps
    ack_bytes: Int
    spraying: Int  # number of the policy
    notes: Int  # of each sender
    entropies: Int  # power of two
    give_up_after: Int  # ps without a response from the peer


class UetNic(SenderNic):
    """One NIC: connections with packets to send, a queued reply, unreported completions."""

    plane: Int  # of the last data packet
    ring: Int  # of its sender
    answer: Bool  # `answers[nic]` is queued


class UetSender:
    """The sending half of a message."""

    flow: Int32
    packets: Int32
    first: Int32  # row of its first packet
    next: Int32  # next new packet
    acked: Int32  # packets acknowledged cumulatively
    lost: Int32  # packets that wait for retransmission
    lost_from: Int32  # no lost packet is below
    is_fast: Bool
    trim_seen: Bool
    single_path: Bool
    error: Bool  # failed
    plane: Int8  # of its single path, else of the last packet sent
    entropy: Int32  # likewise
    next_failed: Int32
    progressed_at: Int  # ps, the peer's last response
    in_flight: Int  # bytes: of packets in flight, minus those reported as received and not yet identified
    reported: Int  # bytes, last report of the receiver's counter
    deadline: Int  # ps
    cwnd: Float
    max_cwnd: Float
    increase: Float  # bytes^2 since the last adjustment
    average_delay: Float  # ps
    base_rtt: Int
    received: Int  # bytes since the last adjustment
    adjusted_at: Int
    eta_at: Int
    decreased_at: Int
    fast_bytes: Int
    achieved: Int
    qa_end: Int
    to_ignore: Int
    ignored: Int
    retransmitted: Int
    timeouts: Int
    nacks: Int
    decreases: Int


class UetReceiver:
    expected: Int32
    highest: Int32
    beyond: Int32  # packets received beyond the first hole
    asked: Bool  # acknowledge when the hole closes
    bytes: Int
    unacknowledged: Int  # bytes
    duplicates: Int
    trimmed: Int


class SentPacket:
    sent_at: Int
    state: Int8
    transmissions: Int8
    size: Int32


class UetArrival:
    """One packet at the receiver."""

    here: Bool


class Sprayer:
    """What a spraying policy remembers of a sender besides its notes; each policy says what it uses."""

    until: Int  # ps
    cursor: Int32  # place in the round over all entropies; at first its end
    mask: Int32  # order of the round
    head: Int32  # of notes used in turn, the first
    tail: Int32  # behind the last
    held: Int32  # notes
    left: Int32  # packets


class SprayNote:
    """A note of a spraying policy: on an entropy, or an entropy."""

    value: Int16
    fresh: Bool  # not used since


class UetFrame:
    """Content of a packet."""

    flow: Int32
    psn: Int32
    cumulative: Int32
    base: Int32  # of the bitmap
    bitmap: Int
    received: Int  # bytes in total
    entropy: Int  # of the acknowledged packet
    payload: Int32
    kind: Int8
    repeated: Bool
    asks: Bool
    marked: Bool
    last_hop: Bool
    plane: Int8


class Uet(NamedTuple):
    """State of the transport."""

    params: Table[UetParams]
    nics: Table[UetNic]
    rings: Table[SenderRing]  # of each NIC: one per port for senders with a single path, then one for those that spray
    links: Table[SenderLink]  # by sender
    timers: Table[SenderTimer]  # of senders with packets in flight
    senders: Table[UetSender]
    receivers: Table[UetReceiver]
    sent: Table[SentPacket]
    arrivals: Table[UetArrival]
    sprayers: Table[Sprayer]  # by sender
    notes: Table[SprayNote]  # sender x UetParams.notes
    answers: Table[UetFrame]  # by NIC
    frames: Table[UetFrame]
