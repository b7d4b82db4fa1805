"""All state of the endpoint: one row type per noun, and `Engine`, the tables together.

131,072 endpoints are a few arrays; one endpoint in a live process is the same arrays, short. Rows
refer to each other by index into their table; NONE is no row. What an endpoint owns lies in
slices that are fixed when it is built, so nothing is allocated while packets move and shards of
endpoints can run on threads side by side.

Time is picoseconds, size is bytes, masks of ports have bit n for port n counted from 0.
PSNs, MSNs and RQMSNs are kept as numbers that never wrap; only packets carry the low bits.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openmrc.core.rows import Float, Int, Int8, Int16, Int32, Table
from openmrc.wire.packet import Packet

NONE = -1


class Params:
    """Everything the public sources leave open, and what a deployment tunes. Defaults: `params.py`."""

    # Acknowledging (MRC §7.5.2)
    sack_threshold: Int  # bytes received that make a SACK due
    sack_minimum: Int  # bytes a packet counts at least
    ack_every: Int  # packets after which a transport ACK goes out without a completed message
    refuse_out_of_window: Int  # 1: answer with NACK PSN_OOR_WINDOW; 0: drop silently
    always_skip_packets: Int  # packets on one EV before ALWAYS_SKIP may be said; 0: never say it
    always_skip_percent: Int  # marked share of those that makes the path persistently bad
    receiver_penalty: Int  # rcv_cwnd_pen sent in every SACK, 0..127
    # Losing (MRC §7.4)
    trimming: Int  # 1: switches trim, so a hole by itself is never congestion
    loss_threshold: Int  # losses on one EV before it is ASSUMED_BAD
    gap_packets: Int  # without trimming: a hole is lost only with that many packets received above it
    loss_delay_floor: Int  # ps, the least time a packet may stay unreported
    tail_probe: Int  # 1: ask by a reliability probe when acknowledgements stop
    # Paths (MRC §9.3)
    ev_burst: Int  # packets that follow each other on one EV, so that sockets can batch them
    probe_interval: Int  # ps, first probe of an ASSUMED_BAD EV
    probe_interval_max: Int  # ps, cap of its doubling
    probe_successes: Int  # answers in a row that make an EV good again
    reverse_probe_interval: Int  # ps between EV probes of a responder that has nothing to send; 0: none
    port_status_interval: Int  # ps between Port Status Updates until one is answered
    port_remap_delay: Int  # ps until a local port's new state is acted on
    timestamp_unit: Int  # tsr: 0 = 128 ns, 1 = 1 us
    # Congestion control (MRC §8; UEC 1.0.3 §3.6.13)
    algorithm: Int  # congestion.Algorithm
    link_rate: Int  # bits/s, all ports of the NIC together
    base_rtt: Int  # ps, unloaded, longest path
    base_rtt_measured: Int  # 1: lower base_rtt to the least seen
    target_delay: Int  # ps of queueing
    initial_cwnd: Int  # bytes
    max_cwnd: Int  # bytes, 0: 1.5 x BDP of the base RTT
    min_cwnd: Int  # bytes
    alpha: Float  # bytes per ps of head-room: proportional increase
    fi: Float  # bytes: fair increase
    fi_scale: Float  # share of acknowledged bytes: fast increase
    fast_delay: Int  # ps of queueing below which fast increase may run
    eta: Float  # bytes per adjust period
    gamma: Float
    max_md_jump: Float  # least factor of one multiplicative decrease
    disable_qa: Int
    qa_gate: Int  # quick adapt acts when achieved < max_cwnd >> qa_gate
    qa_threshold: Int  # ps of queueing that triggers quick adapt
    adjust_bytes: Int
    adjust_period: Int  # ps


class Endpoint:
    """One NIC: its ports, peers and queue pairs, and the rings through which the world speaks with it."""

    params: Int  # row of Params
    address: Int  # the world's number for this NIC, as peers know it
    random: Int  # state of core.rng
    port_base: Int
    port_count: Int
    ports_up: Int  # mask: usable for sending now
    peer_base: Int
    peer_count: Int
    qp_base: Int
    qp_count: Int
    qpn_slot_mask: Int  # bits of a QPN that find its row; the others tell incarnations apart
    region_base: Int
    region_count: Int
    control_base: Int
    control_mask: Int
    control_head: Int
    control_tail: Int
    completion_base: Int
    completion_mask: Int
    completion_head: Int
    completion_tail: Int
    event_base: Int
    event_mask: Int
    event_head: Int
    event_tail: Int
    ready_tail: Int  # last of the ring of peers with something to send, or NONE
    ready_count: Int
    deadline: Int  # ps, no deadline of this endpoint is earlier
    remap_at: Int  # ps, when ports_wanted takes effect; NEVER: it has
    ports_wanted: Int  # mask
    # counters
    unknown_qp: Int
    wrong_source: Int
    unknown_opcode: Int
    contradictions: Int  # Port Status Updates that came by a port which they call down
    control_dropped: Int  # control ring full
    events_dropped: Int  # event ring full


class Port:
    """One port of a NIC; port i is on plane i."""

    sent_packets: Int
    sent_bytes: Int  # payload
    received_packets: Int
    received_bytes: Int  # payload
    retransmitted: Int
    marked: Int  # arrived ECN-marked
    trimmed: Int  # arrived trimmed
    lost: Int  # sent and inferred lost
    control_sent: Int
    control_received: Int


class Peer:
    """A remote NIC: which of its ports work, and the window (QPCC) that all queue pairs to it share (MRC §8)."""

    endpoint: Int
    address: Int  # the world's number for that NIC
    ports_up: Int  # mask, as its Port Status Updates say
    ready_tail: Int  # last of the ring of queue pairs with something to send
    ready_count: Int
    next_ready: Int  # next peer in the endpoint's ring
    listed: Int
    # Round trip
    srtt: Int  # ps, smoothed; 0: none yet
    rttvar: Int  # ps
    base_rtt: Int  # ps
    # NSCC
    inflight: Int  # bytes, nominal
    cwnd: Float  # bytes
    max_cwnd: Float  # bytes
    saved_cwnd: Float  # what a receiver penalty with restore put aside; 0: nothing
    average_delay: Float  # ps
    inc_bytes: Float
    received: Int  # bytes since the last adjustment
    adjusted_at: Int  # ps
    eta_at: Int  # ps
    decreased_at: Int  # ps
    fast_bytes: Int  # bytes acknowledged at nearly no delay
    is_fast: Int
    achieved: Int  # bytes in this quick-adapt period
    qa_end: Int  # ps; 0: first period, not evaluated
    qa_trigger: Int  # a trim or loss was seen in this period
    bytes_to_ignore: Int
    bytes_ignored: Int
    # Port Status Updates to this peer
    status_deadline: Int  # ps
    status_attempts: Int
    status_pending: Int  # 1: not answered yet
    # Probes of the ports that it calls down
    check_deadline: Int  # ps
    check_attempts: Int
    check_pending: Int  # 1: an answer counts
    # counters
    quick_adapts: Int
    decreases: Int


class Deadline(IntEnum):
    """The timers of a queue pair, in the order in which `deadlines` serves them."""

    LOSS = 0  # a hole will have waited long enough: `loss.scan`
    ACK = 1  # nothing was acknowledged for a timeout: `requester.on_timeout`, and one retry is spent
    TAIL = 2  # acknowledgements stopped: `requester.on_tail` asks by a probe
    PROBE = 3  # bad EVs: `probes.send_due`
    REVERSE = 4  # control paths: `reverse.on_deadline`


DEADLINES = len(Deadline)


class QueuePair:
    """Both halves of one connection: the requester (MRC Table 7-4) and the responder (Table 7-5)."""

    endpoint: Int
    qpn: Int  # 24 bits
    state: Int  # states.QpState
    cause: Int  # why it is in ERROR: Cause
    peer: Int
    dest_qpn: Int
    pd: Int  # protection domain: which regions it may reach
    access: Int  # what the peer may do: regions.Access
    # Attributes (mrc_qp_attr)
    path_mtu: Int  # bytes
    timeout: Int  # ps
    linear_count: Int
    exponential_count: Int  # INFINITE_RETRIES: for ever
    mpr: Int  # ours to the peer, unit 128 PSNs
    mpr_dest: Int  # the peer's to us, unit 128 PSNs
    dynamic_mpr: Int  # both sides agreed
    max_wimm: Int  # WriteIMMs we keep in flight
    max_wimm_dest: Int  # WriteIMMs the peer may keep in flight to us
    trim_nack_dest: Int  # 1: the peer answers trimmed packets
    sq_signal_all: Int
    # Slices
    rotation_base: Int
    rotation_count: Int  # = ports of the endpoint
    ev_base: Int
    ev_count: Int  # of all rotations
    message_base: Int
    message_mask: Int
    sent_base: Int
    sent_mask: Int
    tracker_base: Int  # words of 32 PSNs
    tracker_mask: Int  # PSNs - 1
    pending_base: Int
    pending_mask: Int
    receive_base: Int
    receive_mask: Int
    mark_stats_base: Int
    mark_stats_mask: Int
    # Requester
    first_psn: Int
    next_psn: Int  # the next new packet
    unack_psn: Int  # lowest PSN not acknowledged cumulatively
    highest_sacked: Int
    message_head: Int  # oldest not completed
    message_current: Int  # being cut into packets
    message_tail: Int  # next to be posted
    packets_cut: Int  # of the current message
    wimm_next: Int  # RQMSN of the next WriteIMM to start
    wimm_done: Int  # WriteIMMs completed
    inflight: Int  # bytes, nominal
    rcvd_bytes_seen: Int  # unit 256 B, as on the wire
    lost_count: Int  # packets that wait for retransmission
    lost_cursor: Int  # no PSN below it waits
    newest_delivered: Int  # ps, send time of the most recently sent packet known to have arrived
    solicit_psn: Int  # packet to repeat because a transport ACK is missing, or NONE
    retries: Int  # timeouts and refusals since the last progress
    rotation_cursor: Int
    round_ports: Int  # mask: used since all working ports had been used
    burst_ev: Int
    burst_left: Int
    good_evs: Int  # GOOD or SKIP
    min_active_evs: Int
    next_ready: Int
    listed: Int
    deficit: Int  # bytes that deficit round robin still owes
    heard_at: Int  # ps, last answer of the peer
    deadline: Int  # ps, no later than the earliest of `deadlines`
    deadlines: Annotated[NDArray[np.int64], (np.int64, (DEADLINES,))]  # ps, by Deadline; NEVER: not armed
    # Responder
    expected_psn: Int  # ePSN = cack_psn + 1
    highest_received: Int
    lowest_unsacked: Int  # lowest received and not yet reported
    ooo_count: Int  # received beyond the first hole
    received_bytes: Int  # nominal, ever
    sack_count: Int  # bytes since the last SACK (sack_trigger_cnt)
    sack_queued: Int
    ack_queued: Int
    ack_requested: Int  # a request arrived while there were holes (prev_ar)
    since_ack: Int  # packets since the last transport ACK
    completed_messages: Int  # whole messages behind the left edge
    nak_syndrome: Int  # semantic refusal to repeat, or 0
    nak_psn: Int  # the packet it refuses
    expected_rqmsn: Int  # next WriteIMM to hand over
    receive_head: Int  # next posted receive to use
    receive_tail: Int
    heard_rotation: Int  # the rotation on which the peer was heard last
    heard_ports: Int  # mask: heard on since a control packet went back there
    control_rotation: Int  # the rotation of the last control packet that was one's turn
    reverse_cursor: Int
    data_since_reverse: Int  # packets since the last reverse probe
    # Counters
    sent_packets: Int
    sent_bytes: Int
    retransmitted: Int
    timeouts: Int
    inferred_losses: Int
    spurious: Int  # declared lost, then acknowledged as first sent
    sacks_received: Int
    nacks_received: Int
    received_packets: Int
    duplicates: Int
    out_of_window: Int
    trimmed_arrivals: Int
    marked_arrivals: Int
    sacks_sent: Int
    nacks_sent: Int
    acks_sent: Int
    probes_sent: Int
    probes_answered: Int
    malformed: Int  # well-formed on the wire, impossible in this connection


class PortRotation:
    """The EVs that one queue pair has on one port: a rotation of active ones and the reserve behind it."""

    qp: Int
    port: Int
    ev_base: Int  # EVs, and slots, of this rotation
    total: Int  # active and reserve
    wanted: Int  # active, when all is well
    active: Int  # slots[0:active] are in rotation
    cursor: Int
    reverse: Int  # EV row for control packets
    reverse_ok: Int
    reverse_probe: Int  # 1: an EV probe is out
    reverse_candidate: Int  # EV row that probe travels on
    risen_at: Int  # ps, when the port came back, here or at the peer


class Slot:
    """One place in a rotation's rotation."""

    ev: Int16  # offset from the rotation's ev_base


class Ev:
    """One entropy value of one queue pair: what it says on the wire and what we know of its path."""

    value: Int  # 32 bits
    failed_at: Int  # ps
    restored_at: Int  # ps
    probe_at: Int  # ps
    probe_sent_at: Int  # ps
    probe_gap: Int  # ps to the probe after
    rotation: Int32
    probe_id: Int32  # of the probe that is out, or NONE
    slot: Int16  # where in the rotation's slots
    port: Int8
    state: Int8  # states.EvState
    losses: Int8  # since the last success
    successes: Int8  # probes answered in a row
    sent: Int  # with these three, a busy connection would pass 2**31 within a day
    acked: Int
    marked: Int
    trimmed: Int32
    lost: Int32
    probes: Int32


class WriteRequest:
    """An RDMA write to post (IBTA volume 1, 10.7); the world fills it."""

    wr_id: Int  # comes back in the completion
    local: Int  # address of the payload, for the world
    length: Int  # bytes
    va: Int  # address at the peer
    r_key: Int
    immediate: Int  # 32 bits
    has_immediate: Int  # 1: a WriteIMM, it takes a posted receive of the peer
    solicited: Int  # 1: the peer's completion is solicited
    signaled: Int  # 1: a success is reported too


class Message(WriteRequest):
    """A posted write, from post to completion."""

    first_psn: Int
    packets: Int
    rqmsn: Int
    status: Int  # WcStatus once refused


class Sent:
    """What the requester remembers of one PSN."""

    sent_at: Int  # ps
    message: Int32  # slot of its message
    ev: Int32  # row
    payload: Int32  # bytes
    state: Int8  # SentState
    transmissions: Int8


class Tracker:
    """32 PSNs of the responder's window: which arrived, which end a message, which carry an immediate."""

    arrived: Int
    last: Int
    immediate: Int


class EvMarkStats:
    """What a responder counts of one EV, to judge its path persistently bad."""

    entropy: Int
    packets: Int
    marked: Int
    since: Int  # ps


class PendingImmediate:
    """A WriteIMM that waits for everything before it."""

    immediate: Int
    length: Int
    solicited: Int
    present: Int


class Receive:
    """A posted receive."""

    wr_id: Int


class Control:
    """A control packet that waits for its turn; what it reports is read when it leaves."""

    opcode: Int
    qp: Int  # or NONE for endpoint operations
    peer: Int
    psn: Int  # what it answers (full PSN), or the probe_id
    entropy: Int  # to reflect; of probes: to travel on
    port: Int  # to leave on, or NONE
    mark: Int
    retransmitted: Int
    tx_timestamp: Int
    timestamp_unit: Int
    reason: Int  # NackReason, Syndrome, EndpointOp
    mask: Int
    ev: Int  # row it must travel on, or NONE


class Region:
    """Memory that peers may write (a memory region)."""

    r_key: Int  # 0: free
    va: Int
    length: Int
    access: Int
    pd: Int
    local: Int  # address of byte 0, for the world


class Completion:
    """What became of one posted request."""

    kind: Int  # CompletionKind
    qp: Int
    wr_id: Int
    status: Int  # WcStatus
    length: Int
    immediate: Int
    has_immediate: Int
    solicited: Int


class Event:
    """Something that happened beside the requests: a path, a port, a queue pair changed."""

    kind: Int  # EventKind
    at: Int  # ps
    qp: Int
    peer: Int
    port: Int
    entropy: Int
    state: Int  # new EvState, or mask, or Cause
    cause: Int  # EvEvent


class Engine(NamedTuple):
    """The tables together; `packets` belongs to the world."""

    params: Table[Params]
    endpoints: Table[Endpoint]
    ports: Table[Port]
    peers: Table[Peer]
    qps: Table[QueuePair]
    rotations: Table[PortRotation]
    slots: Table[Slot]
    evs: Table[Ev]
    messages: Table[Message]
    sent: Table[Sent]
    tracker: Table[Tracker]
    mark_stats: Table[EvMarkStats]
    pending_immediates: Table[PendingImmediate]
    receives: Table[Receive]
    control: Table[Control]
    regions: Table[Region]
    completions: Table[Completion]
    events: Table[Event]
    packets: Table[Packet]


class SentState(IntEnum):
    """Of one PSN, at the requester."""

    FREE = 0
    IN_FLIGHT = 1
    LOST = 2  # waits for retransmission
    ACKED = 3


class CompletionKind(IntEnum):
    """Which queue a completion belongs to."""

    SEND = 0
    RECEIVE = 1


class WcStatus(IntEnum):
    """Work completion status; values as `enum ibv_wc_status` of rdma-core."""

    SUCCESS = 0
    LOC_PROT_ERR = 4
    WR_FLUSH_ERR = 5
    REM_INV_REQ_ERR = 9
    REM_ACCESS_ERR = 10
    REM_OP_ERR = 11
    RETRY_EXC_ERR = 12
    GENERAL_ERR = 21


class Cause(IntEnum):
    """Why a queue pair went to ERROR."""

    NONE = 0
    RETRIES_SPENT = 1
    REMOTE_INVALID_REQUEST = 2
    REMOTE_ACCESS = 3
    REMOTE_OPERATIONAL = 4
    UNEXPECTED_EVENT = 5
    WIMM_OVERFLOW = 6  # the peer had too many WriteIMMs in flight
    NO_RECEIVE = 7  # a WriteIMM arrived and no receive was posted
    ACCESS_VIOLATION = 8  # the peer wrote outside a region, or without the right key
    LOCAL = 9  # modify_qp to ERROR, or the world gave up


class EventKind(IntEnum):
    """What an Event tells."""

    EV_STATE = 0
    LOCAL_PORTS = 1
    PEER_PORTS = 2
    QP_ERROR = 3
