"""Pages of fresh memory are supplied at once, and what was written stays."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

import numpy as np
import pytest

from openmrc.core.rows import Int, table
from openmrc.live.datapath.rows import address_of
from openmrc.live.host import runtime
from openmrc.train import buffers
from openmrc.train.buffers import LEAST, is_resident, supply
from openmrc.train.links import local_queue_pair

PAGE = mmap.PAGESIZE
PAGES = 64
LARGE = 64 << 10  # bytes of a page, as of kernels for Grace
ROOT = Path(__file__).parents[2]
FIXED = re.compile(r"\b(4096|4095|0xfff|(<<|>>) 12)\b", re.IGNORECASE)


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


class Number:
    value: Int


def test_large_pages_are_supplied_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(mmap, "PAGESIZE", LARGE)
    monkeypatch.setattr(buffers, "is_resident", lambda page: False)
    monkeypatch.setattr(buffers, "_madvise", lambda at, length, _how: asked.append((at, length)))
    supply(LARGE + 1, 3 * LARGE)
    supply(LARGE - 1, LEAST)  # it has no page of its own
    assert asked == [(2 * LARGE, 2 * LARGE), (LARGE, 0)]


def test_tables_are_advised_by_whole_large_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(runtime, "PAGESIZE", LARGE)
    monkeypatch.setattr(runtime, "advise", lambda at, length, _how: asked.append((at, length)))
    large, small = table(Number, LARGE), table(Number, 8)
    runtime._use_small_pages([large, small])  # type: ignore[arg-type]
    ((at, length),) = asked
    assert at % LARGE == length % LARGE == 0
    assert address_of(large) <= at < address_of(large) + LARGE
    assert at + length <= address_of(large, len(large)) < at + length + LARGE


def test_shared_memory_is_laid_out_in_pages_of_this_kernel() -> None:
    assert local_queue_pair._RING % PAGE == 0


def test_nobody_takes_a_page_for_4096_bytes() -> None:
    sources = [*(ROOT / "openmrc").rglob("*.py"), *(ROOT / "native" / "src").rglob("*.[ch]")]
    assert [
        f"{source.name}: {line}"
        for source in sources
        for line in source.read_text(encoding="utf-8").splitlines()
        if FIXED.search(line) and re.search(r"page|mmap|advise|align|mincore", line, re.IGNORECASE)
    ] == []
