"""Rows: fields read as plain numbers, write through, and keep their width."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import pytest
from numpy.typing import NDArray

from openmrc.core.jit import entry
from openmrc.core.rows import CACHE_LINE, Float, Int, Int8, Int16, Int32, Table, dtype_of, table


class Thing:
    size: Int  # a name that NumPy arrays use themselves
    narrow: Int8
    short: Int16
    middle: Int32
    share: Float


class Group:
    first: Int
    several: Annotated[NDArray[np.int64], (np.int64, (3,))]


@entry
def rotate(groups: Table[Group], index: int) -> int:
    group = groups[index]
    for k in range(3):
        group.several[k] += (k + 1) * group.first
    return int(group.several[2])


@entry
def touch(things: Table[Thing], index: int) -> int:
    thing = things[index]
    thing.size += 5
    thing.narrow = thing.narrow + 1
    thing.share = thing.size / 4
    return thing.size + thing.narrow * 1000


@pytest.mark.parametrize("count", [1, 7, 100_000])
def test_table_begins_at_a_cache_line(count: int) -> None:
    rows = np.asarray(table(Thing, count))
    assert len(rows) == count
    assert rows.ctypes.data % CACHE_LINE == 0
    assert not rows.view(np.uint8).any()


def test_table_may_be_empty() -> None:
    assert len(table(Thing, 0)) == 0


def test_row_is_a_view_that_writes_through() -> None:
    things = table(Thing, 3)
    row = things[1]
    row.size = 7
    assert things[1].size == 7
    assert things[0].size == things[2].size == 0


def test_compiled_and_interpreted_code_touch_a_row_alike() -> None:
    first, second = table(Thing, 2), table(Thing, 2)
    assert touch(first, 1) == touch.py_func(second, 1) == 1005
    assert np.array_equal(np.asarray(first), np.asarray(second))


def test_field_of_several_numbers_writes_through_compiled_and_interpreted() -> None:
    first, second = table(Group, 2), table(Group, 2)
    for groups in (first, second):
        groups[1].first = 5
        groups[1].several[2] = 1
    assert rotate(first, 1) == rotate.py_func(second, 1) == 16
    assert np.array_equal(np.asarray(first), np.asarray(second))
    assert list(np.asarray(first)["several"][1]) == [5, 10, 16]
    assert not np.asarray(first)["several"][0].any()


def test_fields_read_as_plain_python_numbers() -> None:
    row = table(Thing, 1)[0]
    row.narrow = 100
    assert row.narrow + row.narrow == 200, "no overflow at the field's width"
    assert type(row.narrow) is int
    assert type(row.share) is float


def test_number_too_large_for_its_field_is_not_kept() -> None:
    row = table(Thing, 1)[0]
    with pytest.raises(OverflowError):
        row.narrow = 300


def test_layout_keeps_order_and_width() -> None:
    layout = dtype_of(Thing)
    assert layout.names == ("size", "narrow", "short", "middle", "share")
    assert [layout[name].itemsize for name in layout.names] == [8, 1, 2, 4, 8]
