"""Words at memory addresses: what compiled code reads and writes is what plain Python does."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.core.jit import entry
from openmrc.core.memory import load_be64, prefetch, prefetch_row, store_be32
from openmrc.core.rows import Int, Table, table
from openmrc.wire.codec import Bytes


@entry
def swapped(buffer: Bytes, at: int, word: int) -> int:
    """Prefetch and read eight bytes, then write four of them."""
    address = buffer.ctypes.data + at
    prefetch(address)
    number = load_be64(address)
    store_be32(address, word)
    return number


@settings(deadline=None)
@given(st.binary(min_size=16, max_size=16), st.integers(0, 8), st.integers(-(1 << 63), (1 << 63) - 1))
def test_any_alignment_sign_and_height(data: bytes, at: int, word: int) -> None:
    expected = data[:at] + (word & 0xFFFFFFFF).to_bytes(4, "big") + data[at + 4 :]
    for function in (swapped, swapped.py_func):
        buffer = np.frombuffer(bytearray(data), np.uint8)
        assert function(buffer, at, word) == int.from_bytes(data[at : at + 8], "big", signed=True)
        assert buffer.tobytes() == expected


class Number:
    value: Int


@entry
def total(numbers: Table[Number]) -> int:
    """Add the numbers, the row ahead prefetched: before the first, and beyond the last."""
    result = 0
    prefetch_row(numbers, -1)
    for index in range(len(numbers)):
        prefetch_row(numbers, index + 1)
        result += numbers[index].value
    return result


def test_rows_before_and_beyond_a_table_may_be_prefetched() -> None:
    numbers = table(Number, 100)
    for index in range(100):
        numbers[index].value = index
    assert total(numbers) == total.py_func(numbers) == 4950
    assert total(table(Number, 0)) == 0
