"""Words and lines at memory addresses: what compiled code reads and writes is what plain Python does."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.core.jit import entry
from openmrc.core.memory import (
    fence,
    load_acquire,
    load_be64,
    prefetch,
    prefetch_row,
    store_be32,
    store_release,
    stream_line,
)
from openmrc.core.rows import CACHE_LINE, Int, Table, table
from openmrc.wire.codec import Bytes, Words


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


@entry
def streamed(target: Bytes, source: Bytes, at: int) -> int:
    """Copy one line past the caches to the first whole line of `target`; return its offset."""
    begin = -target.ctypes.data & (CACHE_LINE - 1)
    stream_line(target.ctypes.data + begin, source.ctypes.data + at)
    fence()
    return begin


def test_a_streamed_line_is_copied_from_any_alignment() -> None:
    source = np.arange(2 * CACHE_LINE, dtype=np.uint8)
    for function in (streamed, streamed.py_func):
        for at in (0, 1, 7, CACHE_LINE - 1):
            target = np.zeros(3 * CACHE_LINE, np.uint8)
            begin = function(target, source, at)
            np.testing.assert_array_equal(target[begin : begin + CACHE_LINE], source[at : at + CACHE_LINE])
            assert not target[:begin].any()
            assert not target[begin + CACHE_LINE :].any()


@entry
def publish(words: Words, rounds: int) -> None:
    """Write a number, then release it as published, again and again."""
    published = words.ctypes.data + 8 * CACHE_LINE
    for number in range(1, rounds + 1):
        words[0] = number
        store_release(published, number)


@entry
def stale(words: Words, rounds: int) -> int:
    """Return how often a number was older than what had been published before it was read."""
    published = words.ctypes.data + 8 * CACHE_LINE
    found = seen = 0
    while seen < rounds:
        seen = load_acquire(published)
        if words[0] < seen:
            found += 1
    return found


@pytest.mark.needs("jit")
def test_what_is_released_is_there_for_who_acquires_it() -> None:
    """A processor with x86's order passes without them, too: `test_memory_order` is what says that they are enough."""
    words, rounds = np.zeros(2 * CACHE_LINE, np.int64), 300_000
    found: list[int] = []
    reader = threading.Thread(target=lambda: found.append(stale(words, rounds)))
    reader.start()
    publish(words, rounds)
    reader.join()
    assert found == [0]
