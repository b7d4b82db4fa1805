"""What impairments do to an arriving packet: lost, late, doubled, cut, spoilt.

Decided under the engine, in the compiled path, by a generator of each plane: a plane without
impairments pays one comparison, a loss rate one random number a packet. Packets that have to wait
are copied into a heap ordered by time; when that is full, they are lost, as in a switch.
"""

from __future__ import annotations

from openmrc.core import rng
from openmrc.core.jit import kernel, rare_kernel
from openmrc.faults import OVERTAKEN
from openmrc.live.datapath.libc import copy
from openmrc.live.datapath.tables import FRAME, HELD_AT, Wires
from openmrc.units import NEVER, PS_PER_MS, PS_PER_S

LOST, LATE, TWICE, SPOILT, CUT = 1, 2, 4, 8, 16
SHARE_ONE = 1 << 31  # a share of 1
TRIMMED_LENGTH = 36  # bytes kept: BTH, METH, TSETH and RETH
LONGEST_QUEUE = 50 * PS_PER_MS  # of a limited rate; what comes then is dropped, as by a switch
JITTER_STEPS = 1 << 16
_OVERHEAD = 46 + 24  # bytes of Ethernet, IP, UDP and gap that a rate counts, roughly


@kernel
def decide(wires: Wires, plane: int) -> int:
    """Return what happens to the next packet of an impaired plane, as a mask."""
    row = wires.planes[plane]
    if row.down == 1 or _chance(wires, plane, row.loss):
        row.taken += 1
        return LOST
    fate = 0
    if _chance(wires, plane, row.corruption):
        fate |= SPOILT
    if _chance(wires, plane, row.duplicate):
        fate |= TWICE
    if _chance(wires, plane, row.reorder):
        fate |= LATE
    if _chance(wires, plane, row.trim):
        fate |= CUT
    if fate:
        row.taken += 1
    return fate


@kernel
def _chance(wires: Wires, plane: int, share: int) -> bool:
    if share == 0:
        return False
    row = wires.planes[plane]
    row.random = rng.following(row.random)
    return row.random >> 1 < share


@kernel
def spoil(wires: Wires, plane: int, at: int, size: int) -> None:
    """Turn one bit over, anywhere in the packet."""
    row = wires.planes[plane]
    row.random = rng.following(row.random)
    bit = rng.below(row.random, size * 8)
    wires.staging[at + bit // 8] ^= 1 << (bit & 7)


@rare_kernel
def befall(wires: Wires, train: int) -> None:
    """Take the last train apart and put what is left of it, packet by packet, in its place or aside."""
    nic = wires.nic[0]
    whole = wires.trains[train]
    at, end, segment, tos = whole.at, whole.at + whole.length, whole.segment, whole.tos
    plane, number, port, ev = whole.plane, whole.number, whole.port, whole.entropy
    nic.trains = train
    while at < end:
        size = min(segment, end - at)
        fate = decide(wires, plane)
        if fate & SPOILT != 0:
            spoil(wires, plane, at, size)
        for _ in range(0 if fate & LOST != 0 else 2 if fate & TWICE != 0 else 1):
            if nic.trains == len(wires.trains):
                wires.planes[plane].taken += 1
                continue
            row = wires.trains[nic.trains]
            row.at = at
            row.length = size
            row.segment = size
            row.plane = plane
            row.number = number
            row.port = port
            row.entropy = ev
            row.tos = tos
            row.cut = 1 if fate & CUT != 0 else 0
            if wires.planes[plane].slow == 1 or fate & LATE != 0:
                _hold(wires, nic.trains, fate)
            else:
                nic.trains += 1
        at += size


@kernel
def _hold(wires: Wires, train: int, fate: int) -> None:
    """Put a packet aside until it is due."""
    nic = wires.nic[0]
    packet = wires.trains[train]
    row = wires.planes[packet.plane]
    release = nic.now + row.delay
    if row.jitter > 0:
        row.random = rng.following(row.random)
        release += row.jitter // JITTER_STEPS * rng.below(row.random, JITTER_STEPS)
    if fate & LATE != 0:
        release += OVERTAKEN
    if row.rate > 0:
        begin = max(row.free_at, nic.now)
        if begin - nic.now > LONGEST_QUEUE:
            row.taken += 1
            return
        row.free_at = begin + (packet.length + _OVERHEAD) * 8 * PS_PER_S // row.rate
        release += row.free_at - nic.now
    if nic.held == len(wires.frames) or packet.length > FRAME:
        row.taken += 1
        return
    slot = wires.free_frames[len(wires.frames) - 1 - nic.held, 0]
    frame = wires.frames[slot]
    frame.plane = packet.plane
    frame.number = packet.number
    frame.port = packet.port
    frame.entropy = packet.entropy
    frame.tos = packet.tos
    frame.cut = packet.cut
    frame.length = packet.length
    base = wires.staging.ctypes.data
    copy(base + HELD_AT + slot * FRAME, base + packet.at, packet.length)
    _push(wires, release, slot)


@rare_kernel
def release(wires: Wires) -> None:
    """Line up for the engine what was held back and is due."""
    nic = wires.nic[0]
    while nic.held > 0 and wires.heap[0].release <= nic.now and nic.trains < len(wires.trains):
        slot = wires.heap[0].slot
        nic.held -= 1
        last = wires.heap[nic.held]
        _sink(wires, last.release, last.order, last.slot)
        # Free at once: nothing is held back again before the engine has seen it.
        wires.free_frames[len(wires.frames) - 1 - nic.held, 0] = slot
        frame = wires.frames[slot]
        row = wires.trains[nic.trains]
        nic.trains += 1
        row.at = HELD_AT + slot * FRAME
        row.length = frame.length
        row.segment = frame.length
        row.plane = frame.plane
        row.number = frame.number
        row.port = frame.port
        row.entropy = frame.entropy
        row.tos = frame.tos
        row.cut = frame.cut


@kernel
def next_release(wires: Wires) -> int:
    """Return when the next held packet is due (ps), or NEVER."""
    return wires.heap[0].release if wires.nic[0].held > 0 else NEVER


@kernel
def _push(wires: Wires, release: int, slot: int) -> None:
    nic = wires.nic[0]
    at = nic.held
    nic.held += 1
    nic.held_order += 1
    while at > 0 and wires.heap[(at - 1) // 2].release > release:
        above = wires.heap[(at - 1) // 2]
        _put(wires, at, above.release, above.order, above.slot)
        at = (at - 1) // 2
    _put(wires, at, release, nic.held_order, slot)


@kernel
def _sink(wires: Wires, release: int, order: int, slot: int) -> None:
    held = wires.nic[0].held
    at = 0
    while True:
        child = 2 * at + 1
        if child >= held:
            break
        if child + 1 < held and _precedes(wires, child + 1, child):
            child += 1
        below = wires.heap[child]
        if below.release > release or (below.release == release and below.order > order):
            break
        _put(wires, at, below.release, below.order, below.slot)
        at = child
    _put(wires, at, release, order, slot)


@kernel
def _precedes(wires: Wires, a: int, b: int) -> bool:
    first, second = wires.heap[a], wires.heap[b]
    return first.release < second.release or (first.release == second.release and first.order < second.order)


@kernel
def _put(wires: Wires, at: int, release: int, order: int, slot: int) -> None:
    row = wires.heap[at]
    row.release = release
    row.order = order
    row.slot = slot
