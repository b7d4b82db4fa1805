"""Impairments of arriving packets: loss, delay, reordering, duplicates, trimming, corruption.

Each plane has a random generator of its own. A plane without impairments costs one comparison, a loss rate one random
number a packet. Delayed packets are copied into a heap ordered by time; when it is full they are lost, as in a switch.
"""

from __future__ import annotations

from openmrc.base.faults import OVERTAKEN
from openmrc.core import rng
from openmrc.core.jit import kernel, rare_kernel
from openmrc.live.datapath.libc import copy
from openmrc.live.datapath.tables.rows import FRAME, HELD_AT, DataPath
from openmrc.units import NEVER, PS_PER_MS, PS_PER_S

LOSE, REORDER, DUPLICATE, CORRUPT, TRIM = 1, 2, 4, 8, 16
SHARE_ONE = 1 << 31  # a share of 1
TRIMMED_LENGTH = 36  # bytes kept: BTH, METH, TSETH and RETH
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
    at, end, segment, tos = whole.at, whole.at + whole.length, whole.segment, whole.tos
    plane, peer, port, ev = whole.plane, whole.peer, whole.port, whole.entropy
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
            row = datapath.trains[nic.trains]
            row.at = at
            row.length = size
            row.segment = size
            row.plane = plane
            row.peer = peer
            row.port = port
            row.entropy = ev
            row.tos = tos
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
    if nic.held == len(datapath.frames) or packet.length > FRAME:
        row.taken += 1
        return
    slot = datapath.free_frames[len(datapath.frames) - 1 - nic.held, 0]
    frame = datapath.frames[slot]
    frame.plane = packet.plane
    frame.peer = packet.peer
    frame.port = packet.port
    frame.entropy = packet.entropy
    frame.tos = packet.tos
    frame.cut = packet.cut
    frame.length = packet.length
    base = datapath.staging.ctypes.data
    copy(base + HELD_AT + slot * FRAME, base + packet.at, packet.length)
    _push(datapath, release, slot)


@rare_kernel
def release(datapath: DataPath) -> None:
    """Line up held packets that are due for the engine."""
    nic = datapath.nic[0]
    while nic.held > 0 and datapath.heap[0].release <= nic.now and nic.trains < len(datapath.trains):
        slot = datapath.heap[0].slot
        nic.held -= 1
        last = datapath.heap[nic.held]
        _sink(datapath, last.release, last.order, last.slot)
        # Free at once: no packet is held back again before the engine has seen this one.
        datapath.free_frames[len(datapath.frames) - 1 - nic.held, 0] = slot
        frame = datapath.frames[slot]
        row = datapath.trains[nic.trains]
        nic.trains += 1
        row.at = HELD_AT + slot * FRAME
        row.length = frame.length
        row.segment = frame.length
        row.plane = frame.plane
        row.peer = frame.peer
        row.port = frame.port
        row.entropy = frame.entropy
        row.tos = frame.tos
        row.cut = frame.cut


@kernel
def next_release(datapath: DataPath) -> int:
    """Return when the next held packet is due (ps), or NEVER."""
    return datapath.heap[0].release if datapath.nic[0].held > 0 else NEVER


@kernel
def _push(datapath: DataPath, release: int, slot: int) -> None:
    nic = datapath.nic[0]
    at = nic.held
    nic.held += 1
    nic.held_order += 1
    while at > 0 and datapath.heap[(at - 1) // 2].release > release:
        above = datapath.heap[(at - 1) // 2]
        _put(datapath, at, above.release, above.order, above.slot)
        at = (at - 1) // 2
    _put(datapath, at, release, nic.held_order, slot)


@kernel
def _sink(datapath: DataPath, release: int, order: int, slot: int) -> None:
    held = datapath.nic[0].held
    at = 0
    while True:
        child = 2 * at + 1
        if child >= held:
            break
        if child + 1 < held and _precedes(datapath, child + 1, child):
            child += 1
        below = datapath.heap[child]
        if below.release > release or (below.release == release and below.order > order):
            break
        _put(datapath, at, below.release, below.order, below.slot)
        at = child
    _put(datapath, at, release, order, slot)


@kernel
def _precedes(datapath: DataPath, a: int, b: int) -> bool:
    first, second = datapath.heap[a], datapath.heap[b]
    return first.release < second.release or (first.release == second.release and first.order < second.order)


@kernel
def _put(datapath: DataPath, at: int, release: int, order: int, slot: int) -> None:
    row = datapath.heap[at]
    row.release = release
    row.order = order
    row.slot = slot
