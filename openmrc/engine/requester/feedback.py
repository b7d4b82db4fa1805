"""Requester: processing of SACKs, NACKs and transport acknowledgements (MRC §7.4.5, Table 7-3)."""

from openmrc.core.jit import kernel, rare_kernel
from openmrc.core.memory import prefetch_row
from openmrc.core.serial import PSN_BITS, RCVD_BYTES_BITS, distance, extend
from openmrc.engine import lifecycle, messages, user_timeout
from openmrc.engine.congestion import qpcc, reordering, scheduler
from openmrc.engine.paths import ev_states, shares, silence
from openmrc.engine.requester import loss, probes, reports, retries
from openmrc.engine.responder.sacks import RCVD_UNIT
from openmrc.engine.state import clock
from openmrc.engine.state.machines import NackAction, nack_action
from openmrc.engine.state.queue_pairs import (
    may_be_answered,
    message_row,
    nominal_size,
    params_of,
    sent_row,
)
from openmrc.engine.state.tables import NONE, Cause, Engine, Inferred, Sent, SentState, WcStatus
from openmrc.units import NEVER
from openmrc.wire.codes import PathMark, Syndrome

NSCC_CC_TYPE = 0  # SETH.cc_type: a CC_STATE follows (MRC Table 7-14); other values are ignored
_AHEAD = 8  # packets
_HALF = 32
_LOW32 = (1 << 32) - 1


@kernel
def on_sack(engine: Engine, now: int, qp: int, packet: int) -> None:
    row = engine.qps[qp]
    arrived = engine.packets[packet]
    cack = extend(arrived.cack_psn, row.unack_psn - 1, PSN_BITS)
    if not may_be_answered(engine, qp, cack):
        row.malformed += 1
        return
    row.sacks_received += 1
    retries.on_heard(engine, now, qp)
    if row.dynamic_mpr and arrived.mpr > 0 and cack >= row.unack_psn - 1:  # not a reordered, older SACK
        row.mpr_dest = arrived.mpr
    rtt = _round_trip(engine, now, qp, packet, cack)
    _believe_copy(engine, qp, packet, cack)
    _settle_cumulative(engine, now, qp, cack)
    _settle_bitmap(engine, now, qp, cack + arrived.sack_offset, arrived.sack_bitmap)
    if arrived.is_probe_answer == 0:
        _settle_trigger(engine, now, qp, cack + arrived.ack_psn_offset)
    if cack == row.unack_psn - 1 and arrived.cc_type == NSCC_CC_TYPE and arrived.ooo_count == row.sacked_beyond:
        loss.on_complete_report(engine, now, qp)
    received = _newly_received(engine, qp, arrived.rcvd_bytes) if arrived.cc_type == NSCC_CC_TYPE else 0
    _drop_residue(engine, qp)
    marked = int(arrived.path_mark != PathMark.NONE)
    penalty = arrived.rcv_cwnd_pen if arrived.cc_type == NSCC_CC_TYPE else 0
    qpcc.on_ack(engine, now, row.peer, received, marked, rtt, penalty, arrived.restore_cwnd)
    if arrived.is_probe_answer == 1:
        probes.on_answer(engine, now, qp, packet)
    elif marked == 1:
        _blame_path(engine, now, qp, packet, cack)
    loss.on_evidence(engine, now, qp)
    reports.ask_if_needed(engine, now, qp)
    scheduler.wake(engine, qp)


@rare_kernel
def on_nack(engine: Engine, now: int, qp: int, packet: int) -> None:
    """Process a NACK: perform the actions of its row in NACK_ACTIONS."""
    row = engine.qps[qp]
    arrived = engine.packets[packet]
    row.nacks_received += 1
    action = nack_action(arrived.nack_reason)
    psn = extend(arrived.nack_psn, row.unack_psn, PSN_BITS)
    if action == 0 or psn < row.unack_psn or psn >= row.next_psn:
        row.malformed += 1
        return
    retries.on_heard(engine, now, qp)
    if action & NackAction.FAIL != 0:
        lifecycle.fail(engine, now, qp, Cause.UNEXPECTED_EVENT)
        return
    sent = sent_row(engine, qp, psn)
    if sent.state != SentState.IN_FLIGHT or _was_just_sent_again(engine, now, qp, packet, sent):
        return
    if action & NackAction.SKIP_PATH != 0 and engine.evs[sent.ev].value == arrived.reflected_entropy:
        ev_states.on_trimmed(engine, now, sent.ev)
    engine.ports[engine.endpoints[row.endpoint].port_base + engine.evs[sent.ev].port].requeued += 1
    loss.requeue(engine, qp, psn)
    qpcc.on_nack(engine, now, row.peer, nominal_size(sent.payload))
    if action & NackAction.SPEND_RETRY != 0:
        retries.on_failed(engine, now, qp, sent.sent_at)
    reports.ask_if_needed(engine, now, qp)
    scheduler.wake(engine, qp)


@kernel
def _was_just_sent_again(engine: Engine, now: int, qp: int, packet: int, sent: Sent) -> bool:
    """Return whether a NACK is about an earlier copy of a packet: no answer to the last one can be here yet.

    A switch that sends trimmed packets back answers sooner than the peer; the timestamp is that of the last copy then.
    """
    if sent.transmissions < 2 or now - sent.sent_at >= qpcc.shortest_round_trip(engine, engine.qps[qp].peer):
        return False
    stamp = clock.stamp(sent.sent_at, params_of(engine, qp).timestamp_unit)
    return bool(engine.packets[packet].tx_timestamp != stamp)


@kernel
def on_acknowledge(engine: Engine, now: int, qp: int, packet: int) -> None:
    """Process a transport acknowledgement: complete the messages it counts; a NAK fails the queue pair."""
    row = engine.qps[qp]
    arrived = engine.packets[packet]
    psn = extend(arrived.psn, row.unack_psn, PSN_BITS)
    count = extend(arrived.acked_messages, row.message_head, 24)
    is_refusal = arrived.syndrome != Syndrome.ACK
    if not may_be_answered(engine, qp, psn) or (is_refusal and psn < row.unack_psn) or count > row.message_current:
        row.malformed += 1
        return
    retries.on_heard(engine, now, qp)
    while row.message_head < count:
        message = message_row(engine, qp, row.message_head)
        # A message that the responder has completed has arrived; the SACK may have been lost.
        _settle_cumulative(engine, now, qp, message.first_psn + message.packets - 1)
        messages.complete_oldest(engine, qp, WcStatus.SUCCESS)
        row.solicit_psn = NONE  # the next post may overwrite the message that would be repeated
        retries.on_progress(engine, now, qp)
    _drop_residue(engine, qp)
    if is_refusal:
        lifecycle.fail(engine, now, qp, _cause(arrived.syndrome))
        return
    scheduler.wake(engine, qp)


@kernel
def _cause(syndrome: int) -> int:
    match syndrome:
        case Syndrome.INVALID_REQUEST:
            return Cause.REMOTE_INVALID_REQUEST.value
        case Syndrome.REMOTE_ACCESS_ERROR:
            return Cause.REMOTE_ACCESS.value
        case _:
            return Cause.REMOTE_OPERATIONAL.value


@kernel
def _settle_cumulative(engine: Engine, now: int, qp: int, cack: int) -> None:
    row = engine.qps[qp]
    if row.unack_psn > cack:
        return
    while row.unack_psn <= cack:
        _mark_delivered(engine, now, qp, row.unack_psn)
        row.unack_psn += 1
        row.sacked_beyond -= 1
    row.highest_sacked = max(row.highest_sacked, cack)
    row.lost_cursor = max(row.lost_cursor, row.unack_psn)
    retries.on_progress(engine, now, qp)


@kernel
def _settle_bitmap(engine: Engine, now: int, qp: int, base: int, bitmap: int) -> None:
    row = engine.qps[qp]
    for half in range(2):
        bits = (bitmap >> (half * _HALF)) & _LOW32
        psn = base + half * _HALF
        while bits != 0:
            if bits & 0xFF == 0:
                bits >>= 8
                psn += 8
                continue
            if bits & 1 == 1 and row.unack_psn <= psn < row.next_psn:
                _mark_delivered(engine, now, qp, psn)
                row.highest_sacked = max(row.highest_sacked, psn)
            bits >>= 1
            psn += 1


@kernel
def _settle_trigger(engine: Engine, now: int, qp: int, psn: int) -> None:
    """Acknowledge the packet that triggered the SACK: its bit may lie outside the bitmap."""
    row = engine.qps[qp]
    if row.unack_psn <= psn < row.next_psn:
        _mark_delivered(engine, now, qp, psn)
        row.highest_sacked = max(row.highest_sacked, psn)


@kernel
def _mark_delivered(engine: Engine, now: int, qp: int, psn: int) -> None:
    """Record that a packet has been delivered."""
    row = engine.qps[qp]
    sent = sent_row(engine, qp, psn)
    if sent.state == SentState.ACKED:
        return
    prefetch_row(engine.evs, sent_row(engine, qp, psn + _AHEAD).ev)  # with many EVs it is in no near cache
    if sent.state == SentState.LOST:
        row.lost_count -= 1
        engine.ports[engine.endpoints[row.endpoint].port_base + engine.evs[sent.ev].port].false_losses += 1
        if sent.inferred == Inferred.OF_EV:
            engine.ev_failures[sent.ev].false_losses += 1
        # Taken out too early; the responder's count does it again.
        loss.count_in_flight(engine, qp, nominal_size(sent.payload))
        ev_states.on_arrived(engine, now, qp, psn)
    elif _is_of_an_earlier_copy(engine, now, row.peer, sent):
        row.spurious += 1
        reordering.on_retransmitted_in_vain(engine, now, row.peer)
        ev_states.on_arrived(engine, now, qp, psn)
    else:
        ev_states.on_acked(engine, sent.ev)
    if psn < row.highest_sacked:
        _note_overtaken(engine, now, qp, psn)
    # After a retransmission it is ambiguous which copy arrived, unless the last one was sent a round trip ago.
    if sent.transmissions == 1 or now - sent.sent_at >= _shortest_answer(engine, qp):
        row.newest_delivered = max(row.newest_delivered, sent.sent_at)
        silence.on_delivered(engine, now, sent.ev, sent.sent_at)
        if sent.transmissions == 1 and params_of(engine, qp).share_by_delay:
            shares.on_delivered(engine, now, sent.ev, sent.sent_at)
        retries.on_answered(engine, row.peer, sent.sent_at)
    sent.state = SentState.ACKED
    row.sacked_beyond += 1


@kernel
def _shortest_answer(engine: Engine, qp: int) -> int:
    """Return the time (ps) before which no answer comes; NEVER while nothing is known of the path."""
    peer = engine.peers[engine.qps[qp].peer]
    return int(NEVER if peer.srtt == 0 and params_of(engine, qp).base_rtt_followed else peer.base_rtt)


@kernel
def _note_overtaken(engine: Engine, now: int, qp: int, psn: int) -> None:
    """Record by how much a packet was overtaken by the newest reported, if both were sent once."""
    row = engine.qps[qp]
    late, newest = sent_row(engine, qp, psn), sent_row(engine, qp, row.highest_sacked)
    if late.transmissions == 1 and newest.transmissions == 1:
        reordering.on_overtaken(engine, now, row.peer, newest.sent_at - late.sent_at)


@kernel
def _is_of_an_earlier_copy(engine: Engine, now: int, peer: int, sent: Sent) -> bool:
    """Return whether an acknowledgement came sooner after a retransmission than any answer of this peer can.

    The retransmission was in vain then (RFC 3522 decides the same by timestamps, which a bitmap does not have).
    """
    return sent.inferred != Inferred.NO and now - sent.sent_at < qpcc.shortest_round_trip(engine, peer)


@kernel
def _believe_copy(engine: Engine, qp: int, packet: int, cack: int) -> None:
    """Believe a SACK that it answers the last copy of a packet, however soon: few round trips are known at first."""
    row = engine.qps[qp]
    arrived = engine.packets[packet]
    psn = cack + arrived.ack_psn_offset
    if arrived.retransmitted == 1 and arrived.is_probe_answer == 0 and row.unack_psn <= psn < row.next_psn:
        sent_row(engine, qp, psn).inferred = Inferred.NO


@kernel
def _newly_received(engine: Engine, qp: int, rcvd_bytes: int) -> int:
    """Return the bytes that left the network since the last SACK, and take them out of flight (MRC §8.4).

    No more than are in flight, rounding and packets declared lost allowed for: a count that leaps opens no window.
    """
    row = engine.qps[qp]
    units = distance(rcvd_bytes, row.rcvd_bytes_seen, RCVD_BYTES_BITS)
    if units <= 0:
        return 0
    row.rcvd_bytes_seen = rcvd_bytes
    most = row.inflight + RCVD_UNIT + row.lost_count * nominal_size(row.path_mtu)
    loss.count_in_flight(engine, qp, -max(min(units * RCVD_UNIT, most), 0))
    return units * RCVD_UNIT


@kernel
def _drop_residue(engine: Engine, qp: int) -> None:
    """Leave nothing in flight when all is acknowledged: reports may have been lost."""
    row = engine.qps[qp]
    if row.unack_psn == row.next_psn and row.inflight > 0:
        loss.count_in_flight(engine, qp, -row.inflight)


@kernel
def _round_trip(engine: Engine, now: int, qp: int, packet: int, cack: int) -> int:
    """Return a valid RTT sample (ps) or 0.

    Valid: the packet named was sent once, or twice and the SACK says it was the second, and the timestamp is its own.
    A report that a trimmed packet asked for names the left edge, and the time of a header that overtook a full queue.
    The sample is taken from the record of the packet: timestamps wrap, in the finer unit after 8.4 ms. Beyond half of
    that only the first answer for a packet counts; a copy of it may come at any time.
    """
    row = engine.qps[qp]
    arrived = engine.packets[packet]
    psn = cack + arrived.ack_psn_offset
    if arrived.is_probe_answer == 1 or psn >= row.next_psn or psn < row.next_psn - row.sent_mask - 1:
        return 0
    sent = sent_row(engine, qp, psn)
    if sent.transmissions > 1 and arrived.retransmitted == 0 and params_of(engine, qp).base_rtt_followed:
        return _least_round_trip(engine, now, qp, sent)
    if sent.transmissions != 1 + arrived.retransmitted or sent.state == SentState.FREE:
        return 0
    unit = params_of(engine, qp).timestamp_unit
    if arrived.tx_timestamp != clock.stamp(sent.sent_at, unit):
        return 0
    if sent.state != SentState.IN_FLIGHT and not clock.is_unambiguous(now - sent.sent_at, unit):
        return 0
    return max(now - sent.sent_at + sent.sent_at % clock.tick(unit), 1)  # as the timestamp says it, cut off to its unit


@rare_kernel
def _least_round_trip(engine: Engine, now: int, qp: int, sent: Sent) -> int:
    """Return how long (ps) the answer to the first copy of a packet took at least, if sent again too early; or 0.

    No copy is sent again sooner than the peer may be silent for, while nothing is known of the path, or than a round
    trip. Without these samples a path longer than the RTO would have none: every packet is sent again before its answer
    comes (RFC 3522 tells the copies apart by timestamps, as the SACK does by its bit).
    """
    if sent.inferred == Inferred.NO or (sent.state != SentState.IN_FLIGHT and sent.state != SentState.LOST):
        return 0
    peer = engine.qps[qp].peer
    each = engine.peers[peer].srtt
    if each == 0:
        each = user_timeout.unanswered_rto(engine, qp)
    return int(now - sent.sent_at + (sent.transmissions - 1) * each)


@rare_kernel
def _blame_path(engine: Engine, now: int, qp: int, packet: int, cack: int) -> None:
    row = engine.qps[qp]
    arrived = engine.packets[packet]
    psn = cack + arrived.ack_psn_offset
    ev = NONE
    if row.next_psn - row.sent_mask - 1 <= psn < row.next_psn:
        ev = sent_row(engine, qp, psn).ev
    if ev < row.ev_base or ev >= row.ev_base + row.ev_count or engine.evs[ev].value != arrived.reflected_entropy:
        ev = ev_states.find(engine, qp, arrived.reflected_entropy)
    if ev != NONE:
        ev_states.on_marked(engine, now, ev, int(arrived.path_mark >= PathMark.ALWAYS_SKIP))
