"""Retry budget of a connection: linear, then exponential timeouts, then ERROR (MRC §7.4.1, Table 7-1).

Timeouts and NACKs for lack of resources count against it; cumulative progress restores it.
"""

from openmrc.core.jit import kernel
from openmrc.engine.congestion import congestion
from openmrc.engine.connection import lifecycle
from openmrc.engine.state.queue_pairs import INFINITE_RETRIES, params_of
from openmrc.engine.state.tables import Cause, Engine

MAX_TIMEOUT = 17_179_869_184_000  # ps: 1.024 us x 2**24


@kernel
def spend(engine: Engine, now: int, qp: int) -> bool:
    """Count one retry; return False if none was left: the queue pair is then in ERROR."""
    row = engine.qps[qp]
    row.retries += 1
    if row.exponential_count < INFINITE_RETRIES and row.retries > row.linear_count + row.exponential_count:
        lifecycle.fail(engine, now, qp, Cause.RETRIES_SPENT)
        return False
    return True


@kernel
def on_heard(engine: Engine, now: int, qp: int) -> None:
    """Note an answer of the peer, and whether it ends a silence."""
    row = engine.qps[qp]
    peer = engine.peers[row.peer]
    row.heard_at = now
    if now - peer.heard_at > congestion.loss_delay(engine, row.peer):
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
    what was lost. After a silence its answers come one after the other.
    """
    row = engine.qps[qp]
    peer = engine.peers[row.peer]
    params = params_of(engine, qp)
    attempt = patience(engine, qp)
    if params.silent_timeouts == 1:
        return sent_at + attempt
    delay = congestion.loss_delay(engine, row.peer)
    if peer.newest_answered < sent_at + delay:
        return sent_at + max(attempt, min(params.silent_timeouts * _timeout(engine, qp), MAX_TIMEOUT))
    return max(sent_at + attempt, peer.resumed_at + delay)


@kernel
def patience(engine: Engine, qp: int) -> int:
    """Return the timeout (ps) of the current attempt."""
    row = engine.qps[qp]
    doublings = min(max(row.retries - row.linear_count, 0), 24)
    return min(_timeout(engine, qp) << doublings, max(MAX_TIMEOUT, row.timeout))


@kernel
def _timeout(engine: Engine, qp: int) -> int:
    """Return the timeout (ps) of a linear attempt.

    It is at least srtt + 4 rttvar (RFC 6298, 2.3): where many queue pairs share an endpoint, a healthy peer answers
    later than the timeout of a connection that has the endpoint alone.
    """
    row = engine.qps[qp]
    peer = engine.peers[row.peer]
    return max(row.timeout, peer.srtt + 4 * peer.rttvar)
