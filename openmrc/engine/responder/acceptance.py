"""Responder: acceptance of arriving write packets (MRC §6.3, §6.3.1).

A packet is placed if its PSN is new and inside the window, the peer may write to its memory, and its immediate fits.
`sacks` and `transport_acks` decide when to acknowledge.
"""

from openmrc.core.jit import kernel, rare_kernel
from openmrc.core.serial import PSN_BITS, extend
from openmrc.engine.responder import immediates, nacks, regions, reverse, sacks, transport_acks
from openmrc.engine.state import tracker
from openmrc.engine.state.build import MPR_UNIT
from openmrc.engine.state.machines import QpState
from openmrc.engine.state.queue_pairs import nominal_size, params_of, receives_data, tracked_psns
from openmrc.engine.state.tables import Cause, Engine
from openmrc.wire.codes import NackReason, Opcode, Syndrome, Trim
from openmrc.wire.packet import NOWHERE

RECEIVE_MISSING = -1
IMMEDIATE_MISSING = -2  # the requester numbered its WriteIMMs with a gap
LENGTH_WRONG = -3  # a WriteIMM has another number of packets than its length says
OUT_OF_PLACE = -4  # a message begins before the last one has ended, or goes on without a beginning


@kernel
def on_data(engine: Engine, now: int, qp: int, packet: int) -> None:
    """Process a write packet, whole or trimmed."""
    row = engine.qps[qp]
    arrived = engine.packets[packet]
    if not receives_data(row.state):
        if row.state == QpState.ERROR and row.nak_syndrome != 0:
            transport_acks.queue(engine, qp)  # the NAK may have been lost
        return
    psn = extend(arrived.psn, row.expected_psn, PSN_BITS)
    row.marked_arrivals += arrived.marked
    if psn < row.expected_psn:
        _on_old(engine, now, qp, packet, psn)
    elif psn >= row.expected_psn + tracked_psns(engine, qp):
        _on_out_of_window(engine, qp, packet, psn)
    elif tracker.has(engine, qp, psn):
        _on_duplicate(engine, now, qp)
        row.lowest_unsacked = min(row.lowest_unsacked, psn)  # the requester does not know: the SACK was lost
        sacks.on_arrival(engine, now, qp, packet, psn, 0)
    elif arrived.trimmed != Trim.WHOLE:
        _on_trimmed(engine, qp, packet, psn)
    else:
        _on_new(engine, now, qp, packet, psn)


@kernel
def on_probe(engine: Engine, now: int, qp: int, packet: int) -> None:
    """Answer a reliability probe with a SACK of everything that has arrived (MRC §7.4.6)."""
    row = engine.qps[qp]
    if receives_data(row.state):
        row.lowest_unsacked = row.expected_psn  # SACKs may have been lost: report all of it again
        reverse.on_doubt(engine, now, qp)
        sacks.queue_probe_answer(engine, qp, packet)


@rare_kernel
def _on_old(engine: Engine, now: int, qp: int, packet: int, psn: int) -> None:
    """Acknowledge a PSN behind the left edge again, unless it is so old that it is ambiguous."""
    row = engine.qps[qp]
    if psn == row.expected_psn - (1 << (PSN_BITS - 1)):
        row.out_of_window += 1
        return
    _on_duplicate(engine, now, qp)
    sacks.on_arrival(engine, now, qp, packet, psn, 0)
    transport_acks.queue(engine, qp)


@kernel
def _on_duplicate(engine: Engine, now: int, qp: int) -> None:
    """Count a duplicate. The answer to the first copy may be lost: use other return paths and keep probing them."""
    engine.qps[qp].duplicates += 1
    reverse.on_doubt(engine, now, qp)
    reverse.on_data(engine, now, qp)


@rare_kernel
def _on_out_of_window(engine: Engine, qp: int, packet: int, psn: int) -> None:
    row = engine.qps[qp]
    row.out_of_window += 1
    if psn < row.expected_psn + row.mpr * MPR_UNIT:  # allowed by our MPR, but beyond the tracker
        nacks.queue(engine, qp, packet, psn, NackReason.NO_BITMAP)
    elif params_of(engine, qp).refuse_out_of_window:
        nacks.queue(engine, qp, packet, psn, NackReason.PSN_OOR_WINDOW)


@rare_kernel
def _on_trimmed(engine: Engine, qp: int, packet: int, psn: int) -> None:
    engine.qps[qp].trimmed_arrivals += 1
    last_hop = engine.packets[packet].trimmed == Trim.TRIMMED_LASTHOP
    nacks.queue(engine, qp, packet, psn, NackReason.TRIMMED_LASTHOP if last_hop else NackReason.TRIMMED)
    sacks.on_trimmed(engine, qp, packet)


@kernel
def _on_new(engine: Engine, now: int, qp: int, packet: int, psn: int) -> None:
    row = engine.qps[qp]
    arrived = engine.packets[packet]
    opcode = arrived.opcode
    has_immediate = opcode == Opcode.WRITE_LAST_IMM or opcode == Opcode.WRITE_ONLY_IMM
    if not _is_consistent(opcode, arrived.payload_length, arrived.dma_length, row.path_mtu):
        transport_acks.refuse(engine, now, qp, psn, Syndrome.INVALID_REQUEST, Cause.ACCESS_VIOLATION)
        return
    if has_immediate and not immediates.fits(engine, qp, packet):
        transport_acks.refuse(engine, now, qp, psn, Syndrome.INVALID_REQUEST, Cause.WIMM_OVERFLOW)
        return
    if arrived.payload_length > 0:
        arrived.payload = regions.locate(engine, qp, arrived.r_key, arrived.va, arrived.payload_length)
        if arrived.payload == NOWHERE:
            transport_acks.refuse(engine, now, qp, psn, Syndrome.REMOTE_ACCESS_ERROR, Cause.ACCESS_VIOLATION)
            return
    if has_immediate:
        immediates.hold(engine, qp, packet)
    row.received_packets += 1
    row.received_bytes += nominal_size(arrived.payload_length)
    row.highest_received = max(row.highest_received, psn)
    row.lowest_unsacked = min(row.lowest_unsacked, psn)
    completed = _record(engine, qp, psn, _facts(opcode))
    if completed in (LENGTH_WRONG, OUT_OF_PLACE):
        transport_acks.refuse(engine, now, qp, psn, Syndrome.INVALID_REQUEST, Cause.ACCESS_VIOLATION)
        return
    if completed < 0:
        if completed == IMMEDIATE_MISSING:
            nacks.queue(engine, qp, packet, psn, NackReason.UNEXP_EVENT)
        cause = Cause.NO_RECEIVE if completed == RECEIVE_MISSING else Cause.UNEXPECTED_EVENT
        transport_acks.refuse(engine, now, qp, psn, Syndrome.REMOTE_OPERATIONAL_ERROR, cause)
        return
    sacks.on_arrival(engine, now, qp, packet, psn, 1)
    transport_acks.on_arrival(engine, qp, packet, completed)
    reverse.on_data(engine, now, qp)


@kernel
def _is_consistent(opcode: int, payload: int, length: int, path_mtu: int) -> bool:
    """Return whether a packet is as long as its place in a message of `length` bytes says.

    A completion then reports what has arrived, whatever a peer claims. The last packet of a message in order is
    compared with how many came before it (`immediates.is_whole`).
    """
    match opcode:
        case Opcode.WRITE_ONLY | Opcode.WRITE_ONLY_IMM:
            return payload == length and payload <= path_mtu
        case Opcode.WRITE_LAST | Opcode.WRITE_LAST_IMM:
            return length > path_mtu and payload == (length - 1) % path_mtu + 1
        case _:
            return length > path_mtu and payload == path_mtu


@kernel
def _facts(opcode: int) -> int:
    """Return what the left edge has to know of a packet."""
    match opcode:
        case Opcode.WRITE_FIRST:
            return tracker.FIRST
        case Opcode.WRITE_MIDDLE:
            return 0
        case Opcode.WRITE_LAST:
            return tracker.LAST
        case Opcode.WRITE_LAST_IMM:
            return tracker.LAST | tracker.IMMEDIATE
        case Opcode.WRITE_ONLY:
            return tracker.FIRST | tracker.LAST
        case _:
            return tracker.FIRST | tracker.LAST | tracker.IMMEDIATE


@kernel
def _record(engine: Engine, qp: int, psn: int, facts: int) -> int:
    """Record an arrival and move the left edge; return the messages completed, or one of the constants below 0."""
    row = engine.qps[qp]
    tracker.add(engine, qp, psn, facts)
    row.ooo_count += 1
    completed = 0
    while row.ooo_count > 0 and tracker.has(engine, qp, row.expected_psn):
        facts = tracker.remove(engine, qp, row.expected_psn)
        row.expected_psn += 1
        row.ooo_count -= 1
        row.message_packets += 1
        if (facts & tracker.FIRST != 0) != (row.message_packets == 1):
            return OUT_OF_PLACE
        if facts & tracker.IMMEDIATE != 0:
            if not immediates.is_next(engine, qp):
                return IMMEDIATE_MISSING
            if not immediates.is_whole(engine, qp):
                return LENGTH_WRONG
            if not immediates.deliver(engine, qp):
                return RECEIVE_MISSING
        if facts & tracker.LAST != 0:
            row.message_packets = 0
            row.completed_messages += 1
            completed += 1
    return completed
