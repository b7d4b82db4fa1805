"""Reliability SACKs of the responder: triggers and contents (MRC §7.5.2, Tables 7-12 to 7-15).

Triggers are: enough bytes, a request, an ECN mark, a retransmission, a probe. Only the trigger is queued; bitmap and
counters are read when the SACK is sent, and unmarked SACKs that wait are merged.
"""

from openmrc.core.jit import kernel, rare_kernel
from openmrc.core.serial import PSN_BITS, RCVD_BYTES_BITS
from openmrc.engine.state import control_queue, tracker
from openmrc.engine.state.queue_pairs import params_of
from openmrc.engine.state.tables import NONE, Engine
from openmrc.wire.codes import Opcode, PathMark

BITMAP_PSNS = 64
RCVD_UNIT = 256  # bytes
_PSN_MASK = (1 << PSN_BITS) - 1
_INT16_MAX = (1 << 15) - 1


@kernel
def on_arrival(engine: Engine, now: int, qp: int, packet: int, psn: int, is_new: int) -> None:
    """Queue a SACK if this arrival, already recorded, triggers one."""
    row = engine.qps[qp]
    params = params_of(engine, qp)
    arrived = engine.packets[packet]
    row.sack_count += max(arrived.payload_length, params.sack_minimum)
    if arrived.ack_request == 1 and row.ooo_count > 0:
        row.ack_requested = True
    filled = row.ack_requested and row.ooo_count == 0
    if filled:
        row.ack_requested = False
    if arrived.marked == 1:
        queue(engine, qp, packet, psn, _judge(engine, now, qp, arrived.entropy, 1))
        return
    if params.always_skip_packets > 0:
        _judge(engine, now, qp, arrived.entropy, 0)
    due = is_new == 0 or arrived.ack_request == 1 or arrived.retransmitted == 1 or filled
    if due or row.sack_count > params.sack_threshold or row.received_packets == 1:
        queue(engine, qp, packet, psn, PathMark.NONE)


@kernel
def on_trimmed(engine: Engine, qp: int, packet: int) -> None:
    """Report what has arrived since the last SACK when a trimmed packet asked for it; its NACK goes first.

    Without this, a sender whose last packet of a window is trimmed hears of the whole window only by its tail probe.
    If nothing has arrived, the next packet to arrive is reported: by then the window may be too small to repeat the
    trimmed one, and full of packets that asked for nothing. The SACK names the left edge, because the packet that made
    it due did not arrive.
    """
    row = engine.qps[qp]
    if engine.packets[packet].ack_request == 0:
        return
    if row.sack_count > 0:
        queue(engine, qp, packet, row.expected_psn - 1, PathMark.NONE)
    else:
        row.sack_count = params_of(engine, qp).sack_threshold


@kernel
def queue(engine: Engine, qp: int, packet: int, psn: int, mark: int) -> None:
    """Queue a SACK for this trigger, unless it is unmarked and an unmarked one is queued already."""
    row = engine.qps[qp]
    arrived = engine.packets[packet]
    if mark == PathMark.NONE and row.sack_queued:
        return
    index = control_queue.claim(engine, row.endpoint, Opcode.SACK, qp, row.peer)
    if index == NONE:
        return
    waiting = engine.control[index]
    waiting.psn = psn
    waiting.entropy = arrived.entropy
    waiting.mark = mark
    waiting.retransmitted = arrived.retransmitted
    waiting.tx_timestamp = arrived.tx_timestamp
    waiting.timestamp_unit = arrived.timestamp_unit
    if mark == PathMark.NONE:
        row.sack_queued = True
    row.sack_count = 0


@kernel
def queue_probe_answer(engine: Engine, qp: int, packet: int) -> None:
    """Queue the SACK that answers a reliability probe (pr = 1)."""
    row = engine.qps[qp]
    arrived = engine.packets[packet]
    index = control_queue.claim(engine, row.endpoint, Opcode.SACK, qp, row.peer)
    if index == NONE:
        return
    waiting = engine.control[index]
    waiting.reason = 1
    waiting.psn = arrived.probe_id
    waiting.entropy = arrived.entropy
    waiting.mark = PathMark.SKIP_ONCE if arrived.marked == 1 else PathMark.NONE
    waiting.tx_timestamp = arrived.tx_timestamp
    waiting.timestamp_unit = arrived.timestamp_unit
    row.sack_count = 0


@kernel
def fill(engine: Engine, index: int, packet: int) -> None:
    """Write the fields of a SACK from its trigger and the current state of the responder."""
    waiting = engine.control[index]
    row = engine.qps[waiting.qp]
    params = params_of(engine, waiting.qp)
    out = engine.packets[packet]
    cack = row.expected_psn - 1
    base = _bitmap_base(row.lowest_unsacked, row.expected_psn, row.highest_received)
    out.path_mark = waiting.mark
    out.is_probe_answer = waiting.reason
    out.ack_psn_offset = waiting.psn
    if waiting.reason == 0:
        out.ack_psn_offset = max(min(waiting.psn - cack, _INT16_MAX), -_INT16_MAX - 1)
    out.reflected_entropy = waiting.entropy
    out.cack_psn = cack & _PSN_MASK
    out.psn = out.cack_psn  # as two public implementations send it; nothing is published
    out.mpr = row.mpr if row.dynamic_mpr else 0
    out.sack_offset = base - cack
    out.sack_bitmap = tracker.bitmap(engine, waiting.qp, base)
    out.ooo_count = min(row.ooo_count, _INT16_MAX)
    out.restore_cwnd = 1 if params.receiver_penalty > 0 else 0
    out.rcv_cwnd_pen = params.receiver_penalty
    out.rcvd_bytes = ((row.received_bytes + RCVD_UNIT - 1) // RCVD_UNIT) & ((1 << RCVD_BYTES_BITS) - 1)
    row.lowest_unsacked = min(base + BITMAP_PSNS, row.highest_received + 1)
    if waiting.mark == PathMark.NONE and waiting.reason == 0:
        row.sack_queued = False
    if row.lowest_unsacked <= row.highest_received and not row.sack_queued:
        _queue_rest(engine, index)
    row.sacks_sent += 1


@rare_kernel
def _queue_rest(engine: Engine, index: int) -> None:
    """Queue another SACK for arrivals beyond the bitmap of this one; unreported packets would count as lost."""
    request = engine.control[index]
    qp, entropy = request.qp, request.entropy
    psn = request.psn if request.reason == 0 else engine.qps[qp].expected_psn - 1
    retransmitted, tx_timestamp, unit = request.retransmitted, request.tx_timestamp, request.timestamp_unit
    row = engine.qps[qp]
    following = control_queue.claim(engine, row.endpoint, Opcode.SACK, qp, row.peer)
    if following == NONE:
        return
    waiting = engine.control[following]
    waiting.psn = psn
    waiting.entropy = entropy
    waiting.retransmitted = retransmitted
    waiting.tx_timestamp = tx_timestamp
    waiting.timestamp_unit = unit
    row.sack_queued = True


@kernel
def _bitmap_base(lowest_unsacked: int, expected: int, highest: int) -> int:
    """Return the first PSN of the bitmap: the oldest unreported one, low enough to report the newest (MRC §7.5.2.2)."""
    base = max(lowest_unsacked, expected)
    if base + BITMAP_PSNS > highest:
        base = max(highest - BITMAP_PSNS + 1, expected)
    return base


@kernel
def _judge(engine: Engine, now: int, qp: int, entropy: int, marked: int) -> int:
    """Return SKIP_ONCE, or ALWAYS_SKIP if nearly all recent packets of an EV were marked."""
    row = engine.qps[qp]
    params = params_of(engine, qp)
    if params.always_skip_packets == 0:
        return PathMark.SKIP_ONCE.value
    stats = engine.mark_stats[row.mark_stats_base + (entropy & row.mark_stats_mask)]
    if stats.entropy != entropy or stats.packets >= 4 * params.always_skip_packets:
        stats.entropy = entropy
        stats.packets = 0
        stats.marked = 0
        stats.since = now
    stats.packets += 1
    stats.marked += marked
    long_enough = now - stats.since >= 4 * engine.peers[row.peer].base_rtt
    often = stats.marked * 100 > params.always_skip_percent * stats.packets
    if stats.packets >= params.always_skip_packets and long_enough and often:
        stats.packets = 0
        stats.marked = 0
        stats.since = now
        return PathMark.ALWAYS_SKIP.value
    return PathMark.SKIP_ONCE.value
