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
<<<<<<< HEAD
    """Return the timeout (ps) of the attempt that runs now.

    It is at least what RFC 6298 (2.3) makes of the round trips measured: where many queue pairs share an endpoint,
    the answer of a peer that is well takes longer than the timeout of a connection that has it alone.
    """
=======
    """Return the timeout (ps) of the current attempt."""
>>>>>>> engine
    row = engine.qps[qp]
    doublings = min(max(row.retries - row.linear_count, 0), 24)
    peer = engine.peers[row.peer]
    least = max(row.timeout, peer.srtt + 4 * peer.rttvar)
    return min(least << doublings, max(MAX_TIMEOUT, row.timeout))
