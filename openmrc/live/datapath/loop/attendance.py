"""The event loop of an endpoint: its entries. Each takes the sockets, iterates, and leaves them.

The endpoint's thread calls `serve` and stays in it without the interpreter's lock; what needs Python runs in another
thread. User threads submit requests with `post`: while the endpoint's thread is awake its next iteration takes them,
while it sleeps the user's thread iterates itself, so a request leaves at once. Threads that wait or poll attend the
sockets themselves (`leases`), and requests of bursts are sent together (`gathering`). Two mutexes order the iterations:
a thread holds the first while it waits for the second, so a busy thread cannot starve the others.

A completion is given to who waits for it before the packet that brought it is answered, if the one before was followed
by a request at once: the data of that request then leaves first (RFC 1122 4.2.3.2, delayed acknowledgements). Answers
that are left behind go with the next `post`, `poll` or `wait`, or when the endpoint's thread looks after its lease.
"""

from openmrc.core.jit import entry, kernel
from openmrc.engine.endpoint import next_event
from openmrc.engine.state.clock import WRAPS
from openmrc.engine.state.tables import NONE, Engine
from openmrc.live.datapath import handles
from openmrc.live.datapath.libc import drain_eventfd, lock, monotonic, signal_eventfd, try_lock, unlock, yield_processor
from openmrc.live.datapath.loop import gathering, leases, submission, waiting
from openmrc.live.datapath.loop.iteration import ALL_READY, call_send_out, call_take_in
from openmrc.live.datapath.loop.leases import LEASE, QUIET, Attendant, AttendantEvent
from openmrc.live.datapath.loop.waiting import OWN_SLOTS
from openmrc.live.datapath.packets import capture
from openmrc.live.datapath.rows import (
    CLOCK_BYTES,
    CLOCK_OF_THREAD,
    CLOCK_OF_WAITER,
    LOOP_MUTEX,
    NEXT_MUTEX,
    RECORDS,
    SCRATCH_OF_THREAD,
    DataPath,
)
from openmrc.units import PS_PER_S, PS_PER_US

# Packets sent before arrivals are looked at again, in a user's thread per post: two trains, as one system call sends.
SEND_BATCH = 128
SET_BACK = 128 * WRAPS  # ps, 24 days: by how much Python sets the clock back; it comes nowhere near NEVER, 53 days
OLD = 3 * SET_BACK // 2  # when: there are 17 days for it
LONGEST_WAIT = 60 * PS_PER_S  # in one go: the clock is not set back meanwhile
# The endpoint's thread is not woken to be that much less late: half of the least loss delay over sockets, 1 ms.
SLACK = 500 * PS_PER_US

# What entries return
DONE = 0
STOPPED = 1
COMPLETED = 2  # the completion queue has a completion
LATE = 3  # it has none, and the time is over
BUSY = 4  # it has none, and another thread attends the sockets: sleep at the queue's eventfd
READABLE = 5  # the waiter's descriptor is readable
BROKEN = 6  # the engine lost a completion
_GO_ON = -1


@entry
def serve(at: int) -> int:
    """Iterate and sleep until the endpoint is stopped; return STOPPED or BROKEN. For the endpoint's thread only.

    `at`, of every entry, is the address of the table handles.
    """
    engine = handles.engine_at(at)
    datapath = handles.datapath_at(at)
    nic = datapath.nic[0]
    lease = datapath.leases[0]
    ready = ALL_READY
    while not nic.stop:
        acquire(datapath)
        lease.sleeps_until = 0
        nic.iterations += 1
        gathering.judge(datapath)
        was_left = leases.lapse(datapath)
        ready = call_take_in(nic.take_in_at, at, ALL_READY if was_left else ready, 1)
        if was_left:
            leases.judge(datapath)
        call_send_out(nic.send_out_at, at, SEND_BATCH, 0)
        if lease.asked:
            leases.hand_over(datapath)
        _call_python(engine, datapath)
        leases.forget_late(datapath)
        is_leased = lease.until > nic.now
        if is_leased and lease.attendant == Attendant.POLLER:
            ready = 0
        due = leases.next_look(datapath, nic.wake_at)
        if gathering.has_bursts(datapath):
            due = min(due, nic.now + LEASE)
        is_broken = engine.endpoints[nic.endpoint].completions_lost > 0
        lingers = nic.poll_limit > 0 and ready == 0 and nic.handled > QUIET and not is_leased
        if not lingers:
            due = submission.try_sleep(datapath, due)
        release(datapath)
        if is_broken:
            return BROKEN
        if lingers:
            ready = waiting.linger(datapath, nic.planes, due)
        else:
            ready |= _sleep(datapath, 0 if ready != 0 else due, is_leased)
    return STOPPED


@entry
def wait(at: int, cq: int, time: int, descriptor: int) -> int:
    """Wait for a completion of `cq`, at most `time` (ps); return COMPLETED, LATE, BUSY, READABLE or STOPPED.

    `descriptor` ends the wait when it becomes readable; -1: none. LATE comes after `LONGEST_WAIT` at the latest.
    """
    engine = handles.engine_at(at)
    datapath = handles.datapath_at(at)
    nic = datapath.nic[0]
    lease = datapath.leases[0]
    if not _take_sockets(datapath, descriptor):
        return BUSY
    until = monotonic(datapath.clock[CLOCK_OF_WAITER], nic.epoch) + min(time, LONGEST_WAIT)
    ready = 0
    while not nic.stop:
        acquire(datapath)
        is_readable = (ready >> nic.planes) & 1 == 1
        ready = call_take_in(nic.take_in_at, at, ready & ~(1 << nic.planes), 1)
        leases.note_return(datapath)
        if not (waiting.is_completed(datapath, cq) and lease.prompt):
            call_send_out(nic.send_out_at, at, _batch(datapath), 0)
        verdict = _verdict(datapath, cq, is_readable, until)
        due = min(nic.wake_at, until)
        if verdict != _GO_ON:
            leases.leave_sockets(datapath, verdict == COMPLETED, nic.handled > QUIET and _has_more(datapath, ready))
        is_late = _finish(engine, datapath)
        if verdict != _GO_ON:
            if is_late:
                signal_eventfd(nic.wake_fd, 1)
            return verdict
        if ready == 0:
            ready = waiting.rest(datapath, cq, due)
    return STOPPED


@entry
def post(at: int, count: int) -> int:
    """Submit `count` requests of the command ring; if no thread is awake to do it, send them, data before answers."""
    engine = handles.engine_at(at)
    datapath = handles.datapath_at(at)
    nic = datapath.nic[0]
    lease = datapath.leases[0]
    if submission.submit(engine, datapath, count):
        return DONE
    acquire(datapath)
    call_take_in(nic.take_in_at, at, 0, 0)
    leases.prolong(datapath, nic.now + lease.poll_lease)
    # A receive that was posted does not send the answers that data shall precede.
    if engine.endpoints[nic.endpoint].ready_tail != NONE or not lease.prompt:
        leases.note_return(datapath)
        call_send_out(nic.send_out_at, at, _batch(datapath), QUIET)
    if _finish(engine, datapath):
        signal_eventfd(nic.wake_fd, 1)
    return DONE


@entry
def settle(at: int) -> int:
    """Process every submitted request, publish every completion, send; look at no socket."""
    engine = handles.engine_at(at)
    datapath = handles.datapath_at(at)
    nic = datapath.nic[0]
    acquire(datapath)
    call_take_in(nic.take_in_at, at, 0, 0)
    call_send_out(nic.send_out_at, at, _batch(datapath), 0)
    if _finish(engine, datapath):
        signal_eventfd(nic.wake_fd, 1)
    return DONE


@entry
def absorb(at: int) -> int:
    """Take what has arrived and publish it, send nothing; return how many trains came."""
    engine = handles.engine_at(at)
    datapath = handles.datapath_at(at)
    acquire(datapath)
    count = _absorb(datapath, at)
    _finish(engine, datapath)
    return count


@entry
def poll(at: int, cq: int) -> int:
    """Return how many completions `cq` has, after an iteration if it had none. For threads that spin.

    Gathered requests are sent; answers to what brought a completion are sent by the next call that finds none.
    While another thread iterates it is left the processor, for which it may be waiting, and nothing else is waited for:
    the endpoint's thread leaves the sockets after its iteration.
    """
    engine = handles.engine_at(at)
    datapath = handles.datapath_at(at)
    nic = datapath.nic[0]
    lease = datapath.leases[0]
    if not try_acquire(datapath):
        lease.asked = True
        yield_processor()
        return submission.ready(datapath, cq)
    lease.asked = False
    has_gathered = gathering.end_burst(datapath)
    if has_gathered or not waiting.is_completed(datapath, cq):
        leased_until = lease.until if lease.attendant == Attendant.POLLER else 0
        has_arrivals = _absorb(datapath, at) > 0
        is_completed = waiting.is_completed(datapath, cq)
        if is_completed:
            lease.left_at = nic.now
        only_receives = has_arrivals and not is_completed and _posted_nothing(datapath)
        if only_receives and leased_until > nic.now:
            leases.lengthen(datapath)
        if has_gathered or not is_completed or not lease.prompt:
            call_send_out(nic.send_out_at, at, SEND_BATCH, QUIET if has_gathered else 0)
        if only_receives or nic.handled > QUIET:  # to place trains, or to send some, may take longer than a lease
            leases.renew(datapath, monotonic(datapath.clock[0], nic.epoch))
    count = submission.ready(datapath, cq)
    _finish(engine, datapath)
    return count


@entry
def take_events(at: int) -> int:
    """Move the engine's events to `event_records`; return how many, RECORDS if there may be more."""
    engine = handles.engine_at(at)
    datapath = handles.datapath_at(at)
    acquire(datapath)
    datapath.nic[0].called = False
    count = 0
    while count < RECORDS:
        index = next_event(engine, datapath.nic[0].endpoint)
        if index == NONE:
            break
        datapath.event_records[count] = engine.events[index]
        count += 1
    release(datapath)
    return count


@entry
def available(at: int, cq: int) -> int:
    """Return how many records of a completion queue can be read."""
    return submission.available(handles.datapath_at(at), cq)


@entry
def arm(at: int, cq: int, kind: int) -> int:
    """Arm a completion queue (`submission.ANY` or `SOLICITED`) for a program that will sleep at its descriptor.

    A lease of its polls ends, and what it gathered is sent. Return how many records can be read now: none of these
    signals the descriptor.
    """
    datapath = handles.datapath_at(at)
    nic = datapath.nic[0]
    lease = datapath.leases[0]
    lease.asked = False
    count = submission.arm(datapath, cq, kind)
    if lease.attendant == Attendant.POLLER or nic.posted != nic.taken:
        acquire(datapath)
        is_wanted = leases.move(datapath, AttendantEvent.ARM, 0) or (
            lease.sleeps_until != 0 and nic.posted != nic.taken
        )
        release(datapath)
        if is_wanted:
            signal_eventfd(nic.wake_fd, 1)
    return count


ENTRIES = (serve, wait, post, settle, absorb, poll, take_events, available, arm)


@kernel
def acquire(datapath: DataPath) -> None:
    """Acquire the loop mutex; threads get it in turn."""
    nic = datapath.nic[0]
    lock(nic.mutex_at + NEXT_MUTEX)
    lock(nic.mutex_at + LOOP_MUTEX)
    unlock(nic.mutex_at + NEXT_MUTEX)


@kernel
def try_acquire(datapath: DataPath) -> bool:
    """Acquire the loop mutex if no other thread has it or waits for it; return whether this one has it now."""
    nic = datapath.nic[0]
    if try_lock(nic.mutex_at + NEXT_MUTEX) != 0:
        return False
    acquired = try_lock(nic.mutex_at + LOOP_MUTEX) == 0
    unlock(nic.mutex_at + NEXT_MUTEX)
    return bool(acquired)


@kernel
def release(datapath: DataPath) -> None:
    unlock(datapath.nic[0].mutex_at + LOOP_MUTEX)


@kernel
def _finish(engine: Engine, datapath: DataPath) -> bool:
    """End a user thread's iteration; return whether the endpoint's thread sleeps too long for what is due now."""
    nic = datapath.nic[0]
    lease = datapath.leases[0]
    _call_python(engine, datapath)
    is_late = nic.wake_at + SLACK < lease.sleeps_until and lease.attendant != Attendant.POLLER
    release(datapath)
    return bool(is_late)


@kernel
def _batch(datapath: DataPath) -> int:
    """Return how many packets a user's thread may send: none while the endpoint's thread is awake."""
    return SEND_BATCH if datapath.leases[0].sleeps_until != 0 else 0


@kernel
def _take_sockets(datapath: DataPath, descriptor: int) -> bool:
    """Whether a user's thread may wait at the sockets now; if so, it has the lease."""
    acquire(datapath)
    may = leases.take_sockets(datapath)
    if may:
        datapath.poll[waiting.first_of_waiter(datapath) + datapath.nic[0].planes].descriptor = descriptor
    release(datapath)
    return may


@kernel
def _verdict(datapath: DataPath, cq: int, is_readable: bool, until: int) -> int:
    """Return what `wait` returns now, or _GO_ON."""
    nic = datapath.nic[0]
    if waiting.is_completed(datapath, cq):
        return COMPLETED
    if is_readable:
        return READABLE
    return LATE if nic.now >= until else _GO_ON


@kernel
def _has_more(datapath: DataPath, ready: int) -> bool:
    """Whether arrivals lie in the sockets of a thread that waits there; `ready`: planes that are known to have some."""
    first, planes = waiting.first_of_waiter(datapath), datapath.nic[0].planes
    return bool(ready != 0 or waiting.look(datapath, CLOCK_OF_WAITER, first, planes, 0) != 0)


@kernel
def _posted_nothing(datapath: DataPath) -> bool:
    """Whether nothing was posted since the last arrivals that completed nothing: so a server is written to.

    Who posts may leave with its completion, and spin on memory or copy what came then.
    """
    nic = datapath.nic[0]
    lease = datapath.leases[0]
    is_same = nic.posted == lease.received_after
    lease.received_after = nic.posted
    return bool(is_same)


@kernel
def _absorb(datapath: DataPath, at: int) -> int:
    """Take what has arrived, and lease the sockets for a little; return how many trains came."""
    nic = datapath.nic[0]
    ready = ALL_READY
    if nic.planes > 1 and datapath.leases[0].attendant != Attendant.WAITER:  # else the poll slots are the waiter's
        ready = waiting.look(datapath, CLOCK_OF_WAITER, waiting.first_of_waiter(datapath), nic.planes, 0)
    call_take_in(nic.take_in_at, at, ready, 1)
    leases.note_return(datapath)
    leases.renew(datapath, nic.now)
    return int(nic.handled)


@kernel
def _call_python(engine: Engine, datapath: DataPath) -> None:
    """Wake the thread that runs Python if there is work for it."""
    nic = datapath.nic[0]
    if not nic.called and _wants_python(engine, datapath):
        nic.called = True
        signal_eventfd(nic.python_wake_fd, 1)


@kernel
def _wants_python(engine: Engine, datapath: DataPath) -> bool:
    """Whether Python has work: events, an overrun, impairments, changed links, an old clock, captured packets."""
    nic = datapath.nic[0]
    ring = datapath.capture[0]
    if nic.now > OLD:
        return True
    node = engine.endpoints[nic.endpoint]
    if node.event_tail != node.event_head or nic.overruns > 0 or nic.step_at <= nic.now or nic.links_changed:
        return True
    return bool(ring.is_on and ring.tail - ring.head > capture.WORTH)


@kernel
def _sleep(datapath: DataPath, due: int, is_leased: bool) -> int:
    """Sleep until a plane is readable, the thread is woken, or `due` (ps) has come; return the readable planes.

    While the sockets are leased, the thread looks at its eventfd and rtnetlink alone. If a thread that polls has a new
    lease by then, it sleeps on without asking for the loop mutex. Whether they are leased was read with the mutex held,
    as `due` was: a lease that began since then ends earlier than `due`, and nobody would look at the sockets until it.
    """
    nic = datapath.nic[0]
    lease = datapath.leases[0]
    planes = nic.planes
    first = planes if is_leased else 0
    readable = waiting.sleep(datapath, CLOCK_OF_THREAD, first, planes + OWN_SLOTS - first, due) << first
    while readable == 0 and first != 0 and due != 0 and leases.is_polled(datapath):
        due = lease.until
        readable = waiting.sleep(datapath, CLOCK_OF_THREAD, first, OWN_SLOTS, due) << first
    if (readable >> (planes + 1)) & 1 == 1:
        nic.link_news = True
    if (readable >> planes) & 1 == 1:
        drain_eventfd(nic.wake_fd, datapath.clock.ctypes.data + SCRATCH_OF_THREAD * CLOCK_BYTES)
    return readable & ((1 << planes) - 1)
