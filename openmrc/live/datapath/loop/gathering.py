"""Whether what a program posts call by call is gathered, as a NIC's doorbells are, and sent together.

The first request after a poll leaves at once, the following ones together, with the next poll or as soon as there are
`GATHERED`. If the program does not poll, the endpoint's thread sends them, which sleeps no longer than a lease
meanwhile, and nothing is gathered for some bursts: the more of them, the more often that happens.
"""

from enum import IntEnum

from openmrc.core.jit import kernel
from openmrc.engine.state.machines import ILLEGAL, matrix
from openmrc.live.datapath.libc import lock, monotonic, unlock
from openmrc.live.datapath.loop.leases import Attendant
from openmrc.live.datapath.rows import QUEUES_MUTEX, DataPath
from openmrc.units import PS_PER_US

# Requests that are sent together: a train of them costs little more than one, and the peer begins to work on it while
# the next is gathered. So many at least (`ib_write_bw -s 64`: 16 need half as many calls again, and where other
# programs want the processors half of the rate is left), and a quarter of what the queue pair has open, so that three
# more trains are on the way, up to what one iteration sends.
GATHERED, MOST_GATHERED = 32, 128
TRAINS_OPEN = 4
SMALL = 4096  # bytes of a request that may be gathered: a longer one is a train of its own
# Bursts that end with a poll before a program that did not poll gathers again: few if it was kept from its processor
# once, twice as many with each time that follows soon.
LEAST_PAUSE, MOST_PAUSE = 4, 256
# After that long without a poll or a post that sends, requests that wait to be sent together are forgotten: ten times
# as long as a train of them takes. Who gathers long trains keeps the sockets until then, as it does not poll meanwhile.
FORGOTTEN = 100 * PS_PER_US
LONGEST_GATHERING = 1000 * PS_PER_US  # until the endpoint's thread looks; the longest lease of a thread that polls
BURSTS_END = 10_000 * PS_PER_US  # after the last burst: from then on the endpoint's thread sleeps as long as it likes


class Gathering(IntEnum):
    """Whether requests of a burst wait to be sent together."""

    UNTRIED = 0  # no burst has ended with a poll, or none since the pause
    TRUSTED = 1  # they wait
    PAUSED = 2  # its program left requests behind


class GatheringEvent(IntEnum):
    BURST = 0  # a poll ended a burst of several posts
    FORGOTTEN = 1  # nobody polled for what was gathered
    PAUSE_OVER = 2  # enough bursts ended with a poll


GATHERING_TRANSITIONS: dict[tuple[IntEnum, IntEnum], IntEnum] = {
    (Gathering.UNTRIED, GatheringEvent.BURST): Gathering.TRUSTED,
    (Gathering.TRUSTED, GatheringEvent.BURST): Gathering.TRUSTED,
    (Gathering.TRUSTED, GatheringEvent.FORGOTTEN): Gathering.PAUSED,
    (Gathering.PAUSED, GatheringEvent.BURST): Gathering.PAUSED,
    (Gathering.PAUSED, GatheringEvent.PAUSE_OVER): Gathering.UNTRIED,
}
_NEXT = matrix(GATHERING_TRANSITIONS, Gathering, GatheringEvent)


@kernel
def move(datapath: DataPath, event: int) -> bool:
    """Apply an event; return whether it has an effect now."""
    bursts = datapath.bursts[0]
    following = int(_NEXT[bursts.gathering, event])
    if following != ILLEGAL:
        bursts.gathering = following
    return following != ILLEGAL


@kernel
def is_gathered(datapath: DataPath, opened: int) -> bool:
    """Whether what was posted may wait for more: its thread polls, and if not the endpoint's thread looks soon.

    `opened`: how many requests its queue pair has open. The first post of a burst does not wait, so that a program that
    posts once and then polls pays nothing for gathering, unless whole trains are on the way already.
    """
    nic, lease, bursts = datapath.nic[0], datapath.leases[0], datapath.bursts[0]
    return bool(
        bursts.gathering == Gathering.TRUSTED
        and bursts.posts > (0 if opened > GATHERED else 1)
        and nic.posted - nic.taken < max(GATHERED, min(opened // TRAINS_OPEN, MOST_GATHERED))
        and lease.attendant != Attendant.WAITER
        and lease.sleeps_until - nic.now <= LONGEST_GATHERING
    )


@kernel
def end_burst(datapath: DataPath) -> bool:
    """Note that a thread that posted polls; return whether requests wait that it has to send."""
    nic, bursts = datapath.nic[0], datapath.bursts[0]
    lock(nic.mutex_at + QUEUES_MUTEX)
    if bursts.posts > 1:
        if bursts.gathering == Gathering.TRUSTED:  # trust is not regained by bursts that could not be forgotten
            bursts.next_pause = max(bursts.next_pause - 1, LEAST_PAUSE)
        move(datapath, GatheringEvent.BURST)
        if bursts.gathering == Gathering.PAUSED:
            bursts.pause -= 1
            if bursts.pause == 0:
                move(datapath, GatheringEvent.PAUSE_OVER)
        bursts.ended_at = nic.now
    bursts.posts = 0
    has_gathered = nic.posted != nic.taken
    unlock(nic.mutex_at + QUEUES_MUTEX)
    return bool(has_gathered)


@kernel
def has_bursts(datapath: DataPath) -> bool:
    """Whether a program that posts in bursts was there lately, for which the endpoint's thread looks often."""
    bursts = datapath.bursts[0]
    return bool(bursts.gathering == Gathering.TRUSTED and datapath.nic[0].now - bursts.ended_at < BURSTS_END)


@kernel
def judge(datapath: DataPath) -> None:
    """Gather nothing for some bursts if a program left requests behind and nobody has iterated for some time."""
    nic = datapath.nic[0]
    if nic.posted != nic.taken and monotonic(datapath.clock[0], nic.epoch) - nic.now > FORGOTTEN:
        note_forgotten(datapath)


@kernel
def note_forgotten(datapath: DataPath) -> None:
    """Gather nothing for some bursts: requests wait of a thread that has not polled."""
    nic, bursts = datapath.nic[0], datapath.bursts[0]
    lock(nic.mutex_at + QUEUES_MUTEX)
    if move(datapath, GatheringEvent.FORGOTTEN):
        bursts.pause = max(bursts.next_pause, LEAST_PAUSE)
        bursts.next_pause = min(2 * bursts.pause, MOST_PAUSE)
    unlock(nic.mutex_at + QUEUES_MUTEX)
