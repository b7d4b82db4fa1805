"""The loop of an endpoint, compiled as one: commands, arrivals, deadlines, departures, sleep.

The endpoint's thread calls `drive` and stays in it, without the interpreter's lock, until there is
something for Python to do. Users' threads call it too, for one turn, to post: what they post leaves
at once, in their own thread. A pair of mutexes keeps them apart: whoever wants in next holds the
first while waiting for the second, so a busy thread cannot starve the others.
"""

from __future__ import annotations

from openmrc.core.jit import entry, kernel
from openmrc.engine.endpoint import expire, next_completion, next_deadline, post_receive, post_write
from openmrc.engine.tables import NONE, Engine
from openmrc.live import arrive, fates, transmit
from openmrc.live.system import lock, monotonic, read_bell, ring_bell, unlock, wait_for
from openmrc.live.tables import ARRIVALS, Wires
from openmrc.units import PS_PER_NS, PS_PER_S
from openmrc.wire.layout import Matrix

NOT_DONE = -1
SEND_BATCH = 128  # packets sent before arrivals are looked at again
USER_BATCH = 64  # packets that a user's thread sends
WORDS_OF_A_MUTEX = 64  # bytes
CLOCK_BYTES = 16  # a row of `clock`: 0 for whoever is in, 1 and 2 for the thread that sleeps
_LONGEST_SLEEP = 10_000  # s
ALL_READY = (1 << 16) - 1


@entry
def drive(engine: Engine, wires: Wires, stay: int) -> int:
    """Take one turn, or with `stay` turn after turn; return 1 when the thread shall end, 0 otherwise."""
    nic = wires.nic[0]
    ready = ALL_READY if stay == 1 else 0
    while nic.stop == 0:
        enter(wires)
        if stay == 1:
            nic.sleeps_until = 0
            nic.turns += 1
        ready = _turn(engine, wires, ready, SEND_BATCH if stay == 1 else USER_BATCH)
        due = nic.wake_at
        is_late = due < nic.sleeps_until
        if stay == 1:
            nic.sleeps_until = due
        is_wanted = _wants_python(engine, wires)
        leave(wires)
        if stay == 0:
            if is_late:
                ring_bell(nic.bell, 1)
            return 0
        if is_wanted:
            return 0
        ready |= _sleep(wires, due if ready == 0 else 0)
    return 1


@kernel
def _wants_python(engine: Engine, wires: Wires) -> bool:
    """Whether there are events to tell, impairments to change, or half a buffer of captured packets to write."""
    nic = wires.nic[0]
    node = engine.endpoints[nic.endpoint]
    if node.event_tail != node.event_head or nic.step_at <= nic.now:
        return True
    return nic.capturing == 1 and 2 * (nic.capture_tail - nic.capture_head) > len(wires.captured)


@kernel
def enter(wires: Wires) -> None:
    """Wait for one's turn."""
    nic = wires.nic[0]
    lock(nic.mutex_at)
    lock(nic.mutex_at + WORDS_OF_A_MUTEX)
    unlock(nic.mutex_at)


@kernel
def leave(wires: Wires) -> None:
    """Let the next one in."""
    unlock(wires.nic[0].mutex_at + WORDS_OF_A_MUTEX)


@entry
def collect(engine: Engine, wires: Wires, rows: Matrix, limit: int) -> int:
    """Move completions into `rows` (kind, qp, wr_id, status, length, immediate, has_immediate, solicited)."""
    enter(wires)
    count = 0
    while count < limit:
        index = next_completion(engine, wires.nic[0].endpoint)
        if index == NONE:
            break
        done = engine.completions[index]
        row = rows[count]
        row[0] = done.kind
        row[1] = done.qp
        row[2] = done.wr_id
        row[3] = done.status
        row[4] = done.length
        row[5] = done.immediate
        row[6] = done.has_immediate
        row[7] = done.solicited
        count += 1
    leave(wires)
    return count


@kernel
def _turn(engine: Engine, wires: Wires, ready: int, batch: int) -> int:
    """Post, take what has arrived on the ready planes, send what there is; return the planes that may have more."""
    nic = wires.nic[0]
    nic.now = monotonic(wires.clock[0])
    if nic.commands > 0:
        _run_commands(engine, wires)
    left = 0
    for plane in range(nic.planes + 1):
        if plane == nic.planes:
            if nic.held > 0:
                fates.release(wires)
        elif (ready >> plane) & 1 == 1 and arrive.take(wires, plane) == ARRIVALS:
            left |= 1 << plane
        if nic.trains > 0:
            arrive.deliver(engine, wires)
    expire(engine, nic.now, nic.endpoint)
    is_full = transmit.send_waiting(engine, wires, batch) >= batch
    _announce(engine, wires)
    due = min(next_deadline(engine, nic.endpoint), fates.next_release(wires), nic.step_at)
    nic.wake_at = 0 if is_full else due
    return left


@kernel
def _announce(engine: Engine, wires: Wires) -> None:
    nic = wires.nic[0]
    node = engine.endpoints[nic.endpoint]
    while nic.announced < node.completion_tail:
        done = engine.completions[node.completion_base + (nic.announced & node.completion_mask)]
        nic.announced += 1
        index = wires.bell_of[2 * done.qp + done.kind, 0]
        if index != NONE:
            bell = wires.bells[index]
            if bell.armed == 1 or (bell.armed == 2 and (done.solicited == 1 or done.status != 0)):
                bell.armed = 0
                ring_bell(bell.descriptor, 1)


@kernel
def _run_commands(engine: Engine, wires: Wires) -> None:
    nic = wires.nic[0]
    for index in range(nic.commands):
        row = wires.commands[index]
        if row.is_receive == 1:
            row.status = post_receive(engine, row.qp, row.wr_id)
        else:
            row.status = post_write(
                engine,
                nic.now,
                row.qp,
                row.wr_id,
                row.local,
                row.length,
                row.va,
                row.r_key,
                row.immediate,
                row.has_immediate,
                row.solicited,
                row.signaled,
            )
        if row.status != 0:
            break
    nic.commands = 0


@kernel
def _sleep(wires: Wires, due: int) -> int:
    """Sleep until a socket or the bell is readable, or `due` (ps) has come; return the mask of readable planes."""
    nic = wires.nic[0]
    if nic.busy_poll == 1 or due == 0:
        wait = 0
    else:
        wait = min(max(due - monotonic(wires.clock[1]), 0), _LONGEST_SLEEP * PS_PER_S)
    if wait > 0:
        nic.sleeps += 1
    wires.clock[1, 0] = wait // PS_PER_S
    wires.clock[1, 1] = wait % PS_PER_S // PS_PER_NS
    count = wait_for(nic.poll_at, nic.planes + 1, wires.clock.ctypes.data + CLOCK_BYTES, 0)
    ready = 0
    if count > 0:
        for plane in range(nic.planes):
            if wires.poll[plane].events >> 16:
                ready |= 1 << plane
        if wires.poll[nic.planes].events >> 16:
            read_bell(nic.bell, wires.clock.ctypes.data + 2 * CLOCK_BYTES)
    return ready
