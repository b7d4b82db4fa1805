"""Whether a report of the packets in flight is still to come: without one, a closed window does not open."""

from openmrc.core.jit import kernel
from openmrc.engine.congestion import qpcc
from openmrc.engine.state import timers
from openmrc.engine.state.queue_pairs import has_new, last_sent, nominal_size, params_of, round_trip, sent_row
from openmrc.engine.state.tables import Deadline, Engine


@kernel
def ask_if_needed(engine: Engine, now: int, qp: int) -> None:
    """Have a report asked for a round trip after the last packet where none is to come."""
    if is_unasked(engine, qp):
        timers.arm_by(
            engine, qp, Deadline.PTO, max(now, last_sent(engine, qp) + round_trip(engine, engine.qps[qp].peer))
        )


@kernel
def is_unasked(engine: Engine, qp: int) -> bool:
    """Return whether the window is closed, and the newest packet in flight did not ask for a SACK.

    It does not ask while the window has room for more. If the window is cut then, the peer has no reason to report.
    """
    row = engine.qps[qp]
    if not params_of(engine, qp).tail_probe or not has_new(engine, qp):
        return False
    if qpcc.may_send(engine, row.peer, nominal_size(row.path_mtu)):
        return False
    is_anything_in_flight = row.next_psn - row.unack_psn > row.lost_count + row.sacked_beyond
    return bool(is_anything_in_flight and sent_row(engine, qp, row.next_psn - 1).asked == 0)
