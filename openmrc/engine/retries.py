"""Retry budget of a connection: linear, then exponential timeouts, then ERROR (MRC §7.4.1, Table 7-1).

Timeouts and NACKs for lack of resources count against it; cumulative progress restores it.
"""

from openmrc.core.jit import kernel
from openmrc.engine import lifecycle
from openmrc.engine.queue_pairs import INFINITE_RETRIES
from openmrc.engine.tables import Cause, Engine

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
def patience(engine: Engine, qp: int) -> int:
    """Return the timeout (ps) of the current attempt.

    It is at least srtt + 4 rttvar (RFC 6298, 2.3): where many queue pairs share an endpoint, a healthy peer answers
    later than the timeout of a connection that has the endpoint alone.
    """
    row = engine.qps[qp]
    doublings = min(max(row.retries - row.linear_count, 0), 24)
    peer = engine.peers[row.peer]
    least = max(row.timeout, peer.srtt + 4 * peer.rttvar)
    return min(least << doublings, max(MAX_TIMEOUT, row.timeout))
