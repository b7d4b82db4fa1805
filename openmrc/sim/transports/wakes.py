"""Timers of senders: one binary heap per NIC, in which a sender appears at most once.

The cost is logarithmic in the number of senders, so a NIC with 100,000 messages in progress takes little more time per
packet than one with ten. The heaps of all NICs share a table with as many slots as there are senders.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from openmrc.core.jit import kernel
from openmrc.core.rows import Int, Int32, Table, column, table
from openmrc.units import NEVER

NONE = -1


class Heap:
    """The heap of one NIC: a range of slots."""

    base: Int
    count: Int


class Wake:
    """Row i is slot i of the heaps, and the slot of sender i."""

    at: Int  # ps
    sender: Int32
    slot: Int32  # slot of sender i, or NONE


def build(nic: NDArray[np.int64], nics: int) -> tuple[Table[Heap], Table[Wake]]:
    """Return empty heaps for senders at these NICs."""
    heaps, wakes = table(Heap, nics), table(Wake, len(nic))
    here = np.bincount(nic, minlength=nics)
    column(heaps, "base")[:] = np.cumsum(here) - here
    column(wakes, "slot")[:] = NONE
    return heaps, wakes


@kernel
def first(heaps: Table[Heap], wakes: Table[Wake], nic: int) -> int:
    """Return the earliest time (ps) of a NIC's senders, NEVER if none waits."""
    heap = heaps[nic]
    return wakes[heap.base].at if heap.count > 0 else NEVER


@kernel
def set_wake(heaps: Table[Heap], wakes: Table[Wake], nic: int, sender: int, at: int) -> None:
    """Set the timer of a sender, replacing any earlier setting; NEVER: none."""
    heap = heaps[nic]
    slot = wakes[sender].slot
    if at == NEVER:
        if slot != NONE:
            _remove(heaps, wakes, nic, slot)
        return
    if slot == NONE:
        slot = heap.base + heap.count
        heap.count += 1
        _place(wakes, slot, sender, at)
    elif wakes[slot].at == at:
        return
    wakes[slot].at = at
    _down(wakes, heap.base, heap.base + heap.count, _up(wakes, heap.base, slot))


@kernel
def take_due(heaps: Table[Heap], wakes: Table[Wake], nic: int, now: int) -> int:
    """Remove the first sender that is due and return it, or NONE."""
    heap = heaps[nic]
    if heap.count == 0 or wakes[heap.base].at > now:
        return NONE
    sender = wakes[heap.base].sender
    _remove(heaps, wakes, nic, heap.base)
    return int(sender)


@kernel
def _remove(heaps: Table[Heap], wakes: Table[Wake], nic: int, slot: int) -> None:
    heap = heaps[nic]
    heap.count -= 1
    last = heap.base + heap.count
    wakes[wakes[slot].sender].slot = NONE
    if slot != last:
        _place(wakes, slot, wakes[last].sender, wakes[last].at)
        _down(wakes, heap.base, last, _up(wakes, heap.base, slot))


@kernel
def _place(wakes: Table[Wake], slot: int, sender: int, at: int) -> None:
    wakes[slot].at = at
    wakes[slot].sender = sender
    wakes[sender].slot = slot


@kernel
def _precedes(wakes: Table[Wake], a: int, b: int) -> bool:
    """Order by time, then by sender: the order does not depend on what was removed before."""
    one, other = wakes[a], wakes[b]
    return one.at < other.at or (one.at == other.at and one.sender < other.sender)


@kernel
def _swap(wakes: Table[Wake], a: int, b: int) -> None:
    at, sender = wakes[a].at, wakes[a].sender
    _place(wakes, a, wakes[b].sender, wakes[b].at)
    _place(wakes, b, sender, at)


@kernel
def _up(wakes: Table[Wake], base: int, slot: int) -> int:
    while slot > base:
        above = base + (slot - base - 1) // 2
        if not _precedes(wakes, slot, above):
            break
        _swap(wakes, slot, above)
        slot = above
    return slot


@kernel
def _down(wakes: Table[Wake], base: int, end: int, slot: int) -> None:
    while True:
        child = base + 2 * (slot - base) + 1
        if child >= end:
            return
        if child + 1 < end and _precedes(wakes, child + 1, child):
            child += 1
        if not _precedes(wakes, child, slot):
            return
        _swap(wakes, slot, child)
        slot = child
