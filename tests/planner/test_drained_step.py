"""What a drain costs a step: from the table, never faster than what remains allows."""

from __future__ import annotations

import pytest

from openmrc.planner.drained_step import DrainedStep, drained_steps, slowed_collectives
from openmrc.planner.response_table import responses


def test_one_t1_costs_what_was_measured_in_proportion_to_the_paths() -> None:
    row = responses().of("mrc", "all_to_all", "t1")
    uplinks = responses().uplinks[str(row.nics)]
    same = slowed_collectives(8, 1 - 1 / uplinks / 8, True, responses())
    assert same["all_to_all"] == pytest.approx(row.slow)
    half = slowed_collectives(8, 1 - 1 / uplinks / 16, True, responses())
    assert half["all_to_all"] - 1 == pytest.approx((row.slow - 1) / 2)


@pytest.mark.parametrize(("planes_left", "kept"), [(8, 0.5), (7, 7 / 8), (4, 0.5), (1, 1 / 8)])
def test_no_collective_is_faster_than_the_capacity_that_remains(planes_left: int, kept: float) -> None:
    slow = slowed_collectives(planes_left, kept, True, responses())
    assert all(each >= 1 / kept for each in slow.values())


def test_nothing_drained_costs_nothing_and_more_costs_more() -> None:
    def steps(lost: int) -> list[DrainedStep]:
        table = responses()
        return drained_steps(slowed_collectives(8 - lost, 1 - lost / 8, False, table), 15, table)

    assert all(each.lost_s == 0 for each in steps(0))
    one, four = steps(1), steps(4)
    assert {each.model for each in one} == {"dense", "moe"}
    for less, more in zip(one, four, strict=True):
        assert 0 < less.step_percent < more.step_percent
        assert less.lost_s == pytest.approx(900 * (1 - 100 / (100 + less.step_percent)), abs=0.1)
