"""Submission and completion queues between user threads and the event loop.

Requests lie in a ring: Python writes rows behind `posted`, `submit` moves `posted`, an iteration of the event loop
moves `taken`. Completions go from the engine to the ring of their completion queue, where `published` counts what the
data path wrote and `taken` what the application took. One mutex guards both, held for a few stores only: a user's
thread never waits for the end of an iteration, and the event loop never waits for Python.
"""

from __future__ import annotations

from openmrc.core.jit import kernel
from openmrc.core.memory import field_address, load_acquire, store_release
from openmrc.core.rows import offset_of
from openmrc.engine.endpoint import next_completion, post_receive, post_write
from openmrc.engine.state.tables import NONE, Completion, Engine
from openmrc.live.datapath.libc import copy, lock, signal_eventfd, unlock
from openmrc.live.datapath.tables.rows import COMMANDS, QUEUES_MUTEX, RECORD_BYTES, CompletionRing, DataPath
from openmrc.units import PS_PER_US

ANY, SOLICITED = 1, 2  # what a completion queue is armed for
# Requests that are sent together, as doorbells of a NIC are: a train of them costs little more than one, and the peer
# begins to work on it while the next is gathered. So many at least (`ib_write_bw -s 64`: 16 need half as many calls
# again, and where other programs want the processors half of the rate is left), and a quarter of what the queue pair
# has open, so that three more trains are on the way, up to what one iteration sends.
GATHERED, MOST_GATHERED = 32, 128
TRAINS_OPEN = 4
SMALL = 4096  # bytes of a request that may be gathered: a longer one is a train of its own
# Bursts that end with a poll before a program that did not poll gathers again: few if it was kept from its processor
# once, twice as many with each time that follows soon.
UNGATHERED, MOST_UNGATHERED = 4, 256
# After that long without a poll or a post that sends, requests that wait to be sent together are forgotten: ten times
# as long as a train of them takes. Who gathers long trains keeps the sockets until then, as it does not poll meanwhile.
FORGOTTEN = 100 * PS_PER_US
LONGEST_GATHERING = 1000 * PS_PER_US  # until the endpoint's thread looks; the longest lease of a thread that polls
BURSTS_END = 10_000 * PS_PER_US  # after the last burst: from then on the endpoint's thread sleeps as long as it likes
_RING = COMMANDS - 1
_PUBLISHED = offset_of(CompletionRing, "published")


@kernel
def submit(engine: Engine, datapath: DataPath, count: int) -> bool:
    """Make `count` more requests visible to the event loop; return whether a thread will soon take them."""
    nic = datapath.nic[0]
    lock(nic.mutex_at + QUEUES_MUTEX)
    largest = 0
    last = datapath.commands[(nic.posted + count - 1) & _RING]
    for number in range(nic.posted, nic.posted + count):
        row = datapath.commands[number & _RING]
        datapath.queues[2 * row.qp + row.is_receive].posted += 1
        largest = max(largest, row.length if row.is_receive == 0 else 0)
    nic.posted += count
    nic.burst = nic.burst + 1 if largest <= SMALL else 0
    is_awake = nic.sleeps_until == 0
    opened = int(datapath.queues[2 * last.qp].posted - engine.qps[last.qp].message_head)
    is_gathered = not is_awake and _may_gather(datapath, opened)
    if is_gathered and opened > GATHERED and nic.polled:
        nic.leased_until = max(nic.leased_until, nic.now + FORGOTTEN)
    unlock(nic.mutex_at + QUEUES_MUTEX)
    return bool(is_awake or is_gathered)


@kernel
def _may_gather(datapath: DataPath, opened: int) -> bool:
    """Whether what was posted may wait for more: its thread polls, and if not the endpoint's thread looks soon.

    `opened`: how many requests its queue pair has open. The first post of a burst does not wait, so that a program that
    posts once and then polls pays nothing for gathering, unless whole trains are on the way already.
    """
    nic = datapath.nic[0]
    return bool(
        nic.gathers > 0
        and nic.burst > (0 if opened > GATHERED else 1)
        and nic.posted - nic.taken < max(nic.gathers, min(opened // TRAINS_OPEN, MOST_GATHERED))
        and not nic.waiting
        and nic.sleeps_until - nic.now <= LONGEST_GATHERING
    )


@kernel
def end_burst(datapath: DataPath) -> bool:
    """Note that a thread that posted polls; return whether requests wait that it has to send."""
    nic = datapath.nic[0]
    lock(nic.mutex_at + QUEUES_MUTEX)
    if nic.burst > 1:
        if nic.gathers > 0:  # trust is not regained by bursts that could not be forgotten
            nic.ungathered = max(nic.ungathered - 1, UNGATHERED)
        nic.gathers = GATHERED if nic.gathers >= 0 else nic.gathers + 1
        nic.burst_at = nic.now
    nic.burst = 0
    has_gathered = nic.posted != nic.taken
    unlock(nic.mutex_at + QUEUES_MUTEX)
    return bool(has_gathered)


@kernel
def has_bursts(datapath: DataPath) -> bool:
    """Whether a program that posts in bursts was there lately, for which the endpoint's thread looks often."""
    nic = datapath.nic[0]
    return bool(nic.gathers > 0 and nic.now - nic.burst_at < BURSTS_END)


@kernel
def note_forgotten(datapath: DataPath) -> None:
    """Gather nothing for a while: requests wait of a thread that has not polled."""
    nic = datapath.nic[0]
    lock(nic.mutex_at + QUEUES_MUTEX)
    if nic.gathers > 0:
        nic.gathers = -max(nic.ungathered, UNGATHERED)
        nic.ungathered = min(-2 * nic.gathers, MOST_UNGATHERED)
    unlock(nic.mutex_at + QUEUES_MUTEX)


@kernel
def try_sleep(datapath: DataPath, due: int) -> int:
    """Note that the endpoint's thread sleeps until `due` (ps) and return that; 0 if requests arrived meanwhile."""
    nic = datapath.nic[0]
    lock(nic.mutex_at + QUEUES_MUTEX)
    if nic.posted == nic.taken:
        nic.sleeps_until = due
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
    nic.taken = end


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
    if cq.overrun or cq.published - cq.taken >= cq.capacity:
        if not cq.overrun:
            datapath.nic[0].overruns += 1
        cq.overrun = True
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
def has_completion(datapath: DataPath, index: int) -> bool:
    """Return whether a completion queue has a record, which the caller may read then."""
    return ready(datapath, index) != 0


@kernel
def _announce(datapath: DataPath, index: int, is_solicited: bool) -> None:
    """Signal a completion queue's descriptors. The record was published before: who wakes finds it."""
    cq = datapath.cqs[index]
    if cq.armed == ANY or (cq.armed == SOLICITED and is_solicited):
        cq.armed = 0
        cq.events += 1
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
    """Arm a completion queue; return how many of its records can be read."""
    nic = datapath.nic[0]
    lock(nic.mutex_at + QUEUES_MUTEX)
    datapath.cqs[index].armed = kind
    count = datapath.cqs[index].published - datapath.cqs[index].taken
    unlock(nic.mutex_at + QUEUES_MUTEX)
    return int(count)
