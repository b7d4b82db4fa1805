"""Queue pair states RESET, INIT, RTR, RTS and ERROR: the actions on entering each of them."""

from openmrc.core.jit import kernel, rare_kernel
from openmrc.engine import messages
from openmrc.engine.congestion import qpcc, scheduler
from openmrc.engine.paths import ports, silence
from openmrc.engine.state import events, timers, tracker
from openmrc.engine.state.machines import ILLEGAL, QpEvent, QpState, qp_after
from openmrc.engine.state.queue_pairs import QPN_MASK
from openmrc.engine.state.tables import NONE, Cause, Engine, EventKind, SentState, WcStatus
from openmrc.units import NEVER


@rare_kernel
def open_peer(engine: Engine, now: int, peer: int, address: int) -> None:
    """Initialise a remote NIC: all its ports are assumed up, the window is at its initial size."""
    row = engine.peers[peer]
    row.address = address
    row.params = engine.endpoints[row.endpoint].params
    row.ports_up = (1 << engine.endpoints[row.endpoint].port_count) - 1
    row.update_at = -NEVER
    row.newest_answered = -1
    row.heard_at = 0
    row.resumed_at = 0
    row.update_stamp = 0
    row.status_deadline = NEVER
    row.status_attempts = 0
    row.status_pending = False
    row.check_deadline = NEVER
    row.check_attempts = 0
    row.check_pending = False
    row.quick_adapts = 0
    row.decreases = 0
    qpcc.begin(engine, now, peer)


@rare_kernel
def move(engine: Engine, now: int, qp: int, event: int) -> int:
    """Apply a state transition; return 1, or 0 if the table does not allow it."""
    row = engine.qps[qp]
    following = qp_after(row.state, event)
    if following == ILLEGAL:
        return 0
    if event == QpEvent.FAIL:
        fail(engine, now, qp, Cause.LOCAL)
    elif event == QpEvent.TO_RESET:
        reset(engine, qp)
    else:
        if event == QpEvent.TO_INIT and row.state == QpState.RESET:
            _begin_life(engine, qp)
        elif event == QpEvent.TO_RTR:
            _begin_responder(engine, qp)
        elif event == QpEvent.TO_RTS and row.state == QpState.RTR:
            _begin_requester(engine, qp)
        row.state = following
        if event == QpEvent.TO_RTR and row.peer != NONE:
            ports.introduce(engine, now, row.peer)
    return 1


@rare_kernel
def fail(engine: Engine, now: int, qp: int, cause: int) -> None:
    """Go to ERROR: all requests complete, the oldest with the status of `cause`; no more data is sent."""
    row = engine.qps[qp]
    if row.state == QpState.ERROR or row.state == QpState.RESET:
        return
    row.state = QpState.ERROR
    row.cause = cause
    scheduler.forget(engine, qp)
    _quiet(engine, qp)
    messages.flush(engine, qp, status_of(cause))
    index = events.claim(engine, now, row.endpoint, EventKind.QP_ERROR)
    if index != NONE:
        event = engine.events[index]
        event.qp = qp
        event.peer = row.peer
        event.state = cause


@rare_kernel
def end_region(engine: Engine, now: int, endpoint: int, l_key: int) -> int:
    """Fail every queue pair that has an open write from a region; return how many there were.

    A write is read from memory again each time that a packet of it is lost, so none may be left when its memory goes.
    """
    node = engine.endpoints[endpoint]
    failed = 0
    for qp in range(node.qp_base, node.qp_base + node.qp_count):
        failed += end_memory(engine, now, qp, l_key)
    return failed


@rare_kernel
def end_memory(engine: Engine, now: int, qp: int, l_key: int) -> int:
    """Fail a queue pair if it has an open write from a region; return 1 if it had."""
    if not messages.lose_memory(engine, qp, l_key):
        return 0
    fail(engine, now, qp, Cause.LOCAL_PROTECTION)
    return 1


@rare_kernel
def reset(engine: Engine, qp: int) -> None:
    """Go to RESET: nothing completes; the queue pair gets a new QPN, so stale packets do not match it."""
    row = engine.qps[qp]
    if row.state != QpState.RESET:
        row.qpn = (row.qpn + engine.endpoints[row.endpoint].qpn_slot_mask + 1) & QPN_MASK
    scheduler.forget(engine, qp)
    _quiet(engine, qp)
    row.state = QpState.RESET
    row.cause = Cause.NONE
    row.message_head = row.message_current = row.message_tail = 0
    row.receive_head = row.receive_tail = 0


@kernel
def status_of(cause: int) -> int:
    """Return the completion status of the oldest request after a failure."""
    match cause:
        case Cause.USER_TIMEOUT:
            return WcStatus.RETRY_EXC_ERR.value
        case Cause.REMOTE_INVALID_REQUEST:
            return WcStatus.REM_INV_REQ_ERR.value
        case Cause.REMOTE_ACCESS:
            return WcStatus.REM_ACCESS_ERR.value
        case Cause.REMOTE_OPERATIONAL | Cause.UNEXPECTED_EVENT:
            return WcStatus.REM_OP_ERR.value
        case _:
            return WcStatus.WR_FLUSH_ERR.value


@rare_kernel
def _quiet(engine: Engine, qp: int) -> None:
    """Remove the bytes in flight from the window and disarm every timer."""
    row = engine.qps[qp]
    if row.peer != NONE:
        engine.peers[row.peer].inflight -= max(row.inflight, 0)
        scheduler.wake_peer(engine, row.peer)
    row.inflight = 0
    engine.endpoints[row.endpoint].abandoned += row.lost_count
    row.lost_count = 0
    row.solicit_psn = NONE
    silence.forget(engine, qp)
    timers.disarm_all(engine, qp)


@rare_kernel
def _begin_life(engine: Engine, qp: int) -> None:
    """Count from 0 when a queue pair leaves RESET, and forget what its row was used for before."""
    row = engine.qps[qp]
    row.sent_packets = row.sent_bytes = row.retransmitted = row.inferred_losses = row.spurious = 0
    row.sacks_sent = row.sacks_received = row.acks_sent = row.nacks_sent = row.nacks_received = 0
    row.marked_arrivals = row.trimmed_arrivals = row.duplicates = row.out_of_window = row.malformed = 0
    row.probes_sent = row.probes_answered = row.timeouts = 0
    row.heard_at = row.no_progress_since = row.progress_seen = row.last_probe_at = row.last_probes = 0
    row.deficit = row.burst_ev = row.reverse_cursor = row.nak_psn = 0
    row.last_probe_is_out = False
    for index in range(row.mark_stats_base, row.mark_stats_base + row.mark_stats_mask + 1):
        stats = engine.mark_stats[index]
        if stats.packets != 0:  # rows that are not written take no memory
            stats.entropy = stats.packets = stats.marked = stats.since = 0


@rare_kernel
def _begin_responder(engine: Engine, qp: int) -> None:
    # MRC Table 7-5: cack = max_rcv = lowest_unsacked = rq_psn - 1.
    row = engine.qps[qp]
    row.highest_received = row.expected_psn - 1
    row.lowest_unsacked = row.expected_psn
    row.ooo_count = row.sack_count = row.since_ack = row.nak_syndrome = row.expected_rqmsn = row.reverse_left = 0
    row.received_bytes = row.received_packets = row.message_packets = 0
    row.completed_messages = row.acked_messages = 0
    row.sack_queued = row.ack_queued = row.ack_requested = False
    tracker.clear(engine, qp)
    for index in range(row.pending_base, row.pending_base + row.pending_mask + 1):
        waiting = engine.pending_immediates[index]
        if waiting.present:  # rows that are not written take no memory
            waiting.present = False


@rare_kernel
def _begin_requester(engine: Engine, qp: int) -> None:
    # MRC Table 7-4: unack starts at sq_psn - 1; `unack_psn` is the first PSN that is not acknowledged.
    row = engine.qps[qp]
    row.next_psn = row.first_psn
    row.unack_psn = row.first_psn
    row.highest_sacked = row.first_psn - 1
    row.packets_cut = row.wimm_next = row.wimm_done = row.inflight = row.rcvd_bytes_seen = 0
    row.lost_count = row.sacked_beyond = 0
    row.lost_cursor = row.first_psn
    row.newest_delivered = -1
    row.scanned_psn = row.first_psn
    row.complete_at = row.loss_in_doubt = row.loss_asked_at = row.loss_probes = 0
    row.unasked = row.retries = row.tail_probes = row.attempt_at = 0
    row.solicit_psn = NONE
    for index in range(row.sent_base, row.sent_base + row.sent_mask + 1):
        sent = engine.sent[index]
        if sent.state != SentState.FREE:  # rows that are not written take no memory
            sent.state = SentState.FREE
