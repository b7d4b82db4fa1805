"""Pages of fresh memory are supplied at once, and what was written stays."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from openmrc.train.buffers import is_resident, supply

PAGE = mmap.PAGESIZE
PAGES = 64


def residents(memory: mmap.mmap) -> list[bool]:
    address = int(np.frombuffer(memory, np.uint8).ctypes.data)
    return [is_resident(address + page * PAGE) for page in range(PAGES)]


def test_only_whole_pages_of_the_range_are_supplied() -> None:
    memory = mmap.mmap(-1, PAGES * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if not any(residents(memory)):
        supply(int(np.frombuffer(memory, np.uint8).ctypes.data) + PAGE + 1, (PAGES - 3) * PAGE)
        if not any(residents(memory)):
            pytest.skip("the kernel has no MADV_POPULATE_WRITE (Linux 5.14)")
        assert residents(memory) == [False, False, *[True] * (PAGES - 4), False, False]


def test_memory_that_is_written_stays_as_it_is() -> None:
    array = np.arange(PAGES * PAGE, dtype=np.uint8)
    before = array.copy()
    supply(int(array.ctypes.data), array.nbytes)
    array[-PAGE:] = 1
    supply(int(array.ctypes.data) + 5, array.nbytes - 5)
    assert (array[:-PAGE] == before[:-PAGE]).all()


def test_memory_that_cannot_be_supplied_is_left_to_the_writer() -> None:
    supply(1 << 40, 1 << 20)  # nothing is mapped there
    supply(0, 0)
