"""Submission and completion queues between user threads and the event loop.

Requests lie in a ring: Python writes rows behind `posted`, `submit` moves `posted`, an iteration of the event loop
moves `taken`. Completions go from the engine to the ring of their completion queue, where `published` counts what the
data path wrote and `taken` what the application took. One mutex guards both, held for a few stores only: a user's
thread never waits for the end of an iteration, and the event loop never waits for Python. What is read without it is
stored with release order (docs/native.md).
"""

from openmrc.core.jit import kernel
from openmrc.core.memory import field_address, load_acquire, store_release
from openmrc.core.rows import offset_of
from openmrc.engine import lifecycle
from openmrc.engine.endpoint import next_completion, post_receive, post_write
from openmrc.engine.state.tables import NONE, Completion, Engine
from openmrc.live.datapath.libc import copy, lock, signal_eventfd, unlock
from openmrc.live.datapath.loop import gathering, leases
from openmrc.live.datapath.rows import COMMANDS, QUEUES_MUTEX, RECORD_BYTES, CompletionRing, DataPath, NicRow

ANY, SOLICITED = 1, 2  # what a completion queue is armed for
UNREGISTERED = (1 << 32) - 1  # key of a write that fails when it is posted: its memory is in no region
_RING = COMMANDS - 1
_PUBLISHED, _CLAIMED, _EVENTS = (offset_of(CompletionRing, name) for name in ("published", "taken", "events"))
_TAKEN, _OVERRUNS = offset_of(NicRow, "taken"), offset_of(NicRow, "overruns")


@kernel
def submit(engine: Engine, datapath: DataPath, count: int) -> bool:
    """Make `count` more requests visible to the event loop; return whether a thread will soon take them."""
    nic, lease, bursts = datapath.nic[0], datapath.leases[0], datapath.bursts[0]
    lock(nic.mutex_at + QUEUES_MUTEX)
    largest = 0
    last = datapath.commands[(nic.posted + count - 1) & _RING]
    for number in range(nic.posted, nic.posted + count):
        row = datapath.commands[number & _RING]
        datapath.queues[2 * row.qp + row.is_receive].posted += 1
        largest = max(largest, row.length if row.is_receive == 0 else 0)
    nic.posted += count
    bursts.posts = bursts.posts + 1 if largest <= gathering.SMALL else 0
    is_awake = lease.sleeps_until == 0
    opened = int(datapath.queues[2 * last.qp].posted - engine.qps[last.qp].message_head)
    is_gathered = not is_awake and gathering.is_gathered(datapath, opened)
    if is_gathered and opened > gathering.GATHERED:
        leases.prolong(datapath, nic.now + gathering.FORGOTTEN)
    unlock(nic.mutex_at + QUEUES_MUTEX)
    return bool(is_awake or is_gathered)


@kernel
def try_sleep(datapath: DataPath, due: int) -> int:
    """Note that the endpoint's thread sleeps until `due` (ps) and return that; 0 if requests arrived meanwhile."""
    nic = datapath.nic[0]
    lease = datapath.leases[0]
    lock(nic.mutex_at + QUEUES_MUTEX)
    if nic.posted == nic.taken:
        lease.sleeps_until = due
    else:
        due = 0
    unlock(nic.mutex_at + QUEUES_MUTEX)
    return due


@kernel
def process_requests(engine: Engine, datapath: DataPath) -> None:
    """Hand submitted requests to the engine; it drops those of a queue pair that was reset meanwhile."""
    nic = datapath.nic[0]
    if nic.posted == nic.taken:
        return
    lock(nic.mutex_at + QUEUES_MUTEX)
    end = nic.posted
    unlock(nic.mutex_at + QUEUES_MUTEX)
    for number in range(nic.taken, end):
        row = datapath.commands[number & _RING]
        if row.is_receive == 1:
            post_receive(engine, row.qp, row.wr_id)
        else:
            post_write(engine, nic.now, row.qp, row)
            if row.l_key == UNREGISTERED:
                lifecycle.end_memory(engine, nic.now, row.qp, UNREGISTERED)
    store_release(field_address(datapath.nic, 0, _TAKEN), end)  # the rows may be written again from now on


@kernel
def publish_completions(engine: Engine, datapath: DataPath) -> None:
    """Move completions to the rings of their completion queues, and signal those who wait for them."""
    nic = datapath.nic[0]
    node = engine.endpoints[nic.endpoint]
    if node.completion_tail == node.completion_head:
        return
    lock(nic.mutex_at + QUEUES_MUTEX)
    while node.completion_tail != node.completion_head:
        done = engine.completions[next_completion(engine, nic.endpoint)]
        index = datapath.cq_of[2 * done.qp + done.kind, 0]
        if index != NONE:
            _publish(datapath, index, done, engine.qps[done.qp].qpn)
            _announce(datapath, index, done.solicited == 1 or done.status != 0)
    unlock(nic.mutex_at + QUEUES_MUTEX)


@kernel
def _publish(datapath: DataPath, index: int, done: Completion, qpn: int) -> None:
    """Append a record to a completion queue; a full queue loses it and is unusable from then on."""
    cq = datapath.cqs[index]
    if cq.overrun or cq.published - load_acquire(field_address(datapath.cqs, index, _CLAIMED)) >= cq.capacity:
        if not cq.overrun:
            cq.overrun = True  # before it is counted: who finds it counted looks for it
            store_release(field_address(datapath.nic, 0, _OVERRUNS), datapath.nic[0].overruns + 1)
        return
    record = datapath.record[0]
    record.kind = done.kind
    record.qp = done.qp
    record.qpn = qpn
    record.wr_id = done.wr_id
    record.status = done.status
    record.length = done.length
    record.immediate = done.immediate
    record.has_immediate = done.has_immediate
    record.solicited = done.solicited
    copy(cq.ring + (cq.published & cq.mask) * RECORD_BYTES, datapath.nic[0].record_at, RECORD_BYTES)
    store_release(_published_at(datapath, index), cq.published + 1)


@kernel
def _published_at(datapath: DataPath, index: int) -> int:
    return field_address(datapath.cqs, index, _PUBLISHED)


@kernel
def ready(datapath: DataPath, index: int) -> int:
    """Return how many records a completion queue has, which the caller may read then."""
    return int(load_acquire(_published_at(datapath, index)) - datapath.cqs[index].taken)


@kernel
def _announce(datapath: DataPath, index: int, is_solicited: bool) -> None:
    """Signal a completion queue's descriptors. The record was published before: who wakes finds it."""
    cq = datapath.cqs[index]
    if cq.armed == ANY or (cq.armed == SOLICITED and is_solicited):
        cq.armed = 0
        store_release(field_address(datapath.cqs, index, _EVENTS), cq.events + 1)
        signal_eventfd(cq.descriptor, 1)
        if cq.channel != NONE:
            signal_eventfd(cq.channel, 1)
    if cq.sleeping:
        cq.sleeping = False
        signal_eventfd(cq.wakeup, 1)


@kernel
def available(datapath: DataPath, index: int) -> int:
    """Return how many records of a completion queue can be read."""
    nic = datapath.nic[0]
    cq = datapath.cqs[index]
    lock(nic.mutex_at + QUEUES_MUTEX)  # the records must be visible to this thread too
    count = cq.published - cq.taken
    unlock(nic.mutex_at + QUEUES_MUTEX)
    return int(count)


@kernel
def arm(datapath: DataPath, index: int, kind: int) -> int:
    """Arm a completion queue, which stays armed for any completion; return how many of its records can be read."""
    nic = datapath.nic[0]
    lock(nic.mutex_at + QUEUES_MUTEX)
    if datapath.cqs[index].armed != ANY:
        datapath.cqs[index].armed = kind
    count = datapath.cqs[index].published - datapath.cqs[index].taken
    unlock(nic.mutex_at + QUEUES_MUTEX)
    return int(count)
