"""How long a queue pair may make no progress before it fails: TCP's user timeout (RFC 5482; MRC §7.4.1).

The retransmission timeout, the tail probe and the reordering window decide when something is sent again (`retries`,
`requester.on_pto`, `loss`). None of them ends a connection. Time does, counted so:

- It runs while something is outstanding: a packet that is not acknowledged, a write without its transport ACK, a write
  that cannot leave because no path works. It does not run while other queue pairs fill the window of a peer that
  answers them.
- A packet that arrived, on any plane, or a completed write is progress, and restores all of it. An answer that brings
  neither, such as that to a probe or a NACK, is none: small packets pass where the path MTU has shrunk.
- Time in which this endpoint did not run does not count: the answers lie in its sockets. It did not if its timers are
  served late by more than STALL: a process without a processor, SIGSTOP, a suspended machine.

MRC states a budget of retries instead, so many timeouts of one length, then so many that double (Table 7-1). A queue
pair without a user timeout has the time that this takes when nothing is answered.
"""

from openmrc.core.jit import kernel, rare_kernel
from openmrc.engine.congestion import qpcc
from openmrc.engine.state import timers
from openmrc.engine.state.queue_pairs import (
    INFINITE_RETRIES,
    nominal_size,
    params_of,
    receives_data,
    usable_ports,
    wants_to_send,
)
from openmrc.engine.state.tables import Deadline, Engine
from openmrc.units import NEVER, PS_PER_MS

MAX_TIMEOUT = 17_179_869_184_000  # ps: 1.024 us x 2**24
STALL = 100 * PS_PER_MS  # ours: 30 processes with time slices of 3 ms keep a thread waiting for less
LONGEST_PAUSE = 250 * PS_PER_MS  # ours: it leaves all of four timeouts of 67 ms, which most programs ask verbs for
_ATTEMPTS_BITS = 4  # ours: the RTO grows to a sixteenth of the user timeout
_LOOKS = 32  # at progress, in one user timeout


@kernel
def begin(engine: Engine, now: int, qp: int) -> None:
    """Start the retransmission timer and the user timeout of a queue pair that had nothing outstanding."""
    row = engine.qps[qp]
    row.no_progress_since = now
    row.progress_seen = _progress(engine, qp)
    timers.arm(engine, qp, Deadline.RTO, now + row.timeout)


@rare_kernel
def is_over(engine: Engine, now: int, qp: int) -> bool:
    """Return whether a queue pair has made no progress for its user timeout."""
    row = engine.qps[qp]
    progress = _progress(engine, qp)
    if progress != row.progress_seen:
        row.progress_seen = progress
        row.no_progress_since = max(row.no_progress_since, row.heard_at)
    elif _waits_its_turn(engine, qp):
        row.no_progress_since = max(row.no_progress_since, engine.peers[row.peer].heard_at)
    return now - row.no_progress_since >= allowed(engine, qp)


@kernel
def next_look(engine: Engine, now: int, qp: int) -> int:
    """Return when (ps) `is_over` has to be asked again."""
    time = allowed(engine, qp)
    return int(min(engine.qps[qp].no_progress_since + time, now + max(time // _LOOKS, 1), NEVER))


@rare_kernel
def pardon(engine: Engine, now: int, endpoint: int, late: int) -> None:
    """Take the time for which an endpoint did not run, `late` ps until now, from the silence of its peers."""
    node = engine.endpoints[endpoint]
    for qp in range(node.qp_base, node.qp_base + node.qp_count):
        row = engine.qps[qp]
        if receives_data(row.state):
            row.no_progress_since = min(row.no_progress_since + late, now)


@rare_kernel
def allowed(engine: Engine, qp: int) -> int:
    """Return the user timeout (ps) of a queue pair; NEVER: it has none."""
    row = engine.qps[qp]
    if row.user_timeout > 0:
        return row.user_timeout
    if row.exponential_count >= INFINITE_RETRIES:
        return NEVER
    least = unanswered_rto(engine, qp)
    time = 0
    for attempt in range(row.linear_count + row.exponential_count + 1):
        time += max(rto_of_attempt(engine, qp, attempt), least)
    return int(time)


@kernel
def rto_of_attempt(engine: Engine, qp: int, attempt: int) -> int:
    """Return the timeout (ps) of an attempt, counted from 0 since the last progress.

    With a user timeout of its own a queue pair makes several attempts within it.
    """
    row = engine.qps[qp]
    doublings = min(max(attempt - row.linear_count, 0), 24)
    longest = MAX_TIMEOUT if row.user_timeout == 0 else min(row.user_timeout >> _ATTEMPTS_BITS, MAX_TIMEOUT)
    once = first_rto(engine, qp)
    return min(once << doublings, max(longest, once))


@kernel
def first_rto(engine: Engine, qp: int) -> int:
    """Return the timeout (ps) of a linear attempt.

    It is at least srtt + 4 rttvar (RFC 6298, 2.3): where many queue pairs share an endpoint, a healthy peer answers
    later than the timeout of a connection that has the endpoint alone. On a path longer than the timeout, as between
    two sites, nothing else leaves time: a quarter of srtt is the least for what varies, and before the first sample the
    RTO is what a sample of the base would make it.
    """
    row = engine.qps[qp]
    peer = engine.peers[row.peer]
    srtt = peer.srtt
    measured = 3 * peer.base_rtt if srtt == 0 else srtt + max(4 * peer.rttvar, srtt >> 2)
    return max(row.timeout, measured)


@kernel
def unanswered_rto(engine: Engine, qp: int) -> int:
    """Return the least timeout (ps) of an attempt of which the peer has answered nothing at all.

    A peer that is kept from its processor has several timeouts (`silent_timeouts`). Long timeouts do not make its pause
    longer, so the time beyond the first is bounded.
    """
    once = first_rto(engine, qp)
    return int(min(params_of(engine, qp).silent_timeouts * once, once + LONGEST_PAUSE, MAX_TIMEOUT))


@kernel
def _progress(engine: Engine, qp: int) -> int:
    """Return how many packets are known to have arrived, and how many writes completed."""
    row = engine.qps[qp]
    return int(row.unack_psn + row.sacked_beyond + row.message_head)


@kernel
def _waits_its_turn(engine: Engine, qp: int) -> bool:
    """Return whether a queue pair has nothing in flight and could send, were the window of the peer not full."""
    row = engine.qps[qp]
    in_flight = row.next_psn - row.unack_psn - row.lost_count - row.sacked_beyond
    if in_flight > 0 or not wants_to_send(engine, qp) or usable_ports(engine, qp) == 0:
        return False
    return not qpcc.may_send(engine, row.peer, nominal_size(row.path_mtu))
