"""Binary heaps of items by time, in the rows of a table: setting, moving and removing a time take logarithmic time.

A heap is a row that knows where its entries begin (`heap_base`) and how many they are (`heap_count`), so several heaps
share a table. Row i of the table is two things: entry i, an item and its time, and the place of item i (`slot`, the
entry that holds it, NONE: it is in no heap). An item is in one heap at most. Entries are ordered by time, then by item:
the order does not depend on what was removed before.
"""

from typing import Protocol, TypeVar

from openmrc.core.jit import kernel
from openmrc.core.rows import Table
from openmrc.units import NEVER

NONE = -1
Time = TypeVar("Time", int, float)


class TimeHeap(Protocol):
    """A row that holds a heap."""

    heap_base: int
    heap_count: int


class HeapEntry(Protocol[Time]):
    """A row of entries and places."""

    at: Time
    item: int
    slot: int


@kernel
def first_at(heap: TimeHeap, entries: Table[HeapEntry[Time]]) -> Time:
    """Return the earliest time, NEVER if the heap is empty."""
    return entries[heap.heap_base].at if heap.heap_count > 0 else NEVER


@kernel
def arm(heap: TimeHeap, entries: Table[HeapEntry[Time]], item: int, at: Time) -> None:
    """Set the time of an item, whatever it was; NEVER: the item leaves the heap."""
    slot = entries[item].slot
    if at == NEVER:
        if slot != NONE:
            _remove(heap, entries, slot)
        return
    if slot == NONE:
        slot = heap.heap_base + heap.heap_count
        heap.heap_count += 1
        _place(entries, slot, item, at)
    elif entries[slot].at == at:
        return
    entries[slot].at = at
    _down(heap, entries, _up(heap, entries, slot))


@kernel
def take_first(heap: TimeHeap, entries: Table[HeapEntry[Time]]) -> int:
    """Remove the first item of a heap that is not empty, and return it."""
    item = entries[heap.heap_base].item
    _remove(heap, entries, heap.heap_base)
    return item


@kernel
def _remove(heap: TimeHeap, entries: Table[HeapEntry[Time]], slot: int) -> None:
    heap.heap_count -= 1
    last = heap.heap_base + heap.heap_count
    entries[entries[slot].item].slot = NONE
    if slot != last:
        _place(entries, slot, entries[last].item, entries[last].at)
        _down(heap, entries, _up(heap, entries, slot))


@kernel
def _place(entries: Table[HeapEntry[Time]], slot: int, item: int, at: Time) -> None:
    entries[slot].at = at
    entries[slot].item = item
    entries[item].slot = slot


@kernel
def _precedes(entries: Table[HeapEntry[Time]], a: int, b: int) -> bool:
    one, other = entries[a], entries[b]
    return one.at < other.at or (one.at == other.at and one.item < other.item)


@kernel
def _swap(entries: Table[HeapEntry[Time]], a: int, b: int) -> None:
    at, item = entries[a].at, entries[a].item
    _place(entries, a, entries[b].item, entries[b].at)
    _place(entries, b, item, at)


@kernel
def _up(heap: TimeHeap, entries: Table[HeapEntry[Time]], slot: int) -> int:
    """Move an entry towards the first until none that follows it is above it; return where it stands."""
    base = heap.heap_base
    while slot > base:
        above = base + (slot - base - 1) // 2
        if not _precedes(entries, slot, above):
            break
        _swap(entries, slot, above)
        slot = above
    return slot


@kernel
def _down(heap: TimeHeap, entries: Table[HeapEntry[Time]], slot: int) -> None:
    """Move an entry away from the first until none that precedes it is below it."""
    base, end = heap.heap_base, heap.heap_base + heap.heap_count
    while True:
        child = base + 2 * (slot - base) + 1
        if child >= end:
            return
        if child + 1 < end and _precedes(entries, child + 1, child):
            child += 1
        if not _precedes(entries, child, slot):
            return
        _swap(entries, slot, child)
        slot = child
