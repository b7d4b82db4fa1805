"""Transmission of control packets. Path and contents are chosen when a packet leaves, not when it was queued."""

from openmrc.core.jit import kernel
from openmrc.engine.paths import spray
from openmrc.engine.requester.transmission import send_on
from openmrc.engine.responder import nacks, sacks, transport_acks
from openmrc.engine.state import clock, control_queue
from openmrc.engine.state.machines import EvState, QpState
from openmrc.engine.state.queue_pairs import params_of, working_ports
from openmrc.engine.state.tables import NONE, Engine
from openmrc.wire.codes import ENDPOINT_QPN, NackReason, Opcode, TrafficClass

CONTEXT_MASK = 0xFFFF  # spdcid, dpdcid: low bits of both QPNs; no public source defines them


@kernel
def next_packet(engine: Engine, now: int, endpoint: int, packet: int) -> int:
    """Fill packets[packet] with the oldest queued control packet that is still valid; return 0 if there is none."""
    while True:
        index = control_queue.take(engine, endpoint)
        if index == NONE:
            engine.endpoints[endpoint].answered_qp = NONE
            return 0
        _clear(engine, index, packet)
        if engine.control[index].qp == NONE:
            if _fill_endpoint_operation(engine, now, endpoint, index, packet):
                return 1
        elif _fill_answer(engine, now, index, packet):
            return 1


@kernel
def _clear(engine: Engine, index: int, packet: int) -> None:
    waiting = engine.control[index]
    out = engine.packets[packet]
    out.opcode = waiting.opcode
    out.psn = 0
    out.payload_length = 0
    out.marked = 0
    out.trimmed = 0
    out.traffic_class = TrafficClass.CONTROL
    out.solicited = 0
    out.ack_request = 0
    out.retransmitted = waiting.retransmitted
    out.timestamped = 0
    out.tx_timestamp = waiting.tx_timestamp
    out.timestamp_unit = waiting.timestamp_unit
    out.spdcid = 0
    out.dpdcid = 0
    out.vendor_info = 0


@kernel
def _fill_answer(engine: Engine, now: int, index: int, packet: int) -> bool:
    waiting = engine.control[index]
    qp = waiting.qp
    row = engine.qps[qp]
    out = engine.packets[packet]
    out.dest_qpn = row.dest_qpn
    out.spdcid = row.qpn & CONTEXT_MASK
    out.dpdcid = row.dest_qpn & CONTEXT_MASK
    if row.state == QpState.RESET or (row.state == QpState.ERROR and not _outlives(waiting.opcode, waiting.reason)):
        return False
    match waiting.opcode:
        case Opcode.SACK:
            sacks.fill(engine, index, packet)
        case Opcode.NACK:
            nacks.fill(engine, index, packet)
        case Opcode.ACKNOWLEDGE:
            transport_acks.fill(engine, index, packet)
        case _:
            _fill_probe(engine, now, qp, index, packet)
    ev = _answer_ev(engine, index)
    if ev == NONE or (working_ports(engine, qp) >> engine.evs[ev].port) & 1 == 0:
        return False
    send_on(engine, qp, ev, packet)
    engine.ports[engine.endpoints[row.endpoint].port_base + out.port].control_sent += 1
    return True


@kernel
def _answer_ev(engine: Engine, index: int) -> int:
    """Return the EV row for an answer, NONE if no port works.

    Answers that leave in a row take the path of the first, if the endpoint wants that: the SACK and the ACK of one
    arrival, and those of other queue pairs.
    """
    waiting = engine.control[index]
    qp = waiting.qp
    if waiting.ev != NONE:
        return int(waiting.ev)
    node = engine.endpoints[engine.qps[qp].endpoint]
    if node.answered_qp != NONE:
        ev = _same_path(engine, qp, node.answered_qp, node.answered_ev)
        if ev != NONE:
            return ev
    ev = spray.choose_control(engine, qp)
    if ev != NONE and params_of(engine, qp).answers_together:
        node.answered_qp = qp
        node.answered_ev = ev
    return ev


@kernel
def _same_path(engine: Engine, qp: int, other: int, ev: int) -> int:
    """Return the EV row of `qp` for the path that `ev` is to the queue pair `other`; NONE if it does not serve.

    The path was chosen for the peer of `other`; towards another peer it serves if that was heard on its port.
    """
    row, first, path = engine.qps[qp], engine.qps[other], engine.evs[ev]
    if qp == other:
        return ev
    if row.peer != first.peer and (row.heard_ports >> path.port) & 1 == 0:
        return NONE
    same = ev - first.ev_base
    if same >= row.ev_count:
        return NONE
    found = engine.evs[row.ev_base + same]
    if found.value != path.value or found.port != path.port or found.state != EvState.GOOD:
        return NONE
    row.heard_ports &= ~(1 << path.port)
    return int(row.ev_base + same)


@kernel
def _outlives(opcode: int, reason: int) -> bool:
    """Return whether a packet is still sent after the queue pair went to ERROR: it tells the peer the reason."""
    return opcode == Opcode.ACKNOWLEDGE or (opcode == Opcode.NACK and reason == NackReason.UNEXP_EVENT)


@kernel
def _fill_probe(engine: Engine, now: int, qp: int, index: int, packet: int) -> None:
    out = engine.packets[packet]
    params = params_of(engine, qp)
    out.probe_id = engine.control[index].psn
    out.tx_timestamp = clock.stamp(now, params.timestamp_unit)
    out.timestamp_unit = params.timestamp_unit
    out.traffic_class = TrafficClass.NO_TRIM  # data class, as MRC requires; there is no payload to trim


@kernel
def _fill_endpoint_operation(engine: Engine, now: int, endpoint: int, index: int, packet: int) -> bool:
    waiting = engine.control[index]
    node = engine.endpoints[endpoint]
    out = engine.packets[packet]
    if (node.ports_up >> waiting.port) & 1 == 0:
        return False
    out.dest_qpn = ENDPOINT_QPN
    out.psn = waiting.psn
    out.endpoint_op = waiting.reason
    out.port_status_mask = waiting.mask
    if waiting.opcode == Opcode.ENDPOINT_REQUEST:
        params = engine.params[node.params]
        out.tx_timestamp = clock.stamp(now, params.timestamp_unit)
        out.timestamp_unit = params.timestamp_unit
    out.entropy = waiting.entropy
    out.port = waiting.port
    out.source = node.address
    out.destination = engine.peers[waiting.peer].address
    port = engine.ports[node.port_base + waiting.port]
    port.sent_packets += 1
    port.control_sent += 1
    return True
