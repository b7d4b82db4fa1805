"""Cache of memory registrations: each takes two iterations of the endpoint's loop, which dominates small collectives.

A registration holds no reference to the array that owns the memory, and is removed after that array is deleted.
"""

import collections
import ctypes
import itertools
import weakref
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openmrc.errors import MrcError
from openmrc.verbs import BusyError, MemoryRegion, ProtectionDomain

Bytes = NDArray[np.uint8]
_CAPACITY = 256  # registrations beyond which unused ones are evicted


class _Registration:
    """A registered region, the owner of its memory, and its number of users."""

    def __init__(self, region: MemoryRegion, owner: weakref.ref[Any]) -> None:
        self.region = region
        self.owner = owner
        self.users = 0


class Registrations:
    """The registered memory of one group; callers hold the group's lock."""

    def __init__(self, pd: ProtectionDomain) -> None:
        self._pd = pd
        self._entries: collections.OrderedDict[tuple[int, int], _Registration] = collections.OrderedDict()
        self._by_key: dict[int, MemoryRegion] = {}  # by r_key
        self._orphans: collections.deque[tuple[int, int]] = collections.deque()  # keys whose owners were deleted

    def take(self, memory: Bytes) -> MemoryRegion:
        """Return the region of `memory`; call `give_back` when the network no longer accesses it."""
        self._evict_orphans()
        key = (int(memory.ctypes.data), memory.nbytes)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = self._register(memory, key)
            self._evict_oldest()
        else:
            self._entries.move_to_end(key)
        entry.users += 1
        return entry.region

    def give_back(self, region: MemoryRegion) -> None:
        entry = self._entries.get((region.addr, region.length))
        if entry is not None and entry.region is region:
            entry.users -= 1
            if entry.owner() is None:
                self._evict_orphans()

    def close(self) -> None:
        """Deregister everything; the queue pairs that used it are destroyed."""
        for entry in self._entries.values():
            with suppress(MrcError):
                entry.region.dereg()
        self._entries.clear()
        self._by_key.clear()

    def covers(self, key: int, address: int, length: int) -> bool:
        """Whether ranks of this host may write `length` bytes at `address` with `key`."""
        region = self._by_key.get(key)
        return region is not None and region.addr <= address and address + length <= region.addr + region.length

    def __len__(self) -> int:
        return len(self._entries)

    def _register(self, memory: Bytes, key: tuple[int, int]) -> _Registration:
        address, length = key
        # Register a view by address: the region would keep the array itself alive.
        view = (ctypes.c_uint8 * length).from_address(address)
        # The callback may run in any thread, within any call, so it only records the deletion.
        owner = weakref.ref(_owner(memory), lambda _: self._orphans.append(key))
        region = self._pd.reg_mr(view)
        self._by_key[region.r_key] = region
        return _Registration(region, owner)

    def _evict_orphans(self) -> None:
        for _ in range(len(self._orphans)):
            key = self._orphans.popleft()
            entry = self._entries.get(key)
            if entry is not None and entry.owner() is None and not self._evict(key, entry):
                self._orphans.append(key)

    def _evict_oldest(self) -> None:
        for key, entry in list(self._entries.items())[: max(len(self._entries) - _CAPACITY, 0)]:
            self._evict(key, entry)

    def _evict(self, key: tuple[int, int], entry: _Registration) -> bool:
        if entry.users:
            return False
        with suppress(BusyError):  # a write is not yet acknowledged
            r_key = entry.region.r_key
            entry.region.dereg()
            del self._entries[key], self._by_key[r_key]
            return True
        return False


def _owner(memory: Bytes) -> Any:
    """Return the array that owns the memory, or what the object says that an array was made of; else the last array."""
    owner: Any = memory
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return getattr(owner.base, "owner", owner)


_KEYS = 1 << 32


class LocalRegion(NamedTuple):
    """Memory that peers on this host may have written to, with the fields of a `MemoryRegion`."""

    addr: int
    length: int
    r_key: int


class LocalRegions:
    """The regions in use, with the interface of `Registrations`."""

    def __init__(self) -> None:
        self._keys = itertools.count(1)
        self._regions: dict[int, LocalRegion] = {}

    def take(self, memory: NDArray[np.uint8]) -> LocalRegion:
        """Return a region of `memory`, which the caller keeps alive until `give_back`."""
        key = next(self._keys) % _KEYS
        region = self._regions[key] = LocalRegion(int(memory.ctypes.data), memory.nbytes, key)
        return region

    def give_back(self, region: LocalRegion) -> None:
        self._regions.pop(region.r_key, None)

    def covers(self, key: int, address: int, length: int) -> bool:
        """Whether peers may write `length` bytes at `address` with `key`."""
        region = self._regions.get(key)
        return region is not None and region.addr <= address and address + length <= region.addr + region.length

    def close(self) -> None:
        self._regions.clear()
