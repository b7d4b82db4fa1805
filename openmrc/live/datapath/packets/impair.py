"""Impairments of arriving packets: loss, delay, reordering, duplicates, trimming, corruption.

Packets that wait for others before them (`Nic.in_order`) are held back here, too.

Each plane has a random generator of its own. A plane without impairments costs one comparison, a loss rate one random
number a packet. Delayed packets are copied into a heap ordered by time; when it is full they are lost, as in a switch.
"""

from openmrc.base.faults import OVERTAKEN
from openmrc.core import rng
from openmrc.core.jit import kernel, rare_kernel
from openmrc.live.datapath.libc import copy
from openmrc.live.datapath.rows import FRAME, HELD_AT, DataPath, Held
from openmrc.units import NEVER, PS_PER_MS, PS_PER_S, PS_PER_US

LOSE, REORDER, DUPLICATE, CORRUPT, TRIM = 1, 2, 4, 8, 16
SHARE_ONE = 1 << 31  # a share of 1
TRIMMED_LENGTH = 36  # bytes kept: BTH, METH, TSETH and RETH
NEXT_TRY = 20 * PS_PER_US  # after which a packet that waits for others is looked at again
LONGEST_QUEUE = 50 * PS_PER_MS  # of a limited rate; packets beyond it are dropped, as by a switch
JITTER_STEPS = 1 << 16
_OVERHEAD = 46 + 24  # bytes of Ethernet, IP, UDP and gap that a rate counts, roughly


@kernel
def decide(datapath: DataPath, plane: int) -> int:
    """Return the impairments of the next packet of an impaired plane, as a mask."""
    row = datapath.planes[plane]
    if row.down or _chance(datapath, plane, row.loss):
        row.taken += 1
        return LOSE
    actions = 0
    if _chance(datapath, plane, row.corruption):
        actions |= CORRUPT
    if _chance(datapath, plane, row.duplicate):
        actions |= DUPLICATE
    if _chance(datapath, plane, row.reorder):
        actions |= REORDER
    if _chance(datapath, plane, row.trim):
        actions |= TRIM
    if actions:
        row.taken += 1
    return actions


@kernel
def _chance(datapath: DataPath, plane: int, share: int) -> bool:
    if share == 0:
        return False
    row = datapath.planes[plane]
    row.random = rng.following(row.random)
    return row.random >> 1 < share


@kernel
def corrupt(datapath: DataPath, plane: int, at: int, size: int) -> None:
    """Flip one random bit of the packet."""
    row = datapath.planes[plane]
    row.random = rng.following(row.random)
    bit = rng.below(row.random, size * 8)
    datapath.staging[at + bit // 8] ^= 1 << (bit & 7)


@rare_kernel
def apply(datapath: DataPath, train: int) -> None:
    """Split the last train into packets, impair each, and line it up or hold it back."""
    nic = datapath.nic[0]
    whole = datapath.trains[train]
    at, end, segment, plane = whole.at, whole.at + whole.length, whole.segment, whole.plane
    nic.trains = train
    while at < end:
        size = min(segment, end - at)
        actions = decide(datapath, plane)
        if actions & CORRUPT != 0:
            corrupt(datapath, plane, at, size)
        for _ in range(0 if actions & LOSE != 0 else 2 if actions & DUPLICATE != 0 else 1):
            if nic.trains == len(datapath.trains):
                datapath.planes[plane].taken += 1
                continue
            datapath.trains[nic.trains] = whole
            row = datapath.trains[nic.trains]
            row.at = at
            row.length = size
            row.segment = size
            row.cut = actions & TRIM != 0
            if datapath.planes[plane].slow or actions & REORDER != 0:
                _hold(datapath, nic.trains, actions)
            else:
                nic.trains += 1
        at += size


@kernel
def _hold(datapath: DataPath, train: int, actions: int) -> None:
    """Hold a packet back until it is due."""
    nic = datapath.nic[0]
    packet = datapath.trains[train]
    row = datapath.planes[packet.plane]
    release = nic.now + row.delay
    if row.jitter > 0:
        row.random = rng.following(row.random)
        release += row.jitter // JITTER_STEPS * rng.below(row.random, JITTER_STEPS)
    if actions & REORDER != 0:
        release += OVERTAKEN
    if row.rate > 0:
        begin = max(row.free_at, nic.now)
        if begin - nic.now > LONGEST_QUEUE:
            row.taken += 1
            return
        row.free_at = begin + (packet.length + _OVERHEAD) * 8 * PS_PER_S // row.rate
        release += row.free_at - nic.now
    nic.held_order += 1
    _keep(datapath, train, packet.at, packet.length, release, nic.held_order)


@rare_kernel
def wait_for_others(datapath: DataPath, train: int, at: int, length: int, psn: int) -> None:
    """Hold the packet at `at` of a train back for those before it: what is held so comes in the order of PSNs.

    Once more at the end of this iteration, when every socket has been read, then every `NEXT_TRY`.
    """
    nic = datapath.nic[0]
    if at < HELD_AT:
        _keep(datapath, train, at, length, nic.now, psn)
        return
    slot = (at - HELD_AT) // FRAME  # its frame became free when it was lined up, as those of packets that come after it
    first = len(datapath.frames) - 1 - nic.held
    place = first
    while datapath.free_frames[place, 0] != slot:
        place -= 1
    datapath.free_frames[place, 0] = datapath.free_frames[first, 0]
    datapath.free_frames[first, 0] = slot
    _push(datapath, nic.now + NEXT_TRY, psn, slot)


@kernel
def _keep(datapath: DataPath, train: int, at: int, length: int, release: int, order: int) -> None:
    """Copy a packet of a train into a frame; it is lost if none is free."""
    nic = datapath.nic[0]
    packet = datapath.trains[train]
    if nic.held == len(datapath.frames) or length > FRAME:
        datapath.planes[packet.plane].taken += 1
        return
    slot = datapath.free_frames[len(datapath.frames) - 1 - nic.held, 0]
    datapath.frames[slot] = packet
    frame = datapath.frames[slot]
    frame.at = HELD_AT + slot * FRAME
    frame.length = length
    frame.segment = length
    base = datapath.staging.ctypes.data
    copy(base + frame.at, base + at, length)
    _push(datapath, release, order, slot)


@rare_kernel
def release(datapath: DataPath) -> None:
    """Line up held packets that are due for the engine."""
    nic = datapath.nic[0]
    while nic.held > 0 and datapath.heap[0].release <= nic.now and nic.trains < len(datapath.trains):
        slot = datapath.heap[0].slot
        nic.held -= 1
        _sink(datapath, datapath.heap[nic.held])
        # Free at once: until the engine has seen this one no other frame is taken than those of packets lined up here.
        datapath.free_frames[len(datapath.frames) - 1 - nic.held, 0] = slot
        datapath.trains[nic.trains] = datapath.frames[slot]
        nic.trains += 1


@kernel
def next_release(datapath: DataPath) -> int:
    """Return when the next held packet is due (ps), or NEVER."""
    return datapath.heap[0].release if datapath.nic[0].held > 0 else NEVER


@kernel
def _push(datapath: DataPath, release: int, order: int, slot: int) -> None:
    nic = datapath.nic[0]
    at = nic.held
    nic.held += 1
    while at > 0 and _is_after(datapath.heap[(at - 1) // 2], release, order):
        datapath.heap[at] = datapath.heap[(at - 1) // 2]
        at = (at - 1) // 2
    row = datapath.heap[at]
    row.release = release
    row.order = order
    row.slot = slot


@kernel
def _sink(datapath: DataPath, last: Held) -> None:
    """Put the last of the heap in the place of the first, and then below those that are due before it."""
    held = datapath.nic[0].held
    at = 0
    while 2 * at + 1 < held:
        child = 2 * at + 1
        if child + 1 < held and _precedes(datapath, child + 1, child):
            child += 1
        if _is_after(datapath.heap[child], last.release, last.order):
            break
        datapath.heap[at] = datapath.heap[child]
        at = child
    datapath.heap[at] = last


@kernel
def _precedes(datapath: DataPath, a: int, b: int) -> bool:
    return _is_after(datapath.heap[b], datapath.heap[a].release, datapath.heap[a].order)


@kernel
def _is_after(held: Held, release: int, order: int) -> bool:
    """Whether a held packet comes after one with this time (ps) and order."""
    return bool(held.release > release or (held.release == release and held.order > order))
