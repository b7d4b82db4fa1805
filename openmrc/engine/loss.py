"""Which packets are lost: the inference from what was reported, and from silence (MRC §7.4.1, §7.4.5).

A hole counts as lost when something sent later is known to have arrived and the packet has been
unreported for longer than round trips vary; where switches do not trim, it must also lie far
enough behind, because then a hole may be plain reordering under congestion.
"""

from openmrc.core.jit import kernel, rare_kernel
from openmrc.engine import congestion, paths, scheduler, timers
from openmrc.engine.queue_pairs import nominal_size, params_of, sent_row
from openmrc.engine.tables import Deadline, Engine, SentState
from openmrc.units import NEVER


@kernel
def on_evidence(engine: Engine, now: int, qp: int) -> None:
    """Note when holes will be due; call after news of arrivals.

    They are looked for in `expire`, when a world has handed in all it has: a SACK that waits behind this one
    may fill them, and an endpoint that was kept from its processor for a while has a queue of those.
    """
    row = engine.qps[qp]
    if row.unack_psn == row.next_psn:
        timers.disarm(engine, qp, Deadline.LOSS)
    elif row.highest_sacked > row.unack_psn and timers.due(engine, qp, Deadline.LOSS) == NEVER:
        first = sent_row(engine, qp, row.unack_psn)
        timers.arm(engine, qp, Deadline.LOSS, first.sent_at + congestion.loss_delay(engine, row.peer))


@rare_kernel
def scan(engine: Engine, now: int, qp: int) -> None:
    """Declare lost what is due, and note when the next hole will be."""
    row = engine.qps[qp]
    delay = congestion.loss_delay(engine, row.peer)
    following = NEVER
    psn = row.unack_psn
    while psn < row.next_psn:
        sent = sent_row(engine, qp, psn)
        if sent.state == SentState.IN_FLIGHT:
            if sent.sent_at > row.newest_delivered:
                if psn > row.highest_sacked:
                    break  # first transmissions from here on: all sent later
            else:
                due = sent.sent_at + _patience(engine, qp, psn, delay)
                if due <= now:
                    row.inferred_losses += 1
                    declare(engine, now, qp, psn)
                else:
                    following = min(following, due)
        psn += 1
    timers.arm(engine, qp, Deadline.LOSS, following)
    scheduler.wake(engine, qp)


@rare_kernel
def on_silence(engine: Engine, now: int, qp: int, patience: int) -> int:
    """Declare lost what was sent `patience` ps ago or earlier; return how many.

    The rest keeps its time: the earliest becomes the next ACK deadline. Without any it is looked at
    again all the same: what waits to be repeated may be acknowledged late, and its transport ACK lost.
    """
    row = engine.qps[qp]
    lost = 0
    following = NEVER
    for psn in range(row.unack_psn, row.next_psn):
        sent = sent_row(engine, qp, psn)
        if sent.state == SentState.IN_FLIGHT:
            if sent.sent_at + patience <= now:
                declare(engine, now, qp, psn)
                lost += 1
            else:
                following = min(following, sent.sent_at + patience)
    timers.arm(engine, qp, Deadline.ACK, following if following != NEVER else now + patience)
    return lost


@rare_kernel
def declare(engine: Engine, now: int, qp: int, psn: int) -> None:
    """Queue one packet for retransmission because it vanished: its path takes the blame."""
    row = engine.qps[qp]
    sent = sent_row(engine, qp, psn)
    size = nominal_size(sent.payload)
    engine.ports[engine.endpoints[row.endpoint].port_base + engine.evs[sent.ev].port].lost += 1
    requeue(engine, qp, psn)
    congestion.on_loss(engine, now, row.peer, size)
    paths.on_lost(engine, now, sent.ev, sent.sent_at)


@kernel
def requeue(engine: Engine, qp: int, psn: int) -> None:
    """Take a packet out of flight and queue it for retransmission."""
    row = engine.qps[qp]
    sent = sent_row(engine, qp, psn)
    sent.state = SentState.LOST
    row.lost_count += 1
    row.lost_cursor = min(row.lost_cursor, psn)
    remove_in_flight(engine, qp, nominal_size(sent.payload))


@kernel
def add_in_flight(engine: Engine, qp: int, size: int) -> None:
    """Count `size` bytes as in flight; `remove_in_flight` is the way back."""
    row = engine.qps[qp]
    row.inflight += size
    engine.peers[row.peer].inflight += size


@kernel
def remove_in_flight(engine: Engine, qp: int, size: int) -> None:
    """Take `size` bytes out of flight.

    The count may fall below zero: SACKs round up, and count packets that were taken out as lost. It must not be cut
    off there, or later packets would stay in flight for ever by as much.
    """
    row = engine.qps[qp]
    row.inflight -= size
    engine.peers[row.peer].inflight -= size


@kernel
def _patience(engine: Engine, qp: int, psn: int, delay: int) -> int:
    """Return how long (ps) this hole may wait: twice as long when too little lies above it and nothing is trimmed."""
    row = engine.qps[qp]
    params = params_of(engine, qp)
    if params.trimming == 1:
        return delay
    window = int(engine.peers[row.peer].cwnd) // (2 * nominal_size(row.path_mtu))
    if row.highest_sacked - psn > max(params.gap_packets, window):
        return delay
    return 2 * delay
