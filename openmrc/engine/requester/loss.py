"""Loss inference: four timers of doubt about what was sent (MRC §7.4.1, §7.4.5, §7.4.6).

A sender never sees a loss. It sees that an answer does not come, and doubts. How long it doubts depends on what it has
heard, and each case has a timer of its own; the words are those of TCP and QUIC.

```
sent ------------> time
  |   newer packets were reported, this one is a hole
  |---- round trip + reordering window ----------------|  REORDERING (RFC 8985, RACK)
  |                                                       lost if a complete report still lacks it: sent again
  |
  |   nothing newer was sent, and nothing was heard
  |---- PTO: round trip + a full queue -------|           PTO (RFC 8985, 7.2; RFC 9002, 6.2)
  |                                           probe ---|- twice as long ------|- ...
  |                                                       the answer makes holes of what is missing
  |
  |   the peer answers nothing at all
  |---- RTO ---------------------------------------|      RTO (RFC 6298)
  |                                                       lost: all is sent again; the RTO doubles
  |
  |   no progress, whatever was sent again
  |---- user timeout ------------------------------ - - |  (RFC 5482)
                                                          the queue pair fails
```

| timer | starts with | ends with | acts in |
|---|---|---|---|
| REORDERING | the first hole | the report that fills it | `scan` |
| PTO | the first packet in flight; the last packet sent or heard | all acknowledged | `requester.on_pto` |
| RTO | the oldest packet in flight | its acknowledgement; progress ends the back-off | `on_rto`, `retries` |
| user timeout | something outstanding | progress | `user_timeout` |

The first three send, the last ends the connection. They are nested: reordering window < PTO <= RTO < user timeout.

**When is a hole a loss?** A zero bit of one SACK says little: the packet may have arrived since, may be beyond the
bitmap, or in a SACK that was lost. But a SACK counts all packets that arrived beyond the left edge (ooo_count). When
the requester knows of as many, the report is *complete*: every other packet had not arrived. So a hole is lost when

- a complete report arrives after the loss delay (round trip and a full queue, by which one path may lag behind); or
- the report was complete, the reordering window has passed, and it was overtaken by a packet sent later than
  reordering explains (`reordering`), or left on a port that loses everything (`silence`); or
- the reordering window has passed, and the responder would have reported the packet that fills the last hole; or
- three probes in a row were answered by reports that were not complete.

Without trimming a hole may be reordering by congestion: it must then also lie far behind the highest SACKed PSN.
"""

from openmrc.core.jit import kernel, rare_kernel
from openmrc.engine.congestion import qpcc, reordering, scheduler
from openmrc.engine.paths import ev_states, silence
from openmrc.engine.requester import probes, retries
from openmrc.engine.state import timers
from openmrc.engine.state.queue_pairs import nominal_size, params_of, round_trip, sent_row
from openmrc.engine.state.tables import NONE, Asked, Deadline, Doubt, Engine, Inferred, SentState
from openmrc.units import NEVER

PROBES = 3  # for a complete report; a peer that answers them with none is taken at its bits


@kernel
def on_complete_report(engine: Engine, now: int, qp: int) -> None:
    """Record that the requester knows of every packet that had arrived when the report was made."""
    row = engine.qps[qp]
    row.complete_at = now
    row.loss_probes = 0
    if row.loss_in_doubt != Doubt.NONE:
        timers.arm_by(engine, qp, Deadline.REORDERING, now)


@kernel
def on_evidence(engine: Engine, now: int, qp: int) -> None:
    """Arm the reordering timer after an acknowledgement.

    The scan itself runs in `expire`, when the caller has passed in all received packets: a SACK queued behind this one
    may fill the holes, and after a scheduling delay there is a queue of them.
    """
    row = engine.qps[qp]
    if row.unack_psn == row.next_psn:
        timers.disarm(engine, qp, Deadline.REORDERING)
    elif row.highest_sacked > row.unack_psn:
        hole = _next_hole(engine, qp)
        if hole == NONE and timers.due(engine, qp, Deadline.REORDERING) == NEVER:
            hole = row.unack_psn
        if hole != NONE:
            delay = qpcc.reordering_delay(engine, row.peer)
            due = sent_row(engine, qp, hole).sent_at + _overtaken_after(engine, qp, delay)
            timers.arm_by(engine, qp, Deadline.REORDERING, due)


@kernel
def _next_hole(engine: Engine, qp: int) -> int:
    """Return the first packet sent once, and not reported, for which the reordering timer may not be set; NONE: none.

    The oldest packet would not do: once retransmitted, it is due much later than a hole behind it.
    """
    row = engine.qps[qp]
    psn = max(row.scanned_psn, row.unack_psn)
    while psn < row.highest_sacked:
        sent = sent_row(engine, qp, psn)
        if sent.state == SentState.IN_FLIGHT and sent.transmissions == 1:
            row.scanned_psn = psn
            return int(psn)
        psn += 1
    row.scanned_psn = psn
    return NONE


@rare_kernel
def scan(engine: Engine, now: int, qp: int) -> None:
    """Declare packets lost that were overtaken too far or whose loss delay has passed; arm the timer for the rest."""
    row = engine.qps[qp]
    delay = qpcc.reordering_delay(engine, row.peer)
    least = _overtaken_after(engine, qp, delay)
    following = NEVER
    was_in_doubt, row.loss_in_doubt = row.loss_in_doubt, Doubt.NONE.value
    psn = row.unack_psn
    while psn < row.next_psn:
        sent = sent_row(engine, qp, psn)
        if sent.state == SentState.IN_FLIGHT:
            if sent.sent_at > row.newest_delivered:
                if psn > row.highest_sacked:
                    break  # only first transmissions follow: all sent later
            elif sent.sent_at + least > now:
                following = min(following, sent.sent_at + least)
                if sent.transmissions == 1:
                    break  # what follows was sent later still, and is due later
            else:
                following = min(following, _decide(engine, now, qp, psn, sent.sent_at + least, delay))
        psn += 1
    row.scanned_psn = psn
    if row.loss_in_doubt == Doubt.REPORT:
        following = min(following, _await_report(engine, now, qp, was_in_doubt))
    timers.arm(engine, qp, Deadline.REORDERING, following)
    scheduler.wake(engine, qp)


@kernel
def _decide(engine: Engine, now: int, qp: int, psn: int, early: int, delay: int) -> int:
    """Declare a packet lost or in doubt; return when its loss delay has passed (ps) if that is still to come."""
    row = engine.qps[qp]
    due = sent_row(engine, qp, psn).sent_at + _loss_delay(engine, qp, psn, delay)
    if _is_certain(engine, qp, psn, early, due):
        row.inferred_losses += 1
        declare(engine, now, qp, psn)
        return NEVER
    if due > now:
        row.loss_in_doubt = max(row.loss_in_doubt, Doubt.OVERTAKING.value)
        return due
    row.loss_in_doubt = Doubt.REPORT.value
    return NEVER


@kernel
def _is_certain(engine: Engine, qp: int, psn: int, early: int, due: int) -> bool:
    """Return whether a packet is lost.

    From `early` (ps) on if its arrival would be known, it was overtaken by too much, or sent on a port that loses
    everything; else from `due` on.
    """
    row = engine.qps[qp]
    if row.complete_at >= due or row.loss_probes == PROBES or _would_be_reported(engine, qp, psn):
        return True
    if row.complete_at < early:
        return False
    return silence.is_doubted(engine, qp, sent_row(engine, qp, psn)) or _is_overtaken(engine, qp, psn)


@kernel
def _is_overtaken(engine: Engine, qp: int, psn: int) -> bool:
    """Return whether something has arrived that was sent so much later that reordering does not explain the hole.

    That is a packet of data; without trimming also anything that was sent two round trips later, as a probe of the
    tail.
    """
    row = engine.qps[qp]
    sent_at = sent_row(engine, qp, psn).sent_at
    if not params_of(engine, qp).trimming:
        if row.newest_delivered - sent_at >= qpcc.pto(engine, row.peer):
            return True
        if _has_few_above(engine, qp, psn):
            return False
    newest = sent_row(engine, qp, row.highest_sacked)
    return newest.transmissions == 1 and not reordering.explains(engine, row.peer, newest.sent_at - sent_at)


@kernel
def _would_be_reported(engine: Engine, qp: int, psn: int) -> bool:
    """Return whether a hole would have been reported by now if it had been filled.

    The newest packet itself asked for a report and has arrived; a probe that asked after it binds the responder to one
    answer only. The responder then answers the packet that fills the last hole at once (`sacks.on_arrival`), so silence
    says that it is lost, as in RFC 8985 (6.2); of several holes those are lost that were overtaken by more than was
    seen of late. Where queues stand a hole may wait in one, and without trimming processes delay answers: there a
    report has to say it.
    """
    row = engine.qps[qp]
    newest = sent_row(engine, qp, row.next_psn - 1)
    if newest.state != SentState.ACKED or newest.asked & Asked.BY_ITSELF == 0 or row.complete_at < newest.sent_at:
        return False
    if not params_of(engine, qp).trimming or qpcc.report_age(engine, row.peer) > 0:
        return False
    if not reordering.is_known(engine, row.peer):
        return False
    is_last_hole = row.next_psn - row.unack_psn - row.sacked_beyond == 1
    return bool(is_last_hole or newest.sent_at - sent_row(engine, qp, psn).sent_at > engine.peers[row.peer].reordering)


@rare_kernel
def _await_report(engine: Engine, now: int, qp: int, was_in_doubt: int) -> int:
    """Return when to look again (ps) if no complete report comes; ask for one where none is to be expected."""
    row = engine.qps[qp]
    wait = round_trip(engine, row.peer)
    if was_in_doubt != Doubt.REPORT and now - row.heard_at < engine.peers[row.peer].base_rtt:
        row.loss_asked_at = now  # reports come: one will say it
    elif now - row.loss_asked_at >= wait:
        row.loss_asked_at = now
        probes.ask(engine, now, qp)
        row.loss_probes = min(row.loss_probes + 1, PROBES + 1)
        if timers.due(engine, qp, Deadline.PTO) != NEVER:
            timers.arm(engine, qp, Deadline.PTO, now + qpcc.pto(engine, row.peer))  # this probe serves
    return int(row.loss_asked_at + wait)


@rare_kernel
def on_rto(engine: Engine, now: int, qp: int) -> None:
    """Declare packets lost that have waited for their RTO.

    The RTO timer is armed for the next packet in flight, or for another timeout if there is none: a packet queued for
    retransmission may be acknowledged late and its transport ACK be lost.
    """
    row = engine.qps[qp]
    newest = NONE
    following = NEVER
    for psn in range(row.unack_psn, row.next_psn):
        sent = sent_row(engine, qp, psn)
        if sent.state == SentState.IN_FLIGHT:
            due = retries.due(engine, qp, sent.sent_at)
            if due <= now:
                newest = max(newest, sent.sent_at)
                declare(engine, now, qp, psn)
            else:
                following = min(following, due)
    if newest != NONE and retries.on_failed(engine, now, qp, newest):
        row.timeouts += 1
    timers.arm(engine, qp, Deadline.RTO, following if following != NEVER else now + retries.rto(engine, qp))


@rare_kernel
def declare(engine: Engine, now: int, qp: int, psn: int) -> None:
    """Queue a lost packet for retransmission and report the loss to its path and to congestion control.

    A peer that has answered nothing since blames no path: where no answer returns, all paths would seem to lose.
    """
    row = engine.qps[qp]
    sent = sent_row(engine, qp, psn)
    size = nominal_size(sent.payload)
    engine.ports[engine.endpoints[row.endpoint].port_base + engine.evs[sent.ev].port].lost += 1
    requeue(engine, qp, psn)
    sent.inferred = Inferred.YES
    qpcc.on_loss(engine, now, row.peer, size)
    if engine.peers[row.peer].newest_answered >= sent.sent_at:
        sent.inferred = Inferred.OF_EV
        ev_states.on_lost(engine, now, sent.ev, psn, sent.sent_at)


@kernel
def requeue(engine: Engine, qp: int, psn: int) -> None:
    """Remove a packet from flight and queue it for retransmission."""
    row = engine.qps[qp]
    sent = sent_row(engine, qp, psn)
    sent.state = SentState.LOST
    sent.inferred = Inferred.NO
    row.lost_count += 1
    row.lost_cursor = min(row.lost_cursor, psn)
    count_in_flight(engine, qp, -nominal_size(sent.payload))


@kernel
def count_in_flight(engine: Engine, qp: int, size: int) -> None:
    """Count `size` bytes as in flight, or below zero take them out; the peer's count is the sum of those above zero.

    The count may fall below zero: SACKs round up, and count packets that were taken out as lost. It must not be cut
    off there, or later packets would stay in flight for ever by as much. What a queue pair has below zero is owed by
    its own next packets. Were it taken from the shared window, a thousand idle queue pairs would open that by 256 KB.
    """
    row = engine.qps[qp]
    before = max(row.inflight, 0)
    row.inflight += size
    engine.peers[row.peer].inflight += max(row.inflight, 0) - before


@kernel
def _overtaken_after(engine: Engine, qp: int, delay: int) -> int:
    """Return how long (ps) after its sending a packet can be known to be overtaken, at the earliest."""
    peer = engine.qps[qp].peer
    soonest = engine.peers[peer].srtt + reordering.window(engine, peer)
    return int(max(min(soonest, delay), params_of(engine, qp).loss_delay_floor))


@kernel
def _loss_delay(engine: Engine, qp: int, psn: int, delay: int) -> int:
    """Return how long (ps) after its sending a packet must be missing from the report that arrives then.

    Without trimming the delay that round trips show is doubled while few packets above the hole have arrived, and
    nothing that was sent a round trip later. The floor is not: it allows for processes that are kept from their
    processors, which has nothing to do with reordering.
    """
    params = params_of(engine, qp)
    if not params.trimming and _has_few_above(engine, qp, psn) and not _is_a_round_trip_behind(engine, qp, psn):
        delay *= 2
    return max(delay, params.loss_delay_floor) + qpcc.report_age(engine, engine.qps[qp].peer)


@kernel
def _has_few_above(engine: Engine, qp: int, psn: int) -> bool:
    """Return whether few packets above the hole have arrived: half of what is under way, as far as it may be in queues.

    A path that is longer than supposed holds more, but no longer queues.
    """
    row = engine.qps[qp]
    peer, params = engine.peers[row.peer], params_of(engine, qp)
    share = params.base_rtt / max(peer.base_rtt, params.base_rtt)
    queued = int(share * peer.cwnd) // (2 * nominal_size(row.path_mtu))
    return row.highest_sacked - psn <= max(params.gap_packets, queued)


@kernel
def _is_a_round_trip_behind(engine: Engine, qp: int, psn: int) -> bool:
    """Return whether a packet or a probe has arrived that was sent a round trip later."""
    row = engine.qps[qp]
    return row.newest_delivered - sent_row(engine, qp, psn).sent_at >= engine.peers[row.peer].srtt
