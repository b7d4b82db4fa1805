"""Requester: selection and transmission of data packets (MRC §6.2, §7.4.4).

Retransmissions precede new data, oldest first, on another EV. The windows of the responder (MPR) and of the peer (QPCC)
apply to both.
"""

from openmrc.core import ring
from openmrc.core.jit import kernel, rare_kernel
from openmrc.core.serial import MSN_BITS, PSN_BITS
from openmrc.engine import lifecycle, user_timeout
from openmrc.engine.congestion import qpcc, scheduler
from openmrc.engine.paths import ev_states, spray
from openmrc.engine.requester import feedback, loss, prefetch, probes, reports, retries
from openmrc.engine.state import clock, timers
from openmrc.engine.state.queue_pairs import (
    has_new,
    last_sent,
    message_row,
    nominal_size,
    params_of,
    round_trip,
    sent_row,
    wants_to_send,
    window_end,
)
from openmrc.engine.state.tables import NONE, Asked, Cause, Deadline, Engine, Inferred, SentState
from openmrc.units import NEVER
from openmrc.wire.codes import Opcode, TrafficClass

SENT = 1
BLOCKED = 0  # the peer's window is closed, or its queue pairs have nothing to send
NO_PATH = -1  # something could be sent, but on no port that is free now

_PSN_MASK = (1 << PSN_BITS) - 1
_MSN_MASK = (1 << MSN_BITS) - 1
_MOST_DOUBLINGS = 20  # of a PTO, which is at most seconds
_MOST_PROBES = 1000  # that are counted
_REPORTS = 16  # of a window, ours: a window of one BDP then loses less than 5 % of its rate to unreported packets
_BURSTS = 4  # of a window, at least, where bursts are long


@kernel
def on_answer(engine: Engine, now: int, qp: int, packet: int) -> None:
    """Process a SACK, NACK or transport acknowledgement."""
    match engine.packets[packet].opcode:
        case Opcode.SACK:
            feedback.on_sack(engine, now, qp, packet)
        case Opcode.NACK:
            feedback.on_nack(engine, now, qp, packet)
        case Opcode.ACKNOWLEDGE:
            feedback.on_acknowledge(engine, now, qp, packet)
        case _:
            engine.endpoints[engine.qps[qp].endpoint].unknown_opcode += 1


@kernel
def next_packet(engine: Engine, now: int, endpoint: int, free_ports: int, packet: int) -> int:
    """Fill the next data packet and return 1; 0: none may leave now.

    Queue pairs that have not used a free port in their round come first; if there is none, any may use it again.
    """
    if _from_ready(engine, now, endpoint, free_ports, packet, False):
        return 1
    return int(_from_ready(engine, now, endpoint, free_ports, packet, True))


@kernel
def _from_ready(engine: Engine, now: int, endpoint: int, free_ports: int, packet: int, again: bool) -> bool:
    """Serve the peers in turn until one has sent."""
    node = engine.endpoints[endpoint]
    for _ in range(node.ready_count):
        peer = ring.front(node, engine.peers)
        outcome = _from_peer(engine, now, peer, free_ports, packet, again)
        if outcome == SENT:
            if engine.qps[ring.front(engine.peers[peer], engine.qps)].burst_left == 0:
                ring.turn(node, engine.peers)
            prefetch.for_turns(engine, endpoint)
            return True
        if outcome == BLOCKED:
            ring.drop_front(node, engine.peers)  # it has nothing that it may send
        else:
            ring.turn(node, engine.peers)
    return False


@kernel
def _from_peer(engine: Engine, now: int, peer: int, free_ports: int, packet: int, again: bool) -> int:
    """Serve the queue pairs of one peer by deficit round robin; `again`: on ports of this round, too."""
    outcome = BLOCKED
    for _ in range(2 * engine.peers[peer].ready_count):
        qp = ring.front(engine.peers[peer], engine.qps)
        if qp == NONE:
            return BLOCKED
        if not wants_to_send(engine, qp):
            scheduler.drop_front_qp(engine, peer)
            continue
        repeats = _repeats(engine, qp, free_ports)
        size = _next_size(engine, qp, repeats)
        if not qpcc.may_send(engine, peer, size):
            qpcc.on_blocked(engine, peer)
            return BLOCKED
        row = engine.qps[qp]
        if row.deficit < size and engine.peers[peer].ready_count > 1:
            row.deficit += scheduler.quantum(engine, qp)
            row.burst_left = 0  # or every turn would end one burst and begin another
            ring.turn(engine.peers[peer], engine.qps)
            continue
        # What is repeated does not wait: it leaves on another port than before in any case.
        offered = free_ports if again or repeats else spray.unused_ports(engine, qp, free_ports)
        if _send(engine, now, qp, offered, packet, repeats, size):
            row.deficit = max(row.deficit - size, 0)
            return SENT
        outcome = NO_PATH
        ring.turn(engine.peers[peer], engine.qps)
    return outcome


@kernel
def _repeats(engine: Engine, qp: int, free_ports: int) -> bool:
    """Return whether a lost packet is next; new data goes first while only the port it was lost on is free."""
    row = engine.qps[qp]
    if row.lost_count == 0:
        return False
    sent = sent_row(engine, qp, _oldest_lost(engine, qp))
    others = spray.other_ports(engine, qp, sent.ev)
    return others == 0 or others & free_ports != 0 or not has_new(engine, qp)


@kernel
def _next_size(engine: Engine, qp: int, repeats: bool) -> int:
    """Return the nominal size of the packet that `_send` will send."""
    row = engine.qps[qp]
    if row.solicit_psn != NONE:
        return nominal_size(sent_row(engine, qp, row.solicit_psn).payload)
    if repeats:
        return nominal_size(sent_row(engine, qp, _oldest_lost(engine, qp)).payload)
    message = message_row(engine, qp, row.message_current)
    return nominal_size(min(row.path_mtu, message.length - row.packets_cut * row.path_mtu))


@kernel
def _oldest_lost(engine: Engine, qp: int) -> int:
    row = engine.qps[qp]
    while sent_row(engine, qp, row.lost_cursor).state != SentState.LOST:
        row.lost_cursor += 1
    return row.lost_cursor


@kernel
def _send(engine: Engine, now: int, qp: int, free_ports: int, packet: int, repeats: bool, size: int) -> bool:
    row = engine.qps[qp]
    if row.solicit_psn != NONE:
        return _solicit(engine, now, qp, free_ports, packet, size)
    if repeats:
        return _resend(engine, now, qp, free_ports, packet, size)
    return _send_new(engine, now, qp, free_ports, packet, size)


@kernel
def _send_new(engine: Engine, now: int, qp: int, free_ports: int, packet: int, size: int) -> bool:
    row = engine.qps[qp]
    ev = spray.choose(engine, now, qp, free_ports, NONE, size)
    if ev == NONE:
        return False
    slot = row.message_current & row.message_mask
    message = engine.messages[row.message_base + slot]
    if row.packets_cut == 0:
        message.first_psn = row.next_psn
        message.rqmsn = row.wimm_next
        row.wimm_next += message.has_immediate
    payload = min(row.path_mtu, message.length - row.packets_cut * row.path_mtu)
    psn = row.next_psn
    sent = sent_row(engine, qp, psn)
    sent.message = slot
    sent.payload = payload
    sent.transmissions = 0
    sent.inferred = Inferred.NO
    row.next_psn += 1
    row.packets_cut += 1
    if row.packets_cut == message.packets:
        row.message_current += 1
        row.packets_cut = 0
    row.sent_packets += 1
    row.sent_bytes += payload
    _record_sent(engine, now, qp, psn, ev)
    _fill(engine, now, qp, psn, packet, 0, _asks_for_ack(engine, qp))
    return True


@kernel
def _resend(engine: Engine, now: int, qp: int, free_ports: int, packet: int, size: int) -> bool:
    row = engine.qps[qp]
    psn = _oldest_lost(engine, qp)
    sent = sent_row(engine, qp, psn)
    ev = spray.choose(engine, now, qp, free_ports, sent.ev, size)
    if ev == NONE or psn >= window_end(engine, qp):
        return False
    row.lost_count -= 1
    row.lost_cursor = psn + 1
    row.retransmitted += 1
    engine.ports[engine.endpoints[row.endpoint].port_base + engine.evs[ev].port].retransmitted += 1
    _record_sent(engine, now, qp, psn, ev)
    _fill(engine, now, qp, psn, packet, 1, 1)
    return True


@rare_kernel
def _solicit(engine: Engine, now: int, qp: int, free_ports: int, packet: int, size: int) -> bool:
    """Retransmit the newest packet to solicit a missing transport ACK: a duplicate is answered by one."""
    row = engine.qps[qp]
    psn = row.solicit_psn
    sent = sent_row(engine, qp, psn)
    ev = spray.choose(engine, now, qp, free_ports, sent.ev, size)
    if ev == NONE:
        return False
    row.solicit_psn = NONE
    row.retransmitted += 1
    sent.ev = ev
    _fill(engine, now, qp, psn, packet, 1, 1)
    return True


@kernel
def _record_sent(engine: Engine, now: int, qp: int, psn: int, ev: int) -> None:
    """Record a transmission and arm the timers for it."""
    row = engine.qps[qp]
    sent = sent_row(engine, qp, psn)
    sent.sent_at = now
    sent.ev = ev
    sent.state = SentState.IN_FLIGHT
    sent.transmissions = min(sent.transmissions + 1, 100)
    loss.count_in_flight(engine, qp, nominal_size(sent.payload))
    if timers.due(engine, qp, Deadline.RTO) == NEVER:
        user_timeout.begin(engine, now, qp)
    if timers.due(engine, qp, Deadline.PTO) == NEVER and params_of(engine, qp).tail_probe:
        timers.arm(engine, qp, Deadline.PTO, now + qpcc.pto(engine, row.peer))


@kernel
def _asks_for_ack(engine: Engine, qp: int) -> int:
    """Return 1 to request a SACK with the packet just cut (MRC §7.5.2), 0 otherwise.

    The sender goes idle, a window is nearly closed, a turn ends, or a share of the window would go unreported: the
    threshold of the responder does not follow the window, which only the sender knows.
    """
    row = engine.qps[qp]
    row.unasked += nominal_size(sent_row(engine, qp, row.next_psn - 1).payload)
    asks = row.message_current == row.message_tail or row.next_psn >= window_end(engine, qp) or _ends_turn(engine, qp)
    if asks or _owes_report(engine, qp) or not qpcc.may_send(engine, row.peer, 2 * nominal_size(row.path_mtu)):
        row.unasked = 0
        return 1
    return 0


@kernel
def _owes_report(engine: Engine, qp: int) -> bool:
    """Return whether one packet more would leave a share of the window unreported, if that is below the threshold.

    Bursts leave in one system call each: they are not cut while the window has room for several.
    """
    row, params = engine.qps[qp], params_of(engine, qp)
    share = qpcc.window(engine, row.peer) // (_REPORTS * max(engine.peers[row.peer].ready_count, 1))
    if share > params.sack_threshold:
        row.unasked = 0
        return False
    whole = nominal_size(row.path_mtu)
    if row.unasked < whole:  # an answer to each of many short packets would fill queues for control packets
        return False
    return row.unasked + whole > max(share, min(params.ev_burst, share * _REPORTS // _BURSTS))


@kernel
def _ends_turn(engine: Engine, qp: int) -> bool:
    """Whether the packet just cut is the last of a burst that other queue pairs' bursts follow.

    Without an answer it would hold its part of the shared window until its next turn: with many queue pairs the
    window is full of packets that no responder has reason to report.
    """
    row = engine.qps[qp]
    if params_of(engine, qp).ev_burst == 0 or engine.peers[row.peer].ready_count == 1:
        return False
    size = nominal_size(sent_row(engine, qp, row.next_psn - 1).payload)
    return bool(row.deficit - size < _next_size(engine, qp, False))


@kernel
def _fill(engine: Engine, now: int, qp: int, psn: int, packet: int, is_repeat: int, ack_request: int) -> None:
    """Write the header fields of one data packet."""
    row = engine.qps[qp]
    sent = sent_row(engine, qp, psn)
    message = engine.messages[row.message_base + sent.message]
    params = params_of(engine, qp)
    index = psn - message.first_psn
    out = engine.packets[packet]
    out.opcode = _opcode(index, message.packets, message.has_immediate)
    out.dest_qpn = row.dest_qpn
    out.psn = psn & _PSN_MASK
    out.payload_length = sent.payload
    out.payload = message.local + index * row.path_mtu
    out.marked = 0
    out.trimmed = 0
    out.traffic_class = _traffic_class(row.trim_nack_dest, is_repeat)
    out.solicited = message.solicited if index == message.packets - 1 else 0
    out.ack_request = ack_request
    sent.asked = ack_request * Asked.BY_ITSELF
    out.retransmitted = is_repeat
    out.timestamped = 1
    out.msn = (row.message_head + ((sent.message - row.message_head) & row.message_mask)) & _MSN_MASK
    out.rqmsn = message.rqmsn & _MSN_MASK
    out.tx_timestamp = clock.stamp(now, params.timestamp_unit)
    out.timestamp_unit = params.timestamp_unit
    out.va = message.va + index * row.path_mtu
    out.r_key = message.r_key
    out.dma_length = message.length
    out.immediate = message.immediate
    send_on(engine, qp, sent.ev, packet)


@kernel
def send_on(engine: Engine, qp: int, ev: int, packet: int) -> None:
    row = engine.qps[qp]
    node = engine.endpoints[row.endpoint]
    path = engine.evs[ev]
    out = engine.packets[packet]
    out.entropy = path.value
    out.port = path.port
    out.source = node.address
    out.destination = engine.peers[row.peer].address
    ev_states.on_sent(engine, ev)
    port = engine.ports[node.port_base + path.port]
    port.sent_packets += 1
    port.sent_bytes += out.payload_length


@kernel
def _opcode(index: int, packets: int, has_immediate: int) -> int:
    if packets == 1:
        return Opcode.WRITE_ONLY.value + has_immediate
    if index == 0:
        return Opcode.WRITE_FIRST.value
    if index < packets - 1:
        return Opcode.WRITE_MIDDLE.value
    return Opcode.WRITE_LAST.value + has_immediate


@kernel
def _traffic_class(trim_nack_dest: bool, is_repeat: int) -> int:
    if not trim_nack_dest:
        return TrafficClass.NO_TRIM.value  # the peer does not answer trimmed packets (MRC §7.5)
    return TrafficClass.TRIMMABLE_RETX.value if is_repeat == 1 else TrafficClass.TRIMMABLE.value


@rare_kernel
def on_pto(engine: Engine, now: int, qp: int) -> None:
    """Solicit acknowledgements that did not come after the last packet was sent.

    A probe on a path that last worked solicits a SACK, a duplicate the transport ACK. The timer counts from the last
    packet sent or heard, as in RFC 8985 (7.2): a connection that shares its port with many others sends seldom.
    A closed window for which no report is to come is asked about a round trip after the last packet. As that of
    the RTO, its back-off is linear, then exponential, up to the RTO, until there is progress (RFC 9002, 6.2.1).
    """
    row = engine.qps[qp]
    timers.disarm(engine, qp, Deadline.PTO)
    unacknowledged = row.next_psn - row.unack_psn
    if row.message_head == row.message_current and unacknowledged == 0:
        return
    if 0 < unacknowledged <= row.lost_count + row.sacked_beyond:
        return  # nothing is in flight: all that is missing waits for a path
    delay = _pto(engine, qp)
    quiet_since = last_sent(engine, qp)
    if reports.is_unasked(engine, qp):
        delay = round_trip(engine, row.peer)
    elif unacknowledged > 0:
        quiet_since = max(row.heard_at, quiet_since)
    if quiet_since + delay <= now:
        if unacknowledged > 0:
            probes.ask(engine, now, qp)
        else:
            _solicit_ack(engine, qp)
        quiet_since = now
        row.tail_probes = min(row.tail_probes + 1, _MOST_PROBES)
        delay = _pto(engine, qp)
    timers.arm(engine, qp, Deadline.PTO, quiet_since + delay)


@kernel
def _pto(engine: Engine, qp: int) -> int:
    """Return how long (ps) to wait for an answer before the next probe of the tail."""
    row = engine.qps[qp]
    delay = qpcc.pto(engine, row.peer)
    doublings = min(max(row.tail_probes - row.linear_count, 0), _MOST_DOUBLINGS)
    return max(min(delay << doublings, retries.rto(engine, qp)), delay)


@kernel
def _solicit_ack(engine: Engine, qp: int) -> None:
    """Solicit a transport ACK by a duplicate of the newest packet; it counts all completed messages."""
    row = engine.qps[qp]
    row.solicit_psn = row.next_psn - 1
    scheduler.wake(engine, qp)


@rare_kernel
def on_rto(engine: Engine, now: int, qp: int) -> None:
    """Serve the retransmission timer: repeat what has waited too long, or fail a queue pair without progress."""
    row = engine.qps[qp]
    if row.message_head == row.message_tail and row.unack_psn == row.next_psn:
        timers.disarm(engine, qp, Deadline.RTO)
        return
    if user_timeout.is_over(engine, now, qp):
        lifecycle.fail(engine, now, qp, Cause.USER_TIMEOUT)
        return
    if row.unack_psn < row.next_psn:
        loss.on_rto(engine, now, qp)
    elif row.message_head == row.message_current:  # nothing has left: no path works, or others have their turn
        timers.arm(engine, qp, Deadline.RTO, now + retries.rto(engine, qp))
    else:
        _on_missing_ack(engine, now, qp)
    timers.arm_by(engine, qp, Deadline.RTO, user_timeout.next_look(engine, now, qp))
    scheduler.wake(engine, qp)


@rare_kernel
def _on_missing_ack(engine: Engine, now: int, qp: int) -> None:
    """Solicit the transport ACK of what has all arrived, once in the timeout of an attempt.

    Counted since the last packet, not the last answer: probes of bad paths are still answered.
    """
    row = engine.qps[qp]
    due = retries.due(engine, qp, max(last_sent(engine, qp), row.attempt_at))
    if due > now:
        timers.arm(engine, qp, Deadline.RTO, due)
        return
    if row.retries > 0:  # the duplicate of the last attempt was not answered either
        ev_states.on_lost(engine, now, sent_row(engine, qp, row.next_psn - 1).ev, row.next_psn - 1, now)
    retries.on_failed(engine, now, qp, now)
    row.timeouts += 1
    _solicit_ack(engine, qp)
    timers.arm(engine, qp, Deadline.RTO, now + retries.rto(engine, qp))
