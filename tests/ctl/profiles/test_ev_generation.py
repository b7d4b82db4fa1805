import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.ctl.profiles.ev_format import EvBitWidths, EvExpansion, EvField, EvFormatMode
from openmrc.ctl.profiles.ev_generation import generate, in_turn
from openmrc.errors import TooBigError
from tests.ctl.profiles.test_ev_format import expansions


@settings(deadline=None)
@given(expansions(), st.integers(1, 300), st.integers(0, 2**32))
def test_generated_evs_are_distinct_valid_and_within_bounds(expansion: EvExpansion, count: int, seed: int) -> None:
    count = min(count, expansion.choices)
    evs = generate(expansion, count, seed)
    assert len(set(evs)) == count
    assert len({expansion.expand(ev) for ev in evs}) == count
    assert all(expansion.is_within_bounds(ev) for ev in evs)


@given(expansions(), st.integers(0, 2**32))
def test_one_more_than_the_bounds_allow_is_refused(expansion: EvExpansion, seed: int) -> None:
    with pytest.raises(TooBigError, match="count") as caught:
        generate(expansion, expansion.choices + 1, seed)
    assert caught.value.needed == expansion.choices


def small() -> EvExpansion:
    field = EvField(16, 0x100, 3, 9, 0x0F0F & 0x0F)
    return EvExpansion(EvBitWidths(EvFormatMode.STEV, (16, 16)), (field, field))


def test_every_allowed_ev_comes_up_when_all_are_asked_for() -> None:
    numbers = {tuple(small().numbers(ev)) for ev in generate(small(), 49, seed=1)}
    assert numbers == {(first, second) for first in range(3, 10) for second in range(3, 10)}


def test_the_seed_decides_and_a_longer_run_begins_like_a_shorter_one() -> None:
    assert generate(small(), 20, seed=5)[:10] == generate(small(), 10, seed=5)
    assert generate(small(), 20, seed=5) != generate(small(), 20, seed=6)


def test_bounds_that_are_both_zero_leave_the_range_open() -> None:
    expansion = EvExpansion(EvBitWidths(EvFormatMode.UDP, (16,)), (EvField(16, mask=0xF000),))
    assert sorted(expansion.numbers(ev)[0] for ev in generate(expansion, 16, seed=1)) == list(range(16))


def test_numbers_of_a_field_are_drawn_evenly() -> None:
    expansion = EvExpansion(EvBitWidths(EvFormatMode.STEV, (32,)), (EvField(32, mask=0xFFFFFFFF),))
    eighths = [expansion.numbers(ev)[0] >> 29 for ev in generate(expansion, 8000, seed=3)]
    assert all(800 < eighths.count(eighth) < 1200 for eighth in range(8))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 1 << 30))
def test_ports_come_in_turn_each_with_its_evs_in_some_order(lengths: list[int], seed: int) -> None:
    ranks = np.full((len(lengths), max(1, *lengths)), -1)
    in_turn(ranks, np.array(lengths), seed)
    placed = sorted((int(ranks[port, k]), port) for port, count in enumerate(lengths) for k in range(count))
    assert [rank for rank, _ in placed] == list(range(sum(lengths)))
    turns = [[port for port, count in enumerate(lengths) if count > turn] for turn in range(max(lengths))]
    assert [port for _, port in placed] == [port for turn in turns for port in turn]
