"""Rows of RoCEv2 RC: queue pairs that each carry a slice of a message, with DCQCN's rate.

Sources: InfiniBand Architecture Specification volume 1, 9.7 (RC, go-back-N); Zhu et al., "Congestion Control for
Large-Scale RDMA Deployments", SIGCOMM 2015 (DCQCN), constants of github.com/ultraethernet/uet-htsim, except
that every queue pair has its own alpha; Mittal et al., "Revisiting Network Support for RDMA", SIGCOMM 2018 (selective).
"""

from enum import IntEnum
from typing import NamedTuple

from openmrc.core.rows import Bool, Float, Int, Int8, Int16, Int32, Table
from openmrc.sim.transports.senders import SenderLink, SenderNic, SenderRing, SenderTimer

NONE = -1


class Recovery(IntEnum):
    """Recovery from a hole in the sequence."""

    GO_BACK_N = 0  # the receiver drops later packets, the sender retransmits from the hole
    SELECTIVE = 1  # the receiver keeps later packets, the sender retransmits the hole


class RocePacketKind(IntEnum):
    DATA = 0
    ACK = 1
    NAK = 2
    CNP = 3


class RoceParams:
    """Parameters of all queue pairs; one row."""

    mtu: Int
    header: Int
    recovery: Int
    reorder: Int  # packets beyond a hole after which it counts as a loss
    ack_every: Int  # packets
    window: Int  # packets in flight, at most
    retransmit_after: Int  # ps
    retries: Int  # timeouts in a row after which a queue pair is in error
    spray: Bool  # a fresh entropy for every packet
    dcqcn: Bool
    cnp_interval: Int  # ps
    period: Int  # ps, of alpha's updates and of increases
    byte_counter: Int
    fast_steps: Int  # F
    gain: Float  # g
    additive_share: Float  # of the port's rate
    hyper_share: Float


class RoceNic(SenderNic):
    """One NIC: queue pairs with packets to send, queued replies, unreported completions."""

    port: Int32  # the last that sent data
    answer: Int8  # queued replies: 1 ACK or NAK, 2 CNP, 3 both
    answer_kind: Int16
    answer_to: Int32  # queue pair
    # counters, of all its queue pairs
    retransmitted: Int
    timeouts: Int
    naks: Int
    cnps: Int


class RoceSender:
    """The requesting half of a queue pair."""

    rate: Float  # bits/s of its port
    flow: Int32
    nic: Int32
    destination: Int32
    first: Int32  # row of its first packet
    packets: Int32
    last_payload: Int32
    next: Int32  # next packet to send
    acked: Int32
    highest: Int32  # highest ever sent + 1
    resend: Int32  # hole to fill, or NONE
    entropy: Int32
    plane: Int8
    begun: Bool
    single_path: Bool
    error: Bool  # its retries are spent
    retries: Int16  # since the last progress
    progressed_at: Int  # ps, last new acknowledgement
    deadline: Int
    send_at: Int  # ps, earliest next packet by its rate
    # DCQCN
    current: Float  # bits/s
    target: Float
    alpha: Float
    alpha_at: Int
    increase_at: Int
    sent_bytes: Int  # since the last step of the byte counter
    timer_steps: Int
    byte_steps: Int


class RoceReceiver:
    """The responding half."""

    expected: Int32
    highest: Int32
    beyond: Int32
    since_ack: Int32
    hole: Int32  # hole reported by the last NAK, or NONE
    duplicates: Int32
    cnp_at: Int  # ps, last CNP


class RoceArrival:
    """One packet at a receiver that keeps out-of-order packets."""

    here: Bool


class RoceMessage:
    """Number of unfinished slices of a message."""

    unsent: Int32
    unreceived: Int32
    first: Int32  # queue pair
    slices: Int32
    next_failed: Int32


class RoceFrame:
    """Content of a packet."""

    pair: Int32
    psn: Int32
    kind: Int8
    last: Bool


class Roce(NamedTuple):
    """State of the transport."""

    params: Table[RoceParams]
    nics: Table[RoceNic]
    rings: Table[SenderRing]  # one for each port of each NIC
    links: Table[SenderLink]  # by sender
    timers: Table[SenderTimer]  # of senders that wait for a timer, or for their rate
    senders: Table[RoceSender]
    receivers: Table[RoceReceiver]
    arrivals: Table[RoceArrival]
    messages: Table[RoceMessage]
    frames: Table[RoceFrame]
