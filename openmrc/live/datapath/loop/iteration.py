"""One iteration of the event loop, in two halves that are compiled once each.

`take_in` reads requests and arrivals, serves deadlines and publishes completions; `send_out` sends. A caller that was
given a completion can thus act on it before anything is sent. Both hold most of the engine, so other entries reach them
by address (`Nic.take_in_at`, `Nic.send_out_at`). Neither locks: the caller holds the loop mutex.
"""

from openmrc.core.calls import by_address
from openmrc.core.jit import entry, kernel
from openmrc.engine.endpoint import expire, next_deadline
from openmrc.engine.state.tables import Engine
from openmrc.live.datapath import handles
from openmrc.live.datapath.libc import monotonic
from openmrc.live.datapath.loop import link_state, submission
from openmrc.live.datapath.packets import capture, impair, pacing, receive, transmit
from openmrc.live.datapath.rows import DataPath
from openmrc.units import NEVER, PS_PER_US

ALL_READY = (1 << 16) - 1
# A thread that was kept from its processor comes back to full sockets. 2 ms is twice the least loss delay over sockets:
# who waits longer for what lies in them would resend it.
BACKLOG = 2000 * PS_PER_US


@entry
def take_in(at: int, ready: int, looks: int) -> int:
    """Process requests, receive from the planes of the mask `ready`, publish; return the planes that may have more.

    Only a thread that `looks` (1) at the sockets serves deadlines, after every plane: what is missing may lie there.
    """
    return absorb_into(handles.engine_at(at), handles.datapath_at(at), ready, looks == 1)


@entry
def send_out(at: int, limit: int, data_ahead: int) -> int:
    """Send at most about `limit` packets, the first `data_ahead` of them data; set `wake_at`; return how many went."""
    return emit_from(handles.engine_at(at), handles.datapath_at(at), limit, data_ahead)


call_take_in, call_send_out = by_address(take_in), by_address(send_out)


@kernel
def absorb_into(engine: Engine, datapath: DataPath, ready: int, looks: bool) -> int:
    """Do the first half of an iteration, see `take_in`."""
    nic = datapath.nic[0]
    ring = datapath.capture[0]
    nic.now = monotonic(datapath.clock[0], nic.epoch)
    nic.handled = 0
    if nic.link_news:
        link_state.read_news(engine, datapath)
    nic.halted = ring.is_on and capture.must_wait(datapath)
    if nic.halted:
        return 0  # sockets that are still readable are found by the next poll
    submission.process_requests(engine, datapath)
    left = 0
    is_due = looks and next_deadline(engine, nic.endpoint) <= nic.now
    if is_due:
        ready = ALL_READY
    for plane in range(nic.planes + 1):
        if plane == nic.planes:
            if nic.held > 0:
                impair.release(datapath)
        elif (ready >> plane) & 1 == 1 and receive.take(datapath, plane):
            left |= 1 << plane
        nic.handled += nic.trains
        if nic.trains > 0:
            submission.process_requests(engine, datapath)  # receives that were posted before this was sent
            receive.deliver(engine, datapath)
    if is_due:
        _expire(engine, datapath, left == 0)
    submission.publish_completions(engine, datapath)
    nic.wake_at = _due(engine, datapath)
    return left


@kernel
def emit_from(engine: Engine, datapath: DataPath, limit: int, data_ahead: int) -> int:
    """Do the second half of an iteration, see `send_out`."""
    nic = datapath.nic[0]
    if nic.halted:
        nic.wake_at = nic.now
        return 0
    sent = transmit.send_waiting(engine, datapath, limit, data_ahead)
    nic.handled += sent
    due = min(_due(engine, datapath), pacing.next_opening(engine, datapath))
    nic.wake_at = 0 if sent >= limit else due
    return sent


@kernel
def _due(engine: Engine, datapath: DataPath) -> int:
    """Return when (ps) a deadline, a packet that impairments hold back, or a step of theirs comes next."""
    nic = datapath.nic[0]
    step_at = NEVER if nic.called else nic.step_at
    return int(min(next_deadline(engine, nic.endpoint), impair.next_release(datapath), step_at))


@kernel
def _expire(engine: Engine, datapath: DataPath, has_read_all: bool) -> None:
    """Serve deadlines once every arrival was read, or reading them takes too long.

    The time counts from when the deadline was first seen: a thread that was kept from its processor comes back late,
    and what would have kept its deadlines lies in the sockets.
    """
    nic = datapath.nic[0]
    if nic.overdue_since == 0:
        nic.overdue_since = nic.now
    if has_read_all or nic.now - nic.overdue_since >= BACKLOG:
        nic.overdue_since = 0
        expire(engine, nic.now, nic.endpoint)
