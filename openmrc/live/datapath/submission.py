"""The desk between users' threads and whoever takes a turn: requests are laid on it, completions taken from it.

It has a mutex of its own, held for a few stores only. So a user's thread never waits for the end of
a turn to post or to collect, and a turn never waits for Python. Requests lie in a ring: Python writes
rows behind `posted`, `submit` moves `posted`, a turn moves `taken`. Completions stay in the engine's
ring: a turn moves `announced`, `take` moves the ring's head.
"""

from __future__ import annotations

from openmrc.core.jit import kernel
from openmrc.engine.endpoint import next_completion, post_receive, post_write
from openmrc.engine.tables import NONE, Engine
from openmrc.live.datapath.libc import lock, signal_eventfd, unlock
from openmrc.live.datapath.tables import COMMANDS, WORDS_OF_A_MUTEX, DataPath
from openmrc.wire.layout import Matrix

_MUTEX = 2 * WORDS_OF_A_MUTEX  # its mutex is the third
_RING = COMMANDS - 1


@kernel
def submit(datapath: DataPath, count: int) -> bool:
    """Let the next turn see `count` more requests; return whether a thread is awake to take it."""
    nic = datapath.nic[0]
    lock(nic.mutex_at + _MUTEX)
    nic.posted += count
    is_awake = nic.sleeps_until == 0
    unlock(nic.mutex_at + _MUTEX)
    return bool(is_awake)


@kernel
def try_sleep(datapath: DataPath, due: int) -> int:
    """Note that the endpoint's thread sleeps until `due` (ps) and return that; 0 if there are requests meanwhile."""
    nic = datapath.nic[0]
    lock(nic.mutex_at + _MUTEX)
    if nic.posted == nic.taken:
        nic.sleeps_until = due
    else:
        due = 0
    unlock(nic.mutex_at + _MUTEX)
    return due


@kernel
def process_requests(engine: Engine, datapath: DataPath) -> None:
    """Hand the engine what was posted. What a reset overtook vanishes, as all work of that queue pair did."""
    nic = datapath.nic[0]
    if nic.posted == nic.taken:
        return
    lock(nic.mutex_at + _MUTEX)
    end = nic.posted
    unlock(nic.mutex_at + _MUTEX)
    for number in range(nic.taken, end):
        row = datapath.commands[number & _RING]
        if row.is_receive == 1:
            post_receive(engine, row.qp, row.wr_id)
        else:
            post_write(engine, nic.now, row.qp, row)
    nic.taken = end


@kernel
def publish_completions(engine: Engine, datapath: DataPath) -> None:
    """Let users see the completions of this turn, and ring the notifiers that are armed."""
    nic = datapath.nic[0]
    node = engine.endpoints[nic.endpoint]
    if nic.announced == node.completion_tail:
        return
    lock(nic.mutex_at + _MUTEX)
    for number in range(nic.announced, node.completion_tail):
        done = engine.completions[node.completion_base + (number & node.completion_mask)]
        index = datapath.notifier_of[2 * done.qp + done.kind, 0]
        if index != NONE:
            notifier = datapath.notifiers[index]
            if notifier.armed == 1 or (notifier.armed == 2 and (done.solicited == 1 or done.status != 0)):
                notifier.armed = 0
                signal_eventfd(notifier.descriptor, 1)
    nic.announced = node.completion_tail
    unlock(nic.mutex_at + _MUTEX)


@kernel
def take_completions(engine: Engine, datapath: DataPath, rows: Matrix, limit: int) -> int:
    """Move completions into `rows` (kind, qp, wr_id, status, length, immediate, has_immediate, solicited)."""
    nic = datapath.nic[0]
    node = engine.endpoints[nic.endpoint]
    lock(nic.mutex_at + _MUTEX)
    count = 0
    while count < limit and node.completion_head < nic.announced:
        done = engine.completions[next_completion(engine, nic.endpoint)]
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
    unlock(nic.mutex_at + _MUTEX)
    return count
