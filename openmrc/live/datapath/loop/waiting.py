"""How threads wait at the sockets: they look, poll for a little while if that has lately been worth it, then sleep.

A sleeping thread costs a round trip two wake-ups, its own and the one that its peer's send has to make. Polling saves
them where the answer comes soon, and wastes the processor where it does not. So a wait polls at most as long as those
wake-ups take (`Nic.poll_limit`), which at worst doubles what waiting costs, as in ski rental; and after a poll that
brought nothing the next waits sleep at once: one of them, then three, seven and so on, up to `2**LONGEST_PAUSE - 1`.

The endpoint's thread does the same for a shorter time after much traffic (`linger`), when the next train is near.

A polling thread offers the processor to others again and again. If it then finds that more time has passed than a look
takes, others want it: the poll ends at once and counts as one that brought nothing.
"""

from openmrc.core.jit import entry, kernel
from openmrc.live.datapath.libc import POLL_BYTES, drain_eventfd, monotonic, signal_eventfd, wait_for, yield_processor
from openmrc.live.datapath.loop import submission
from openmrc.live.datapath.rows import CLOCK_BYTES, CLOCK_OF_THREAD, CLOCK_OF_WAITER, DataPath
from openmrc.units import PS_PER_NS, PS_PER_S, PS_PER_US

OWN_SLOTS = 2  # descriptors that only the endpoint's thread polls: its eventfd, rtnetlink
LONGEST_PAUSE = 6
REQUESTS = -1  # in place of a completion queue
# How long the endpoint's thread looks on after an iteration of much traffic: the next train is near, and its sender
# would have to wake this thread, which costs it more than the train where a processor sleeps deeply.
LINGER = 20 * PS_PER_US
NO_DESCRIPTOR = -1  # poll passes over it
_LONGEST_SLEEP = 10_000  # s
_YIELDS = 8  # looks between two offers of the processor, which take as long as a look
_CROWDED = 20 * PS_PER_US  # ten looks and an offer: another thread or virtual machine had the processor meanwhile


@kernel
def first_of_waiter(datapath: DataPath) -> int:
    """Return the first poll slot of a thread that waits: the planes, then its own descriptor."""
    return int(datapath.nic[0].planes) + OWN_SLOTS


@kernel
def look(datapath: DataPath, row: int, first: int, count: int, time: int) -> int:
    """Wait at most `time` (ps) for some of `count` poll slots, with a row of `clock`; return the readable ones."""
    datapath.clock[row, 0] = time // PS_PER_S
    datapath.clock[row, 1] = time % PS_PER_S // PS_PER_NS
    readable = 0
    at = datapath.nic[0].poll_at + first * POLL_BYTES
    if wait_for(at, count, datapath.clock.ctypes.data + row * CLOCK_BYTES, 0) > 0:
        for index in range(count):
            if datapath.poll[first + index].events >> 16:
                readable |= 1 << index
    return readable


@kernel
def sleep(datapath: DataPath, row: int, first: int, count: int, due: int) -> int:
    """Sleep until `due` (ps) at most; return the readable slots."""
    wait = min(max(due - monotonic(datapath.clock[row], datapath.nic[0].epoch), 0), _LONGEST_SLEEP * PS_PER_S)
    if wait > 0:
        datapath.nic[0].sleeps += 1
    return look(datapath, row, first, count, wait)


@kernel
def rest(datapath: DataPath, cq: int, due: int) -> int:
    """Wait for a plane, the waiter's descriptor or a completion of `cq`, until `due` (ps); return readable slots."""
    nic = datapath.nic[0]
    first, count = first_of_waiter(datapath), nic.planes + 1
    if nic.poll_limit > 0:
        if nic.poll_pause == 0:
            readable = _poll(datapath, first, count, cq, due)
            if readable != 0 or is_completed(datapath, cq):
                return readable
        else:
            nic.poll_pause -= 1
    return sleep(datapath, CLOCK_OF_WAITER, first, count, due)


@kernel
def is_completed(datapath: DataPath, cq: int) -> bool:
    return submission.ready(datapath, cq) != 0


@kernel
def _poll(datapath: DataPath, first: int, count: int, cq: int, due: int) -> int:
    """Look again and again for `poll_limit` at most; return the readable slots."""
    nic = datapath.nic[0]
    end = min(monotonic(datapath.clock[CLOCK_OF_WAITER], nic.epoch) + nic.poll_limit, due)
    readable = _look_until(datapath, CLOCK_OF_WAITER, first, count, cq, end)
    if readable != 0 or is_completed(datapath, cq):
        nic.polls += 1
        nic.poll_failures = 0
    elif monotonic(datapath.clock[CLOCK_OF_WAITER], nic.epoch) < due:
        nic.poll_failures = min(nic.poll_failures + 1, LONGEST_PAUSE)
        nic.poll_pause = (1 << nic.poll_failures) - 1
    return readable


@kernel
def linger(datapath: DataPath, count: int, due: int) -> int:
    """Look at the first `count` slots for `LINGER` at most, or until requests come; return the readable ones."""
    nic = datapath.nic[0]
    end = min(monotonic(datapath.clock[CLOCK_OF_THREAD], nic.epoch) + min(LINGER, nic.poll_limit), due)
    return _look_until(datapath, CLOCK_OF_THREAD, 0, count, REQUESTS, end)


@kernel
def _look_until(datapath: DataPath, row: int, first: int, count: int, cq: int, end: int) -> int:
    """Look until `end` (ps), a completion of `cq`, or others want the processor; return the readable slots."""
    nic = datapath.nic[0]
    now = monotonic(datapath.clock[row], nic.epoch)
    looks = 0
    while now < end and not nic.stop:
        readable = look(datapath, row, first, count, 0)
        if readable != 0 or _has_work(datapath, cq):
            return readable
        looks += 1
        if looks % _YIELDS == 0:
            yield_processor()
        before = now
        now = monotonic(datapath.clock[row], nic.epoch)
        if now - before > _CROWDED:
            break
    return 0


@kernel
def _has_work(datapath: DataPath, cq: int) -> bool:
    """Whether a completion queue has completions; of `REQUESTS`: whether requests wait."""
    if cq == REQUESTS:
        return bool(datapath.nic[0].posted != datapath.nic[0].taken)
    return is_completed(datapath, cq)


@entry
def bounce(near: int, far: int, rounds: int, scratch: int, is_first: int) -> int:
    """Signal the eventfd `far` and sleep until `near` is signalled, or the other way round; return `rounds`.

    `scratch` is the address of a word.
    """
    for _ in range(rounds):
        if is_first == 1:
            signal_eventfd(far, 1)
        drain_eventfd(near, scratch)
        if is_first == 0:
            signal_eventfd(far, 1)
    return rounds
