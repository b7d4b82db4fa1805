import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.core.jit import entry
from openmrc.wire.entropy import (
    PATHS_OF_A_PLANE,
    SRV6_INDEX_MASK,
    EvPlacement,
    entropy,
    flow_label,
    on_plane,
    source_port,
)

from .packets import repeatable

PATH = (st.integers(0, 15), st.integers(0, (1 << 28) - 1))  # plane, number
WIDTHS = {EvPlacement.UDP: 16, EvPlacement.SRV6: 14}


@entry
def there_and_back(placement: int, ev: int) -> int:
    return entropy(placement, source_port(placement, ev), flow_label(placement, ev))


@repeatable
@given(st.sampled_from(tuple(EvPlacement)), st.integers(0, 2**32 - 1))
def test_an_ev_that_fits_comes_back_from_the_headers(placement: EvPlacement, ev: int) -> None:
    ev &= (1 << WIDTHS.get(placement, 32)) - 1
    assert there_and_back(int(placement), ev) == there_and_back.py_func(int(placement), ev) == ev


@pytest.mark.parametrize(
    ("placement", "port", "label"),
    [
        (EvPlacement.UDP, 0x3344, 0),
        (EvPlacement.ECMP, 0x3344, 0x1122),
        (EvPlacement.STEV, 0x1122, 0x3344),
        (EvPlacement.STEV_LABEL_FIRST, 0x3344, 0x1122),
        (EvPlacement.SRV6, 0xF344, 0),
    ],
)
def test_each_placement_puts_the_halves_where_it_says(placement: EvPlacement, port: int, label: int) -> None:
    assert (source_port(placement, 0x11223344), flow_label(placement, 0x11223344)) == (port, label)


def test_over_ipv4_the_half_of_the_flow_label_is_zero() -> None:
    assert entropy(EvPlacement.ECMP, source_port(EvPlacement.ECMP, 0x11223344), 0) == 0x3344


def test_the_upper_bits_of_a_flow_label_are_not_part_of_the_ev() -> None:
    assert entropy(EvPlacement.ECMP, 1, 0xF0002) == 0x20001


@given(st.tuples(*PATH), st.tuples(*PATH))
def test_paths_of_different_planes_never_share_a_value(one: tuple[int, int], other: tuple[int, int]) -> None:
    values = [on_plane(*each) for each in (one, other)]
    assert (values[0] == values[1]) == (one == other)
    assert all(0 <= value < 1 << 32 for value in values)


@given(st.integers(0, 15), st.integers(0, PATHS_OF_A_PLANE - 1))
def test_the_first_paths_of_every_plane_fit_in_a_source_port(plane: int, number: int) -> None:
    assert on_plane(plane, number) <= SRV6_INDEX_MASK
