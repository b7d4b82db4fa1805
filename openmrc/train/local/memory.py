"""The memory of collectives in a group whose ranks share this host: no registration with an endpoint is needed.

A peer asks this process to copy what it sent to an address; the key of a region says whether the address was announced.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
        """End the use of a region."""
        self._regions.pop(region.r_key, None)

    def covers(self, key: int, address: int, length: int) -> bool:
        """Whether peers may write `length` bytes at `address` with `key`."""
        region = self._regions.get(key)
        return region is not None and region.addr <= address and address + length <= region.addr + region.length

    def close(self) -> None:
        """Forget all regions."""
        self._regions.clear()
