"""The memory of a collective: blocks of the caller's arrays, their addresses and keys."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openmrc.train.registrations import Registrations
from openmrc.verbs import MemoryRegion, RegionSlice

Bytes = NDArray[np.uint8]
Copies = Sequence[tuple[Bytes, Bytes]]  # to, from
_PIECE = 1 << 20  # bytes of a copy that is made between two chunks
_ALIGNED = 16  # elements: alignment of blocks, so that reductions run on whole vectors


def even_bounds(count: int, blocks: int) -> list[int]:
    """Return the bounds of `blocks` blocks of about `count / blocks` elements."""
    each = -(-count // blocks)
    each = -(-each // _ALIGNED) * _ALIGNED
    return [min(block * each, count) for block in range(blocks)] + [count]


def equal_bounds(count: int, blocks: int) -> list[int]:
    """Return the bounds of equal blocks: `count` must be a multiple of `blocks`."""
    each = count // blocks
    return [block * each for block in range(blocks + 1)]


def bytes_of(array: NDArray[Any]) -> Bytes:
    """Return the memory of a contiguous array as bytes."""
    return array.reshape(-1).view(np.uint8)


class Blocks:
    """Blocks of one space of a rank, with their regions once registered."""

    def __init__(self, memory: Sequence[Bytes], places: Sequence[tuple[int, int, int]]) -> None:
        """`places[block]` is (index in `memory`, first byte, byte after the last)."""
        self._memory = memory
        self._places = places
        self._regions: list[MemoryRegion | None] = [None] * len(memory)
        self._registrations: Registrations | None = None

    @staticmethod
    def of_flat(array: NDArray[Any], bounds: Sequence[int]) -> Blocks:
        """Return the blocks of one contiguous array; bounds in elements."""
        size = array.itemsize
        places = [(0, begin * size, end * size) for begin, end in itertools.pairwise(bounds)]
        return Blocks([bytes_of(array)], places)

    @staticmethod
    def of_list(arrays: Sequence[NDArray[Any]]) -> Blocks:
        """Return contiguous arrays as blocks."""
        memory = [bytes_of(array) for array in arrays]
        return Blocks(memory, [(index, 0, len(each)) for index, each in enumerate(memory)])

    @staticmethod
    def of_one(array: NDArray[Any], blocks: int) -> Blocks:
        """Return one array as every block: each rank uses only one of them."""
        memory = bytes_of(array)
        return Blocks([memory], [(0, 0, len(memory))] * blocks)

    def length(self, block: int) -> int:
        """Return the bytes of a block."""
        _, begin, end = self._places[block]
        return end - begin

    def view(self, block: int, begin: int, end: int) -> Bytes:
        """Return some bytes of a block."""
        index, first, _ = self._places[block]
        return self._memory[index][first + begin : first + end]

    def whole(self, block: int) -> Bytes:
        """Return all bytes of a block."""
        return self.view(block, 0, self.length(block))

    def copies(self, block: int, data: Bytes) -> Copies:
        """Return pieces (to, from) that copy `data` into a block; none if both are the same memory."""
        place = self.whole(block)
        if place.ctypes.data == data.ctypes.data:
            return []
        return [(place[begin : begin + _PIECE], data[begin : begin + _PIECE]) for begin in range(0, len(data), _PIECE)]

    def part(self, memory: Registrations, block: int, begin: int, end: int) -> RegionSlice:
        """Return a part of a block, to be sent."""
        index, first, _ = self._places[block]
        return RegionSlice(self._region(memory, index), first + begin, end - begin)

    def target(self, memory: Registrations, block: int) -> tuple[int, int]:
        """Return address and key of a block for the rank that will write it; (0, 0) if it is empty."""
        if not self.length(block):
            return 0, 0
        index, first, _ = self._places[block]
        region = self._region(memory, index)
        return region.addr + first, region.r_key

    def release(self) -> None:
        """Release the registrations: the network no longer accesses the memory."""
        for region in self._regions:
            if region is not None and self._registrations is not None:
                self._registrations.give_back(region)
        self._regions = [None] * len(self._memory)

    def _region(self, memory: Registrations, index: int) -> MemoryRegion:
        region = self._regions[index]
        if region is None:
            region = self._regions[index] = memory.take(self._memory[index])
            self._registrations = memory
        return region
