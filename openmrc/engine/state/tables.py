"""State of the engine: one row type per kind of object, and `Engine`, which holds all tables.

A simulation of 131,072 endpoints and a live process with one use the same tables in different sizes. Rows refer to each
other by index; NONE is no row. The slices of an endpoint are fixed when the tables are built, so nothing is allocated
afterwards and threads can process disjoint sets of endpoints.

Time is picoseconds, size is bytes, masks of ports have bit n for port n counted from 0.
PSNs, MSNs and RQMSNs are kept as numbers that never wrap; only packets carry the low bits.
"""

from enum import IntEnum
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openmrc.core.rows import INSTANT, Bool, Float, Instant, Int, Int8, Int16, Int32, Table, UInt32
from openmrc.wire.packet import Packet

NONE = -1


class Params:
    """Tunables, including those that the public sources leave open. Defaults: `params.py`."""

    # Acknowledging (MRC §7.5.2)
    sack_threshold: Int  # bytes received that trigger a SACK
    sack_minimum: Int  # bytes that a packet counts at least
    ack_every: Int  # packets after which a transport ACK is sent without a completed message
    refuse_out_of_window: Bool  # answer with NACK PSN_OOR_WINDOW; else drop silently
    always_skip_packets: Int  # packets on one EV before ALWAYS_SKIP may be reported; 0: never
    always_skip_percent: Int  # share of marked packets above which the path is persistently bad
    receiver_penalty: Int  # rcv_cwnd_pen sent in every SACK, 0..127
    answers_together: Bool  # answers that leave in a row take the same EV, where it serves
    # Losing (MRC §7.4)
    trimming: Bool  # switches trim, so a hole is never due to congestion
    loss_threshold: Int  # losses on one EV before it is ASSUMED_BAD
    gap_packets: Int  # without trimming: packets received above a hole before it counts as lost
    loss_delay_floor: Int  # ps, least loss delay
    tail_probe: Bool  # send a reliability probe when acknowledgements stop
    silent_timeouts: Int  # timeouts that a peer may take which answers nothing at all
    # Paths (MRC §9.3)
    silence: Bool  # leave a port on which EVs fail in a row
    ev_burst: Int  # bytes, nominal, in a row on one EV, so that sockets can batch them; 0: each packet takes the next
    share_by_delay: Bool  # ports that deliver later than others get less
    probe_interval: Int  # ps, first probe of an ASSUMED_BAD EV
    probe_interval_max: Int  # ps, cap of its doubling
    outage_probe_interval: Int  # ps, the same for a silent port while no other delivers
    probe_successes: Int  # consecutive answers that restore an EV
    reverse_probe_interval: Int  # ps between EV probes of a responder that has nothing to send; 0: none
    port_status_interval: Int  # ps between Port Status Updates until one is answered
    port_remap_delay: Int  # ps until a change of a local port takes effect
    timestamp_unit: Int  # tsr: 0 = 128 ns, 1 = 1 us
    # Congestion control (MRC §8; UEC 1.0.3 §3.6.13)
    algorithm: Int  # congestion.Algorithm
    link_rate: Int  # bits/s, all ports of the NIC together
    base_rtt: Int  # ps, unloaded, longest path
    base_rtt_measured: Bool  # lower base_rtt to the least seen
    base_rtt_followed: Bool  # measure it again when no round trip comes near it
    target_delay: Int  # ps of queueing
    initial_cwnd: Int  # bytes
    max_cwnd: Int  # bytes, 0: 1.5 x BDP of the base RTT
    bound_by_delivery: Bool  # no more than twice what the network is known to deliver
    min_cwnd: Int  # bytes
    alpha: Float  # bytes per ps of head-room: proportional increase
    fi: Float  # bytes: fair increase
    fi_scale: Float  # share of acknowledged bytes: fast increase
    fast_delay: Int  # ps of queueing below which fast increase may run
    eta: Float  # bytes per adjust period
    gamma: Float
    max_md_jump: Float  # least factor of one multiplicative decrease
    disable_qa: Bool
    qa_gate: Int  # quick adapt acts when achieved < max_cwnd >> qa_gate
    qa_threshold: Int  # ps of queueing that triggers quick adapt
    adjust_bytes: Int
    adjust_period: Int  # ps


class Endpoint:
    """A NIC: its ports, peers and queue pairs, and the rings of its control packets, completions and events."""

    params: Int  # row of Params
    address: Int  # number of this NIC, as peers know it
    random: Int  # state of core.rng
    port_base: Int
    port_count: Int
    ports_up: Int  # mask: usable for sending now
    peer_base: Int
    peer_count: Int
    qp_base: Int
    qp_count: Int
    qp_block_base: Int
    qp_block_count: Int
    qpn_slot_mask: Int  # bits of a QPN that find its row; the others tell incarnations apart
    region_base: Int
    region_count: Int
    control_base: Int
    control_mask: Int
    control_head: Int
    control_tail: Int
    data_ahead: Int  # data packets that leave before the control packets that wait
    answered_qp: Int  # queue pair of the last answer since the control ring was empty, or NONE; if answers go together
    answered_ev: Int  # the EV that it took
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
    deadline: Instant  # ps, no later than the earliest deadline of its rows
    peer_deadline: Instant  # ps, no later than the earliest deadline of its peers
    remap_at: Instant  # ps, when ports_wanted takes effect; NEVER: it has
    ports_wanted: Int  # mask
    doubted_ports: Int  # mask: silent towards one peer at least
    silent_ports: Int  # mask: silent towards two
    # counters
    abandoned: Int  # packets that waited for retransmission when their queue pair ended
    unknown_qp: Int
    wrong_source: Int
    unknown_opcode: Int
    contradictions: Int  # Port Status Updates that arrived on a port which they report as down
    control_dropped: Int  # control ring full
    events_dropped: Int  # event ring full
    completions_lost: Int  # completion ring full: a defect of ours, the world must end the endpoint


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
    false_losses: Int  # of lost and requeued packets, those that had arrived before they were sent again
    requeued: Int  # sent and asked for again by a NACK
    control_sent: Int
    control_received: Int
    silences: Int  # times that a queue pair found it silent
    silent_peer: Int  # while doubted: the first peer towards which it was found silent
    silent_since: Instant  # ps, send time of the last packet whose loss made it silent


class Peer:
    """A remote NIC: which of its ports work, and the window (QPCC) that all queue pairs to it share (MRC §8).

    Cache lines again, for the same reason: one for every packet, two more for an answer.
    """

    # For every packet
    endpoint: Int32
    address: Int32  # number of that NIC
    ready_tail: Int32  # last of the ring of queue pairs with something to send
    ready_count: Int32
    next_ready: Int32  # next peer in the endpoint's ring
    listed: Bool
    params: Int16  # row of Params: how the window towards it is controlled
    ports_up: Int  # mask, by its Port Status Updates
    inflight: Int  # bytes, nominal
    cwnd: Float  # bytes
    max_cwnd: Float  # bytes
    heard_at: Instant  # ps, last answer
    # For every answer: round trip and NSCC
    srtt: Int  # ps, smoothed; 0: none yet
    rttvar: Int  # ps
    reordering: Int  # ps, how much later a packet was sent that overtook another; fades
    reordering_at: Instant  # ps, when a packet was last overtaken by about as much, or that last faded
    base_rtt: Int  # ps
    least_rtt: Int  # ps, the least sample; NEVER: none yet
    newest_answered: Instant  # ps, send time of the most recently sent packet or probe known to have arrived
    achieved: Int  # bytes in this quick-adapt period
    received: Int  # bytes since the last adjustment
    average_delay: Float  # ps
    inc_bytes: Float
    saved_cwnd: Float  # window before a receiver penalty with restore; 0: none
    adjusted_at: Instant  # ps
    fast_bytes: Int  # bytes acknowledged with almost no delay
    qa_end: Instant  # ps; 0: first period, not evaluated
    is_fast: Bool
    qa_trigger: Bool  # a trim or loss was seen in this period
    wide_cwnd: Int32  # bytes, the window before `is_narrow`
    # Seldom
    bytes_to_ignore: Int
    bytes_ignored: Int
    eta_at: Instant  # ps
    decreased_at: Instant  # ps
    qa_began: Instant  # ps
    qa_trimmed: Int  # bytes in this period
    delivery_rate: Float  # bytes/ps that the network is known to deliver; 0: not known yet
    resumed_at: Instant  # ps, first answer after a pause of the peer
    base_timer: Instant  # ps, when a round trip was last near the base, 0: none yet; while `is_narrow`: its end
    qa_blocked: Bool  # the window kept a packet back in this period
    is_narrow: Bool  # the window is at its least, to measure the base again
    status_pending: Bool  # our Port Status Update is unanswered
    check_pending: Bool  # an answer to a probe of a port that the peer reports as down counts
    narrow_us: Int32  # us, the least sample while `is_narrow`; 0: none yet
    # Port Status Updates of this peer
    update_stamp: Int  # tx_timestamp of the last one that counted
    update_at: Instant  # ps, when it arrived
    # Port Status Updates to this peer
    status_deadline: Instant  # ps
    status_attempts: Int32
    # Probes of the ports that it reports as down
    check_attempts: Int32
    check_deadline: Instant  # ps
    # counters
    quick_adapts: Int32
    decreases: Int32


class Deadline(IntEnum):
    """The timers of a queue pair, in the order in which `deadlines` serves them."""

    REORDERING = 0  # a hole has outlasted what reordering explains (RFC 8985): `loss.scan`
    RTO = 1  # nothing acknowledged what was sent for the retransmission timeout (RFC 6298): `requester.on_rto`
    PTO = 2  # answers stopped after the last packet (RFC 8985, RFC 9002): `requester.on_pto` sends a probe
    PROBE = 3  # bad EVs: `probes.send_due`
    REVERSE = 4  # control paths: `reverse.on_deadline`


DEADLINES = len(Deadline)
QPS_PER_BLOCK = 8


class QpBlock:
    """Neighbouring queue pairs of an endpoint: of many, `deadlines` reads only those of a block in which one is due."""

    deadline: Instant  # ps, no later than the earliest deadline of its queue pairs


class QueuePairRow:
    """Both halves of one connection: the requester (MRC Table 7-4) and the responder (Table 7-5).

    Eleven cache lines. With many connections a packet finds none of them in a near cache, so the fields are ordered by
    use: `prefetch` fetches the first four for data of the peer, the third to the eighth for an answer or to send.
    """

    # Responder, for every packet
    expected_psn: Int  # ePSN = cack_psn + 1
    highest_received: Int
    lowest_unsacked: Int  # lowest received and not yet reported
    received_bytes: Int  # nominal, ever
    received_packets: Int
    tracker_base: Int32  # words of 32 PSNs
    sack_queued: Bool  # each flag before a number of 32 bits: side by side they would shift all lines behind them
    tracker_mask: Int32  # PSNs - 1
    ack_queued: Bool
    ooo_count: Int32  # received beyond the first hole
    ack_requested: Bool  # a request arrived while there were holes (prev_ar)
    reverse_left: Int8  # EV probes that may still follow the last arrival unanswered
    sack_count: Int32  # bytes since the last SACK (sack_trigger_cnt)
    since_ack: Int32  # packets since the last transport ACK
    completed_messages: Int  # whole messages behind the left edge
    acked_messages: Int  # of those, the peer was told of so many
    marked_arrivals: Int
    sacks_sent: Int
    acks_sent: Int
    nak_syndrome: Int32  # NAK to repeat, or 0
    message_packets: Int32  # of the message at the left edge, arrived so far
    last_probe_at: Instant  # ps, of the requester (`last_probe`); here, nothing behind it moves
    # Both, for every packet
    endpoint: Int32
    qpn: Int32  # 24 bits
    dest_qpn: Int32
    peer: Int32
    state: Int32  # states.QpState
    path_mtu: Int32  # bytes
    rotation_base: Int32
    rotation_count: Int32  # = ports of the endpoint
    heard_rotation: Int32  # rotation of the last packet from the peer
    control_rotation: Int32  # rotation of the last control packet sent in turn
    mpr: Int32  # ours to the peer, unit 128 PSNs
    access: Int32  # what the peer may do: regions.Access
    pd: Int32  # protection domain: which regions it may reach
    dynamic_mpr: Bool  # both sides agreed
    last_probes: Int16  # on its EV, since it became the last one
    heard_ports: Int32  # mask: packets arrived since the last control packet was sent there
    silent_ports: Int32  # mask: `silence`
    timeout: Int  # ps
    heard_at: Instant  # ps, last answer of the peer
    deadline: Instant  # ps, no later than the earliest of `deadlines`
    deadlines: Annotated[NDArray[np.int64], (np.int64, (DEADLINES,)), INSTANT]  # ps, by Deadline; NEVER: not armed
    # Requester, for every packet
    next_psn: Int  # the next new packet
    unack_psn: Int  # lowest PSN not acknowledged cumulatively
    message_head: Int  # oldest not completed
    message_current: Int  # being cut into packets
    message_tail: Int  # next to be posted
    sent_base: Int
    sent_mask: Int32
    message_base: Int32
    message_mask: Int32
    lost_count: Int32  # packets that wait for retransmission
    solicit_psn: Int  # packet to repeat because a transport ACK is missing, or NONE
    inflight: Int  # bytes, nominal
    highest_sacked: Int
    newest_delivered: Instant  # ps, send time of the most recently sent packet known to have arrived
    next_ready: Int32
    listed: Bool
    last_probe_is_out: Bool  # unanswered
    last_probe_ev: Int16  # an offset from ev_base, or NONE
    mpr_dest: Int32  # the peer's to us, unit 128 PSNs
    packets_cut: Int32  # of the current message
    rcvd_bytes_seen: Int32  # unit 256 B, as on the wire
    sacked_beyond: Int32  # packets known to have arrived beyond the left edge
    retries: Int32  # attempts that failed since the last progress
    loss_in_doubt: Int16  # Doubt
    tail_probes: Int16  # sent since the last progress; those beyond `linear_count` double the PTO
    lost_cursor: Int  # no PSN below it waits
    deficit: Int  # bytes that deficit round robin still owes
    burst_left: Int  # bytes, nominal, that may still follow on burst_ev
    complete_at: Instant  # ps, last report after which that was all that had arrived
    scanned_psn: Int  # the loss timer is set for every hole below it
    burst_ev: Int32
    rotation_cursor: Int32
    trim_nack_dest: Bool  # the peer answers trimmed packets
    wanted_evs: Int16  # active EVs of a rotation when none is bad, if it has as many
    round_ports: Int32  # mask: used since all working ports had been used
    max_wimm: Int32  # WriteIMMs we keep in flight
    max_wimm_dest: Int32  # WriteIMMs the peer may keep in flight to us
    loss_probes: Int16  # such probes, since the last complete report
    reverse_cursor: Int16
    unasked: Int32  # bytes, nominal, sent since the last request for a SACK
    sent_packets: Int
    sent_bytes: Int
    sacks_received: Int
    wimm_next: Int  # RQMSN of the next WriteIMM to start
    wimm_done: Int  # WriteIMMs completed
    retransmitted: Int
    inferred_losses: Int
    # Seldom
    user_timeout: Int  # ps without progress until ERROR; 0: as long as the attempts take
    no_progress_since: Instant  # ps, when the user timeout began; time in which the endpoint did not run is added
    progress_seen: Int  # packets known to have arrived and writes completed, when that was last looked at
    attempt_at: Instant  # ps, when the last attempt failed
    linear_count: Int16
    exponential_count: Int16  # INFINITE_RETRIES: no limit
    sq_signal_all: Bool
    cause: Int16  # why it is in ERROR: Cause
    first_psn: Int32
    timeouts: Int32
    ev_base: Int32
    ev_count: Int16  # of all rotations
    mark_stats_mask: Int16
    pending_base: Int32
    pending_mask: Int32
    receive_base: Int32
    receive_mask: Int32
    mark_stats_base: Int32
    good_evs: Int16  # GOOD or SKIP
    min_active_evs: Int16
    loss_asked_at: Instant  # ps, when the requester began to wait for such a report, or sent a probe for it
    nak_psn: Int  # the packet it refuses
    expected_rqmsn: Int  # next WriteIMM to complete
    receive_head: Int  # next posted receive to use
    receive_tail: Int
    spurious: Int  # packets sent again that had arrived, as far as can be told
    nacks_received: Int
    duplicates: Int
    out_of_window: Int
    trimmed_arrivals: Int
    nacks_sent: Int
    probes_sent: Int
    probes_answered: Int
    malformed: Int  # well-formed, but implausible in this connection


class PortRotation:
    """The EVs that one queue pair has on one port: a rotation of active ones and the reserve behind it.

    Half a cache line; what only a failed port needs is in `PortReturn`.
    """

    newest_delivered: Instant  # ps, send time of the most recently sent packet or probe known to have arrived
    qp: Int32
    ev_base: Int32  # EVs, and slots, of this rotation
    total: Int16  # active and reserve
    active: Int16  # slots[0:active] are in rotation
    cursor: Int16
    reverse: Int16  # EV for control packets, an offset from ev_base
    reverse_candidate: Int16  # EV of the probe that is out, likewise
    port: Int8
    lost_in_a_row: Int8  # EVs, since something arrived
    reverse_ok: Bool
    reverse_probe: Bool  # an EV probe is unanswered
    is_slow: Bool  # its share of a turn is less than others have, see `PortShare`


class PortReturn:
    """When the port of a rotation came back, and its probes while it is silent.

    The row of a port that did not fail is zero, and so takes no memory.
    """

    risen_at: Instant  # ps, here or at the peer
    check_at: Instant  # ps, next probe of a silent port; valid while it is one
    check_gap: Int  # ps to the probe after


class PortShare:
    """What a rotation's port gets of a turn, where shares follow the delay of ports; else zero, and takes no memory."""

    judged_at: Instant  # ps, when its share was last judged
    delay: Int32  # 2**20 ps, about a microsecond: from sending to the report, averaged; 0: not known
    credit: Int32  # bytes saved up by a port that is slow
    share: Int32  # of a turn while it is slow, in units of 1 / shares.FULL


class RotationSlot:
    """A position in a rotation: a shuffle touches no EV."""

    ev: Int16  # offset from the rotation's ev_base


class Ev:
    """An entropy value of a queue pair, and the state of its path: a quarter of a cache line.

    A connection has tens of them, most of which it seldom uses, so what they need only after a loss is in `EvFailure`.
    Counters hold what has not been carried there yet (`paths.on_sent`).
    """

    value: UInt32
    rotation: Int32
    sent: Int16
    acked: Int16
    marked: Int8
    trimmed: Int8
    port: Int8
    state: Int8  # states.EvState


class EvFailure:
    """The losses of an EV, its last failure and its probes, and the counts that its `Ev` has carried here.

    The row of an EV that neither lost nor was probed is zero, and so takes no memory.
    """

    failed_at: Instant  # ps
    restored_at: Instant  # ps
    probe_at: Instant  # ps, of an ASSUMED_BAD EV
    probe_gap: Int  # ps to the probe after
    probe_sent_at: Instant  # ps
    lost: Int
    sent: Int  # these four beside those of `Ev`
    acked: Int
    marked: Int
    trimmed: Int
    lost_psn: Int  # for whose loss it was left, NONE: for another reason
    acked_at_loss: Int  # packets acknowledged until the last loss: `losses` counts only while there are no more
    probes: Int32  # without those that `QueuePairRow` still counts, likewise the next and `probe_sent_at`
    probe_is_out: Bool  # unanswered
    losses: Int8  # since the last success
    successes: Int8  # probes answered in a row
    relapses: Int8  # failures soon after the EV was restored, in a row
    false_losses: Int32  # of `lost`, packets that had arrived before they were sent again


class WriteRequest:
    """An RDMA write to post (IBTA volume 1, 10.7); the caller fills it."""

    wr_id: Int  # comes back in the completion
    local: Int  # address of the payload in the caller's memory
    length: Int  # bytes
    va: Int  # address at the peer
    r_key: Int
    immediate: Int  # 32 bits
    has_immediate: Int  # 1: a WriteIMM, it takes a posted receive of the peer
    solicited: Int  # 1: the peer's completion is solicited
    signaled: Int  # 1: a success is reported too
    continues: Int  # 1: the next write is part of the same request, and reports what becomes of both
    l_key: Int  # key of the region that the payload lies in; 0: memory that is never deregistered


class Message(WriteRequest):
    """A posted write, from post to completion."""

    has_immediate: Int8  # these five as in the request, which programs fill
    solicited: Int8
    signaled: Int8
    continues: Int8
    l_key: UInt32
    status: Int8  # WcStatus of a request whose memory is gone
    packets: Int32
    first_psn: Int
    rqmsn: Int


class Sent:
    """The requester's record of a PSN."""

    sent_at: Instant  # ps
    message: Int32  # slot of its message
    ev: Int32  # row
    payload: Int32  # bytes
    state: Int8  # SentState
    transmissions: Int8
    inferred: Int8  # Inferred, of its last loss
    asked: Int8  # mask of Asked


class Tracker:
    """32 PSNs of the responder's window: which arrived, which begin or end a message, which carry an immediate."""

    arrived: UInt32
    first: UInt32
    last: UInt32
    immediate: UInt32


class EvMarkStats:
    """Mark counts of an EV at the responder, to detect a persistently bad path."""

    entropy: Int
    packets: Int
    marked: Int
    since: Instant  # ps


class PendingImmediate:
    """A WriteIMM that waits for earlier packets."""

    immediate: Int
    length: Int
    solicited: Int
    present: Bool


class PostedReceive:
    wr_id: Int


class Control:
    """A queued control packet; what it reports is read when it is sent."""

    psn: Int  # PSN that it answers (not wrapped), or the probe_id
    entropy: Int  # to reflect; of probes: to send on
    tx_timestamp: Int
    mask: Int
    qp: Int32  # or NONE for endpoint operations
    peer: Int32
    ev: Int32  # EV row to send on, or NONE
    opcode: Int16
    reason: Int16  # NackReason, Syndrome, EndpointOp
    port: Int8  # to send on, or NONE
    mark: Int8
    retransmitted: Int8
    timestamp_unit: Int8


class Region:
    """A memory region that peers may write."""

    r_key: Int  # 0: free
    va: Int
    length: Int
    access: Int
    pd: Int
    local: Int  # address of byte 0, for the world


class Completion:
    """Completion of a posted request."""

    kind: Int  # CompletionKind
    qp: Int
    wr_id: Int
    status: Int  # WcStatus
    length: Int
    immediate: Int
    has_immediate: Int
    solicited: Int


class Event:
    """State change of a path, a port or a queue pair."""

    kind: Int  # EventKind
    at: Instant  # ps
    qp: Int
    peer: Int
    port: Int
    entropy: Int
    state: Int  # new EvState, or mask, or Cause; of a port 1: silent, 0: no longer; or the number of a request
    cause: Int  # EvEvent, or the round trip of a request (ns)


class Engine(NamedTuple):
    """All tables; `packets` belongs to the caller."""

    params: Table[Params]
    endpoints: Table[Endpoint]
    ports: Table[Port]
    peers: Table[Peer]
    qps: Table[QueuePairRow]
    qp_blocks: Table[QpBlock]
    rotations: Table[PortRotation]
    port_returns: Table[PortReturn]  # by rotation
    port_shares: Table[PortShare]  # by rotation
    slots: Table[RotationSlot]
    evs: Table[Ev]
    ev_failures: Table[EvFailure]  # by EV
    messages: Table[Message]
    sent: Table[Sent]
    tracker: Table[Tracker]
    mark_stats: Table[EvMarkStats]
    pending_immediates: Table[PendingImmediate]
    receives: Table[PostedReceive]
    control: Table[Control]
    regions: Table[Region]
    completions: Table[Completion]
    events: Table[Event]
    packets: Table[Packet]


class Doubt(IntEnum):
    """What a queue pair waits for before it declares a packet lost."""

    NONE = 0
    OVERTAKING = 1  # a report that may show by how much the packet was overtaken; its loss delay has not passed
    REPORT = 2  # any complete report made after its loss delay


class SentState(IntEnum):
    """State of a PSN at the requester."""

    FREE = 0
    IN_FLIGHT = 1
    LOST = 2  # waits for retransmission
    ACKED = 3


class Inferred(IntEnum):
    """How the last loss of a packet was found."""

    NO = 0  # a NACK reported it, or there was none
    YES = 1
    OF_EV = 2  # and it counts against its EV


class Asked(IntEnum):
    """What has asked for a SACK of a packet."""

    BY_ITSELF = 1  # its own ack_req: the responder then also reports at once when the last hole before it is filled
    BY_PROBE = 2  # a probe that was sent after it: answered once


class CompletionKind(IntEnum):
    """Queue that a completion belongs to."""

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
    """Reason why a queue pair went to ERROR."""

    NONE = 0
    USER_TIMEOUT = 1  # no progress for that long (RFC 5482)
    REMOTE_INVALID_REQUEST = 2
    REMOTE_ACCESS = 3
    REMOTE_OPERATIONAL = 4
    UNEXPECTED_EVENT = 5
    WIMM_OVERFLOW = 6  # the peer had too many WriteIMMs in flight
    NO_RECEIVE = 7  # a WriteIMM arrived and no receive was posted
    ACCESS_VIOLATION = 8  # the peer wrote outside a region, or without the right key
    LOCAL = 9  # modify_qp to ERROR, or the caller gave up
    LOCAL_PROTECTION = 10  # the memory of an open write was deregistered


class EventKind(IntEnum):
    EV_STATE = 0
    LOCAL_PORTS = 1
    PEER_PORTS = 2
    QP_ERROR = 3
    SILENT_PORT = 4
    ENDPOINT_RESPONSE = 5  # to a request of a controller
