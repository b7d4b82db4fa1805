"""The event loop of an endpoint, compiled as one: requests, arrivals, deadlines, departures, sleep.

The endpoint's thread calls `run` and stays in it without the interpreter's lock; what needs Python runs in another
thread. User threads submit requests: while the endpoint's thread is awake its next iteration takes them, while it
sleeps the user's thread iterates itself, so a request leaves at once. Two mutexes order the iterations: a thread holds
the first while it waits for the second, so a busy thread cannot starve the others.

A user's thread that waits for a completion while traffic is low waits at the sockets itself: an answer then wakes one
thread, not two in turn. It leases the sockets for a little longer than its wait, because programs often wait again at
once; the endpoint's thread sleeps on its eventfd meanwhile. When traffic picks up the lease ends at once.
"""

from __future__ import annotations

from enum import IntEnum

from openmrc.core.jit import entry, kernel
from openmrc.engine.endpoint import expire, next_deadline, next_event
from openmrc.engine.state.clock import WRAPS
from openmrc.engine.state.tables import NONE, Engine
from openmrc.live.datapath import capture, impair, link_state, pacing, receive, submission, table_handles, transmit
from openmrc.live.datapath.datapath_tables import LOOP_MUTEX, NEXT_MUTEX, RECORDS, DataPath
from openmrc.live.datapath.libc import POLL_BYTES, drain_eventfd, lock, monotonic, signal_eventfd, unlock, wait_for
from openmrc.units import NEVER, PS_PER_NS, PS_PER_S, PS_PER_US

SEND_BATCH = 128  # packets sent before arrivals are looked at again; in a user's thread, per post
OWN_SLOTS = 2  # descriptors that only the endpoint's thread polls: its eventfd, rtnetlink
CLOCK_BYTES = 16  # a row of `clock`; row 0 belongs to the holder of the loop mutex
CLOCK_OF_THREAD, SCRATCH_OF_THREAD, CLOCK_OF_WAITER = 1, 2, 3
_LONGEST_SLEEP = 10_000  # s
ALL_READY = (1 << 16) - 1
GO_ON = -1
SET_BACK = 128 * WRAPS  # ps, 24 days: by how much Python sets the clock back; it comes nowhere near NEVER, 53 days
OLD = 3 * SET_BACK // 2  # when: there are 17 days for it
QUIET = 4  # packets and trains of one iteration up to which traffic is low
SLACK = 500 * PS_PER_US  # the endpoint's thread is not woken to be that much less late
BACKLOG = 2000 * PS_PER_US  # how long deadlines wait for a backlog of arrivals to be read
LEASE = 1000 * PS_PER_US  # how long sockets may stay unattended after a wait


class Mode(IntEnum):
    """How long a thread stays in `run`."""

    ITERATE = 0  # one iteration
    STAY = 1  # the endpoint's thread: until it is stopped
    WAIT = 2  # a user's thread: until its completion queue has a completion
    POST = 3  # submit requests, and iterate if no other thread is awake to do it


# What `run` returns
DONE = 0
STOPPED = 1
COMPLETED = 2  # WAIT: the completion queue has a completion
NOTHING = 3  # WAIT: none, or traffic is too high to wait at the sockets
BROKEN = 4  # STAY: the engine lost a completion


@entry
def run(at: int, mode: int, what: int, cq: int) -> int:
    """Iterate as `mode` says; return one of the constants above.

    `at` is the address of the table handles, `what` how long (ps) to WAIT at most, or how many requests to POST,
    `cq` the completion queue to WAIT for.
    """
    engine = table_handles.engine_at(at)
    datapath = table_handles.datapath_at(at)
    nic = datapath.nic[0]
    looks = mode == Mode.STAY or mode == Mode.WAIT
    ready = ALL_READY if looks else 0
    if mode == Mode.POST and submission.submit(datapath, what):
        return DONE
    if mode == Mode.WAIT:
        if not _may_wait(datapath):
            return NOTHING
        what += monotonic(datapath.clock[CLOCK_OF_WAITER], nic.epoch)
    while nic.stop == 0:
        acquire(datapath)
        if mode == Mode.STAY:
            nic.sleeps_until = 0
            nic.iterations += 1
        ready = _iterate(engine, datapath, ready, _batch(datapath, mode), looks)
        verdict = _verdict(engine, datapath, mode, what, cq)
        due = nic.wake_at
        if mode == Mode.STAY and nic.leased_until > nic.now:
            due = min(due, nic.now + LEASE)
        is_late = due + SLACK < nic.sleeps_until
        if mode == Mode.STAY:
            due = submission.try_sleep(datapath, due)
        release(datapath)
        if mode != Mode.STAY and is_late and verdict >= 0:
            signal_eventfd(nic.wake_fd, 1)
        if verdict >= 0:
            return verdict
        ready |= _sleep(datapath, mode, min(due, what) if mode == Mode.WAIT else due, ready)
    return STOPPED


@kernel
def _batch(datapath: DataPath, mode: int) -> int:
    """Return how many packets this iteration may send: none in a user's thread while the endpoint's thread is awake."""
    return SEND_BATCH if mode == Mode.STAY or datapath.nic[0].sleeps_until != 0 else 0


@kernel
def _may_wait(datapath: DataPath) -> bool:
    """Whether a user's thread may wait at the sockets now; if so, it has the lease."""
    nic = datapath.nic[0]
    acquire(datapath)
    may = nic.waiting == 0 and nic.handled <= QUIET and nic.sleeps_until != 0
    if may:
        nic.waiting = 1
        nic.leased_until = NEVER
    release(datapath)
    return may


@kernel
def _verdict(engine: Engine, datapath: DataPath, mode: int, until: int, cq: int) -> int:
    """Return what `run` returns now, or GO_ON."""
    nic = datapath.nic[0]
    if nic.called == 0 and _wants_python(engine, datapath):
        nic.called = 1
        signal_eventfd(nic.python_wake_fd, 1)
    if mode == Mode.ITERATE or mode == Mode.POST:
        return DONE
    if mode == Mode.STAY:
        return BROKEN if engine.endpoints[nic.endpoint].completions_lost > 0 else GO_ON
    is_completed = datapath.cqs[cq].published != datapath.cqs[cq].taken
    is_busy = nic.handled > QUIET
    if not is_completed and not is_busy and nic.now < until:
        return GO_ON
    nic.waiting = 0
    nic.leased_until = nic.now + LEASE
    if is_busy:
        nic.leased_until = 0
        nic.wake_at = 0  # the endpoint's thread takes over at once
    return COMPLETED if is_completed else NOTHING


@kernel
def _wants_python(engine: Engine, datapath: DataPath) -> bool:
    """Whether Python has work: events, an overrun, impairments, changed links, an old clock, captured packets."""
    nic = datapath.nic[0]
    if nic.now > OLD:
        return True
    node = engine.endpoints[nic.endpoint]
    if node.event_tail != node.event_head or nic.overruns > 0 or nic.step_at <= nic.now or nic.links_changed == 1:
        return True
    return nic.capturing == 1 and capture.is_worth_writing(datapath)


@kernel
def acquire(datapath: DataPath) -> None:
    """Acquire the loop mutex; threads get it in turn."""
    nic = datapath.nic[0]
    lock(nic.mutex_at + NEXT_MUTEX)
    lock(nic.mutex_at + LOOP_MUTEX)
    unlock(nic.mutex_at + NEXT_MUTEX)


@kernel
def release(datapath: DataPath) -> None:
    """Release the loop mutex."""
    unlock(datapath.nic[0].mutex_at + LOOP_MUTEX)


@entry
def take_events(at: int) -> int:
    """Move the engine's events to `event_records`; return how many, RECORDS if there may be more."""
    engine = table_handles.engine_at(at)
    datapath = table_handles.datapath_at(at)
    acquire(datapath)
    datapath.nic[0].called = 0
    count = 0
    while count < RECORDS:
        index = next_event(engine, datapath.nic[0].endpoint)
        if index == NONE:
            break
        event = engine.events[index]
        record = datapath.event_records[count]
        record.kind = event.kind
        record.qp = event.qp
        record.port = event.port
        record.entropy = event.entropy
        record.state = event.state
        record.cause = event.cause
        count += 1
    release(datapath)
    return count


@entry
def available(at: int, cq: int) -> int:
    """Return how many records of a completion queue can be read."""
    return submission.available(table_handles.datapath_at(at), cq)


@kernel
def _iterate(engine: Engine, datapath: DataPath, ready: int, batch: int, looks: bool) -> int:
    """Process requests, receive from the ready planes, send; return the planes that may have more.

    Only a thread that `looks` at the sockets serves deadlines, after every plane: what is missing may lie in a socket.
    """
    nic = datapath.nic[0]
    nic.now = monotonic(datapath.clock[0], nic.epoch)
    if nic.link_news == 1:
        link_state.read_news(engine, datapath)
    if nic.capturing == 1 and capture.must_wait(datapath):
        nic.handled = 0
        nic.wake_at = nic.now
        return 0  # sockets that are still readable are found by the next poll
    submission.process_requests(engine, datapath)
    left = 0
    nic.handled = 0
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
            receive.deliver(engine, datapath)
    if is_due:
        _expire(engine, datapath, left == 0)
    sent = transmit.send_waiting(engine, datapath, batch)
    nic.handled += sent
    submission.publish_completions(engine, datapath)
    step_at = nic.step_at if nic.called == 0 else NEVER
    due = min(next_deadline(engine, nic.endpoint), impair.next_release(datapath), step_at)
    due = min(due, pacing.next_opening(engine, datapath))
    nic.wake_at = 0 if sent >= batch else due
    return left


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


@kernel
def _sleep(datapath: DataPath, mode: int, due: int, ready: int) -> int:
    """Sleep until a socket is readable, the thread is woken, or `due` (ps) has come; return the readable planes.

    A waiter sleeps on the sockets, the endpoint's thread also on its eventfd and on rtnetlink, or on those two alone
    while the sockets are leased.
    """
    nic = datapath.nic[0]
    row = CLOCK_OF_WAITER if mode == Mode.WAIT else CLOCK_OF_THREAD
    first = nic.planes + OWN_SLOTS if mode == Mode.WAIT else 0
    count = nic.planes
    if mode == Mode.STAY:
        count += OWN_SLOTS
        if nic.leased_until > nic.now:
            first = nic.planes
            count = OWN_SLOTS
    wait = 0
    if nic.busy_poll == 0 and ready == 0 and due > 0:
        wait = min(max(due - monotonic(datapath.clock[row], nic.epoch), 0), _LONGEST_SLEEP * PS_PER_S)
    if wait > 0:
        nic.sleeps += 1
    datapath.clock[row, 0] = wait // PS_PER_S
    datapath.clock[row, 1] = wait % PS_PER_S // PS_PER_NS
    readable = 0
    if wait_for(nic.poll_at + first * POLL_BYTES, count, datapath.clock.ctypes.data + row * CLOCK_BYTES, 0) > 0:
        for index in range(count):
            if datapath.poll[first + index].events >> 16:
                readable |= 1 << index
    if mode == Mode.WAIT:
        return readable
    if first == nic.planes:
        readable <<= nic.planes  # only its own two descriptors were asked
    if (readable >> (nic.planes + 1)) & 1 == 1:
        nic.link_news = 1
    if (readable >> nic.planes) & 1 == 1:
        drain_eventfd(nic.wake_fd, datapath.clock.ctypes.data + SCRATCH_OF_THREAD * CLOCK_BYTES)
    return readable & ((1 << nic.planes) - 1)
