"""Heaps through the rows of a table, against a plain dictionary."""

from __future__ import annotations

import random
from typing import Any

import pytest

from openmrc.core import heap
from openmrc.core.rows import Float, Int, Int32, Table, column, table
from openmrc.units import NEVER

ITEMS, HEAPS = 40, 3


class _Holder:
    heap_base: Int32
    heap_count: Int32


class _Entry:
    at: Int
    item: Int32
    slot: Int32


class _FractionalEntry:
    at: Float
    item: Int32
    slot: Int32


@pytest.mark.parametrize("row", [_Entry, _FractionalEntry])
@pytest.mark.parametrize("seed", range(20))
def test_items_come_in_order_of_time_whatever_is_set_moved_and_taken_away(seed: int, row: type) -> None:
    draw = random.Random(seed)
    heap_of = [draw.randrange(HEAPS) for _ in range(ITEMS)]
    holders = table(_Holder, HEAPS)
    entries: Table[Any] = table(row, ITEMS)
    column(entries, "slot")[:] = heap.NONE
    for number in range(HEAPS):
        holders[number].heap_base = sum(each < number for each in heap_of)
    expected: dict[int, int] = {}
    for _ in range(500):
        item = draw.randrange(ITEMS)
        holder = holders[heap_of[item]]
        if draw.random() < 0.7:
            at = draw.choice((NEVER, draw.randrange(100)))
            heap.arm(holder, entries, item, at)
            expected[item] = at
        here = [(at, each) for each, at in expected.items() if heap_of[each] == heap_of[item] and at < NEVER]
        assert holder.heap_count == len(here)
        assert heap.first_at(holder, entries) == min(here, default=(NEVER, heap.NONE))[0]
        if here and draw.random() < 0.3:
            taken = heap.take_first(holder, entries)
            assert taken == min(here)[1]
            expected[taken] = NEVER
