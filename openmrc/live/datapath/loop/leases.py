"""Who attends the sockets of an endpoint: its own thread, a user's thread, or for a moment nobody.

A thread that waits for a completion does so at the sockets unless the endpoint's thread is awake: what arrives then
wakes one thread, not two in turn. It keeps a lease for a little longer than its wait, because programs often wait again
at once; the endpoint's thread sleeps on its eventfd meanwhile, except where more has arrived already when traffic is
high: a stream that its program may be too slow for. A thread that polls in a loop has a processor of its own and takes
over whatever the traffic. Its lease adapts, because some programs poll for a completion and then spin on memory: a
lease that ran out with arrivals waiting cuts the next ones to `SHORT_LEASE`, each return in time makes them longer.
"""

from enum import IntEnum

from openmrc.core.jit import kernel
from openmrc.engine.state.machines import ILLEGAL, matrix
from openmrc.live.datapath.libc import monotonic
from openmrc.live.datapath.rows import CLOCK_OF_THREAD, DataPath
from openmrc.units import NEVER, PS_PER_US

# Packets and trains of one iteration up to which traffic is low: a request, its answer, and an answer to each of both.
QUIET = 4
# How long sockets may stay unattended after a wait: longer than a program takes to wait again, and no longer than the
# least loss delay, after which a peer would ask for the answers.
LEASE = 1000 * PS_PER_US
# The least lease of a thread that polls: about what it takes from one poll to the next with a post in between.
SHORT_LEASE = 8 * PS_PER_US
LEASE_STEP = 1 * PS_PER_US  # longer by that much after each return in time: a lease that is wrong is rare, and short
# How soon a thread is back that its answers wait for: the round trip that is assumed over sockets, so that a late
# answer looks like one more of it at most.
PROMPT = 100 * PS_PER_US


class Attendant(IntEnum):
    THREAD = 0  # the endpoint's thread
    WAITER = 1  # a user's thread that waits for a completion
    POLLER = 2  # a user's thread that polls: it receives, sends and serves deadlines
    NOBODY = 3  # a waiter has left, and may be back at once


class AttendantEvent(IntEnum):
    WAIT = 0  # a user's thread waits, and the endpoint's thread sleeps
    RETURN = 1  # the waiter returns
    RUSH = 2  # the waiter returns while more arrives in high traffic
    POLL = 3  # a user's thread polls
    ARM = 4  # a program is about to sleep at its own descriptor
    LAPSE = 5  # the lease has run out


ATTENDANT_TRANSITIONS: dict[tuple[IntEnum, IntEnum], IntEnum] = {
    **{(who, AttendantEvent.WAIT): Attendant.WAITER for who in Attendant if who != Attendant.WAITER},
    **{(who, AttendantEvent.POLL): Attendant.POLLER for who in Attendant if who != Attendant.WAITER},
    (Attendant.WAITER, AttendantEvent.RETURN): Attendant.NOBODY,
    (Attendant.WAITER, AttendantEvent.RUSH): Attendant.THREAD,
    (Attendant.POLLER, AttendantEvent.ARM): Attendant.THREAD,
    (Attendant.POLLER, AttendantEvent.LAPSE): Attendant.THREAD,
    (Attendant.NOBODY, AttendantEvent.LAPSE): Attendant.THREAD,
}
_NEXT = matrix(ATTENDANT_TRANSITIONS, Attendant, AttendantEvent)


@kernel
def move(datapath: DataPath, event: int, until: int) -> bool:
    """Apply an event and set the end of the lease (ps); return False, and change nothing, if it has no effect now."""
    lease = datapath.leases[0]
    following = int(_NEXT[lease.attendant, event])
    if following == ILLEGAL:
        return False
    lease.attendant = following
    lease.until = until
    return True


@kernel
def take_sockets(datapath: DataPath) -> bool:
    """Let a user's thread wait at the sockets; return whether it may. The caller holds the loop mutex, as below."""
    return bool(datapath.leases[0].sleeps_until != 0 and move(datapath, AttendantEvent.WAIT, NEVER))


@kernel
def leave_sockets(datapath: DataPath, is_completed: bool, has_more: bool) -> None:
    """End a wait: the sockets stay leased for a little, unless traffic is high and they have more."""
    nic, lease = datapath.nic[0], datapath.leases[0]
    if is_completed:
        lease.left_at = nic.now
    if has_more:
        move(datapath, AttendantEvent.RUSH, 0)
        nic.wake_at = 0  # the endpoint's thread takes over at once
    else:
        move(datapath, AttendantEvent.RETURN, nic.now + LEASE)


@kernel
def renew(datapath: DataPath, now: int) -> None:
    """Give a thread that polls a lease from `now` (ps) on, unless another waits at the sockets."""
    move(datapath, AttendantEvent.POLL, now + datapath.leases[0].poll_lease)


@kernel
def hand_over(datapath: DataPath) -> None:
    """Leave the sockets to the thread that polled meanwhile: else it gets them only when there is nothing to do."""
    datapath.leases[0].asked = False
    renew(datapath, monotonic(datapath.clock[0], datapath.nic[0].epoch))


@kernel
def prolong(datapath: DataPath, until: int) -> None:
    """Let the lease of a thread that polls end at `until` (ps) at the earliest."""
    lease = datapath.leases[0]
    if lease.attendant == Attendant.POLLER:
        lease.until = max(lease.until, until)


@kernel
def lengthen(datapath: DataPath) -> None:
    """Make the leases of a thread that polls longer: it was there when it was needed."""
    lease = datapath.leases[0]
    lease.poll_lease = min(lease.poll_lease + LEASE_STEP, LEASE)


@kernel
def lapse(datapath: DataPath) -> bool:
    """End a lease that has run out; return whether it was that of a thread that polled."""
    nic, lease = datapath.nic[0], datapath.leases[0]
    was_polled = lease.attendant == Attendant.POLLER
    if lease.until == 0 or lease.until > monotonic(datapath.clock[0], nic.epoch):
        return False
    return bool(move(datapath, AttendantEvent.LAPSE, 0) and was_polled)


@kernel
def judge(datapath: DataPath) -> None:
    """Make the next leases of a thread that polls short if something arrived for it when its lease had run out."""
    if datapath.nic[0].handled > 0:
        datapath.leases[0].poll_lease = SHORT_LEASE


@kernel
def note_return(datapath: DataPath) -> None:
    """Note how soon a user's thread is back for more after it left with a completion."""
    nic, lease = datapath.nic[0], datapath.leases[0]
    if lease.left_at != 0:
        lease.prompt = nic.now - lease.left_at <= PROMPT
        lease.left_at = 0
        if lease.attendant == Attendant.POLLER and lease.until > nic.now:
            lengthen(datapath)


@kernel
def forget_late(datapath: DataPath) -> None:
    """Stop expecting a thread back that has not returned promptly."""
    nic, lease = datapath.nic[0], datapath.leases[0]
    if lease.left_at != 0 and nic.now - lease.left_at > PROMPT:
        lease.prompt, lease.left_at = False, 0


@kernel
def next_look(datapath: DataPath, due: int) -> int:
    """Return when (ps) the endpoint's thread looks next, if it would at `due` without a lease."""
    nic, lease = datapath.nic[0], datapath.leases[0]
    if lease.until <= nic.now:
        return due
    last = min(lease.until, nic.now + LEASE)
    return int(last if lease.attendant == Attendant.POLLER else min(last, due))


@kernel
def is_polled(datapath: DataPath) -> bool:
    """Whether a thread that polls has the lease. For the endpoint's thread, without the loop mutex."""
    nic, lease = datapath.nic[0], datapath.leases[0]
    now = monotonic(datapath.clock[CLOCK_OF_THREAD], nic.epoch)
    return bool(lease.attendant == Attendant.POLLER and lease.until > now)
