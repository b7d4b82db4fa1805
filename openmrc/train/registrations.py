"""Registered memory, kept for the next collective on the same array.

To register and to forget takes two turns of the endpoint, which small collectives feel. A registration lives at
most as long as the array that owns the memory, and is not what keeps it alive.
"""

from __future__ import annotations

import collections
import ctypes
import weakref
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openmrc.verbs import BusyError, MemoryRegion, ProtectionDomain

Bytes = NDArray[np.uint8]
_KEPT = 256  # unused registrations that are kept


class _Kept:
    """A registration and its users."""

    def __init__(self, region: MemoryRegion, owner: weakref.ref[Any]) -> None:
        self.region = region
        self.owner = owner
        self.users = 0


class Registrations:
    """The registered memory of one group. For threads that hold the group's lock."""

    def __init__(self, pd: ProtectionDomain) -> None:
        self._pd = pd
        self._kept: collections.OrderedDict[tuple[int, int], _Kept] = collections.OrderedDict()
        self._orphans: collections.deque[tuple[int, int]] = collections.deque()  # deleted owners

    def take(self, memory: Bytes) -> MemoryRegion:
        """Return the region of some memory; call `give_back` when the network no longer accesses it."""
        self._forget_orphans()
        place = (int(memory.ctypes.data), memory.nbytes)
        kept = self._kept.get(place)
        if kept is None:
            kept = self._kept[place] = self._register(memory, place)
            self._forget_oldest()
        else:
            self._kept.move_to_end(place)
        kept.users += 1
        return kept.region

    def give_back(self, region: MemoryRegion) -> None:
        """Release one use of a region."""
        kept = self._kept.get((region.addr, region.length))
        if kept is not None and kept.region is region:
            kept.users -= 1
            if kept.owner() is None:
                self._forget_orphans()

    def __len__(self) -> int:
        return len(self._kept)

    def _register(self, memory: Bytes, place: tuple[int, int]) -> _Kept:
        address, length = place
        # Not the array itself: the region would keep it alive.
        borrowed = (ctypes.c_uint8 * length).from_address(address)
        # The callback may run in any thread, within any call: it only records the deletion.
        owner = weakref.ref(_owner(memory), lambda _: self._orphans.append(place))
        return _Kept(self._pd.reg_mr(borrowed), owner)

    def _forget_orphans(self) -> None:
        for _ in range(len(self._orphans)):
            place = self._orphans.popleft()
            kept = self._kept.get(place)
            if kept is not None and kept.owner() is None and not self._forget(place, kept):
                self._orphans.append(place)

    def _forget_oldest(self) -> None:
        for place, kept in list(self._kept.items())[: max(len(self._kept) - _KEPT, 0)]:
            self._forget(place, kept)

    def _forget(self, place: tuple[int, int], kept: _Kept) -> bool:
        if kept.users:
            return False
        with suppress(BusyError):  # a write is not yet acknowledged
            kept.region.dereg()
            del self._kept[place]
            return True
        return False


def _owner(memory: Bytes) -> Any:
    """Return the array that owns the memory, or the last one in a chain that ends in another object."""
    owner: Any = memory
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return owner
