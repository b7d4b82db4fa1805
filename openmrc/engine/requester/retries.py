"""Retransmission timeout of a queue pair (RTO, RFC 6298; MRC §7.4.1, Table 7-1): linear, then exponential.

An attempt is everything that was sent since the last time-out. It has failed when the first of it has waited for the
RTO; the other packets of it time out a little later, each when its own time has passed, and are no further attempt.
The RTO is the same for `linear_count` attempts, then doubles with each. Progress ends the back-off. What ends the
connection is time without progress: `user_timeout`.
"""

from openmrc.core.jit import kernel, rare_kernel
from openmrc.engine import user_timeout
from openmrc.engine.congestion import qpcc
from openmrc.engine.state import timers
from openmrc.engine.state.queue_pairs import params_of
from openmrc.engine.state.tables import Deadline, Engine
from openmrc.units import NEVER


@rare_kernel
def on_failed(engine: Engine, now: int, qp: int, sent_at: int) -> bool:
    """Count one failed attempt if what was sent at `sent_at` (ps) and failed belongs to the current one."""
    row = engine.qps[qp]
    if sent_at < row.attempt_at:
        return False
    row.attempt_at = now
    row.retries = min(row.retries + 1, 1 << 20)
    return True


@kernel
def on_progress(engine: Engine, now: int, qp: int) -> None:
    """End the back-off: what is in flight has the time of a first attempt from now on (RFC 6298, 5.3)."""
    row = engine.qps[qp]
    if row.retries > 0 or row.tail_probes > 0:
        _end_backoff(engine, now, qp)


@rare_kernel
def _end_backoff(engine: Engine, now: int, qp: int) -> None:
    row = engine.qps[qp]
    row.retries = 0
    row.tail_probes = 0
    timers.arm_by(engine, qp, Deadline.RTO, now + rto(engine, qp))
    if timers.due(engine, qp, Deadline.PTO) != NEVER:
        timers.arm_by(engine, qp, Deadline.PTO, now + qpcc.pto(engine, row.peer))


@kernel
def on_heard(engine: Engine, now: int, qp: int) -> None:
    """Note an answer of the peer, and whether it ends a pause."""
    row = engine.qps[qp]
    peer = engine.peers[row.peer]
    row.heard_at = now
    if now - peer.heard_at > qpcc.loss_delay(engine, row.peer):
        peer.resumed_at = now
    peer.heard_at = now


@kernel
def on_answered(engine: Engine, peer: int, sent_at: int) -> None:
    """Record that a peer has answered a packet or probe that was sent at `sent_at` (ps), on any queue pair."""
    row = engine.peers[peer]
    row.newest_answered = max(row.newest_answered, sent_at)


@kernel
def due(engine: Engine, qp: int, sent_at: int) -> int:
    """Return when (ps) a packet sent at `sent_at` has waited long enough in the current attempt.

    A peer that has answered nothing sent since, on any queue pair, has more time: not a packet is missing then but
    the peer, which may be kept from its processor. To send again would help nobody; its first answer to a probe shows
    what was lost. After a pause its answers come one after the other.
    """
    row = engine.qps[qp]
    peer = engine.peers[row.peer]
    params = params_of(engine, qp)
    attempt = rto(engine, qp)
    if params.silent_timeouts == 1:
        return sent_at + attempt
    delay = qpcc.loss_delay(engine, row.peer)
    if peer.newest_answered < sent_at + delay:
        return sent_at + max(attempt, user_timeout.unanswered_rto(engine, qp))
    return max(sent_at + attempt, peer.resumed_at + delay)


@kernel
def rto(engine: Engine, qp: int) -> int:
    """Return the RTO (ps) of the current attempt."""
    return user_timeout.rto_of_attempt(engine, qp, engine.qps[qp].retries)
