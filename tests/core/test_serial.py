"""Numbers that wrap."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.core.jit import entry
from openmrc.core.serial import MSN_BITS, PSN_BITS, distance, extend

BITS = st.sampled_from([PSN_BITS, MSN_BITS])
NUMBERS = st.integers(0, 1 << 50)


@entry
def extended(low: int, near: int, bits: int) -> int:
    return extend(low, near, bits)


@settings(deadline=None)
@given(near=NUMBERS, bits=BITS, data=st.data())
def test_low_bits_and_a_near_number_give_the_number_back(near: int, bits: int, data: st.DataObject) -> None:
    half = 1 << (bits - 1)
    full = near + data.draw(st.integers(-half, half - 1))
    low = full & ((1 << bits) - 1)
    assert extend(low, near, bits) == full == extended(low, near, bits)


@settings(deadline=None)
@given(a=NUMBERS, b=NUMBERS, bits=BITS)
def test_distance_is_the_difference_on_the_ring(a: int, b: int, bits: int) -> None:
    ring, half = 1 << bits, 1 << (bits - 1)
    summary = distance(a, b, bits)
    assert -half <= summary < half
    assert (summary - (a - b)) % ring == 0


def test_the_point_opposite_counts_as_behind() -> None:
    assert distance(1 << 23, 0, PSN_BITS) == -(1 << 23)
