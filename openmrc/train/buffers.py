"""The memory of a collective: blocks of the caller's arrays, their addresses and keys.

Two costs are avoided. A rank in the middle of a large reduce adds in memory of its own: of 24 calls of 64 MiB that took
fresh memory, 22 took 45 ms and two 190 and 360 ms, of which 130 to 170 ms were processor time of that rank, as when a
host has to supply pages (4 ranks, AMD EPYC, 26 November 2026), so a group keeps one piece. And a fresh array of 64 MiB
has 16,384 pages that were never written, which the kernel supplies in one call instead of one fault each: on a virtual
machine the faults took 71 ms for 32 MiB, one call and the faultless copy 53 ms (AMD EPYC, 25 November 2026).
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import mmap
import threading
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from openmrc.verbs import MemoryRegion, RegionSlice

Bytes = NDArray[np.uint8]
Copies = Sequence[tuple[Bytes, Bytes]]  # (destination, source)
_PIECE = 1 << 20  # bytes; long copies are split, to be interleaved with communication
_ALIGNMENT = 16  # elements; aligned blocks keep reductions on whole vectors


class Memory(Protocol):
    """Interface of what makes memory accessible to other ranks: `Registrations`, `LocalRegions`."""

    def take(self, memory: Bytes) -> Any:
        """Return the region of `memory`; `give_back` ends its use."""

    def give_back(self, region: Any) -> None: ...

    def covers(self, key: int, address: int, length: int) -> bool:
        """Whether other ranks may write there with this key."""

    def close(self) -> None: ...


def even_bounds(count: int, blocks: int) -> list[int]:
    """Return the bounds of `blocks` aligned blocks of about `count / blocks` elements each."""
    each = -(-count // blocks)
    each = -(-each // _ALIGNMENT) * _ALIGNMENT
    return [min(block * each, count) for block in range(blocks)] + [count]


@lru_cache(maxsize=256)
def _equal_extents(length: int, blocks: int) -> list[tuple[int, int, int]]:
    """Return the extents of equal blocks of one array of `length` bytes; computing them cost more than a small copy."""
    each = length // blocks
    return [(0, block * each, (block + 1) * each) for block in range(blocks)]


def bytes_of(array: NDArray[Any]) -> Bytes:
    """Return the memory of a contiguous array as bytes."""
    return array.reshape(-1).view(np.uint8)


class Blocks:
    """The blocks of one space of a rank; their memory is registered on first use."""

    def __init__(self, memory: Sequence[Bytes], extents: Sequence[tuple[int, int, int]]) -> None:
        """`extents[block]` is (index in `memory`, first byte, byte after the last)."""
        self._memory = memory
        self._extents = extents
        self._regions: list[MemoryRegion | None] = [None] * len(memory)
        self._registrations: Memory | None = None

    @staticmethod
    def of_flat(array: NDArray[Any], bounds: Sequence[int]) -> Blocks:
        """Return the blocks of one contiguous array; bounds in elements."""
        size = array.itemsize
        extents = [(0, begin * size, end * size) for begin, end in itertools.pairwise(bounds)]
        return Blocks([bytes_of(array)], extents)

    @staticmethod
    def of_equal(array: NDArray[Any], blocks: int) -> Blocks:
        """Return equal blocks of one contiguous array, whose number of elements is a multiple of `blocks`."""
        memory = bytes_of(array)
        return Blocks([memory], _equal_extents(len(memory), blocks))

    @staticmethod
    def of_list(arrays: Sequence[NDArray[Any]]) -> Blocks:
        memory = [bytes_of(array) for array in arrays]
        return Blocks(memory, [(index, 0, len(each)) for index, each in enumerate(memory)])

    @staticmethod
    def of_one(array: NDArray[Any], blocks: int) -> Blocks:
        """Return one array as each of `blocks` blocks; a rank uses only one of them."""
        memory = bytes_of(array)
        return Blocks([memory], [(0, 0, len(memory))] * blocks)

    def length(self, block: int) -> int:
        """Return the size of a block in bytes."""
        _, begin, end = self._extents[block]
        return end - begin

    def view(self, block: int, begin: int, end: int) -> Bytes:
        """Return bytes `begin` to `end` of a block."""
        index, first, _ = self._extents[block]
        return self._memory[index][first + begin : first + end]

    def whole(self, block: int) -> Bytes:
        """Return all bytes of a block."""
        return self.view(block, 0, self.length(block))

    def checksum(self) -> int:
        """Return the CRC-32 of all memory, whatever the bounds of the blocks."""
        return functools.reduce(lambda value, each: zlib.crc32(each.data, value), self._memory, 0)

    def copies(self, block: int, data: Bytes) -> Copies:
        """Return the copies that move `data` into a block; none if it is already there."""
        place = self.whole(block)
        if np.may_share_memory(place, data) and place.ctypes.data == data.ctypes.data:  # the first is cheap
            return []
        return [(place[begin : begin + _PIECE], data[begin : begin + _PIECE]) for begin in range(0, len(data), _PIECE)]

    def part(self, memory: Memory, block: int, begin: int, end: int) -> RegionSlice:
        """Return bytes `begin` to `end` of a block as a slice of its region, for sending."""
        index, first, _ = self._extents[block]
        return RegionSlice(self._region(memory, index), first + begin, end - begin)

    def target(self, memory: Memory, block: int) -> tuple[int, int]:
        """Return (address, r_key) of a block for the rank that writes it; (0, 0) if it is empty."""
        if not self.length(block):
            return 0, 0
        index, first, _ = self._extents[block]
        region = self._region(memory, index)
        return region.addr + first, region.r_key

    def release(self) -> None:
        """Release the registrations; the network must no longer access the memory."""
        for region in self._regions:
            if region is not None and self._registrations is not None:
                self._registrations.give_back(region)
        self._regions = [None] * len(self._memory)

    def _region(self, memory: Memory, index: int) -> MemoryRegion:
        region = self._regions[index]
        if region is None:
            region = self._regions[index] = memory.take(self._memory[index])
            self._registrations = memory
        return region


_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE of Linux 5.14; older kernels refuse it, and faults supply the pages
LEAST = 64 << 10  # bytes from which the check is worth its microseconds
_libc = ctypes.CDLL(None)
_mincore, _madvise = _libc.mincore, _libc.madvise
_mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
_madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def supply(address: int, length: int) -> None:
    """Have the pages within `length` bytes (at `address`) supplied before they are written, if the last one is not."""
    if length < LEAST:
        return
    first = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (address + length) // mmap.PAGESIZE * mmap.PAGESIZE
    if not is_resident(end - mmap.PAGESIZE):
        _madvise(first, end - first, _POPULATE_WRITE)


def is_resident(page: int) -> bool:
    """Whether the page at an address is in memory; False also where nothing is mapped."""
    state = ctypes.c_ubyte()
    return _mincore(page, mmap.PAGESIZE, ctypes.byref(state)) == 0 and bool(state.value & 1)


KEPT = 64 << 20  # bytes, at most


class SpareMemory:
    """Keeps one piece of memory; calls at the same time as the one that has it take fresh memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spare: Bytes | None = None

    def take(self, size: int) -> Bytes:
        """Return at least `size` bytes, which may hold data of earlier calls."""
        with self._lock:
            spare = self._spare
            if spare is None or len(spare) < size:
                return np.empty(size, np.uint8)
            self._spare = None
            return spare

    def give_back(self, memory: Bytes) -> None:
        """Keep memory for later calls, instead of a smaller piece; nothing accesses it any more."""
        with self._lock:
            kept = 0 if self._spare is None else len(self._spare)
            if kept < len(memory) <= KEPT:
                self._spare = memory

    def clear(self) -> None:
        with self._lock:
            self._spare = None
