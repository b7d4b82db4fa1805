"""The program of a rank: which transfers are signalled at their end alone."""

from __future__ import annotations

import pytest

from openmrc.collectives import direct, ring
from openmrc.collectives.plan import CollectivePlan
from openmrc.train.execution.program import program


def final(plan: CollectivePlan, rank: int) -> list[bool]:
    """Return `is_final` of everything that a rank receives."""
    return [receive.is_final for each in program(plan, rank).receives.values() for receive in each]


@pytest.mark.parametrize("plan", [direct.all_to_all(4), direct.all_gather(4), direct.scatter(4, 0)])
def test_blocks_that_are_only_stored_are_final(plan: CollectivePlan) -> None:
    assert all(final(plan, 1))


def test_a_block_that_is_reduced_or_passed_on_is_not_final() -> None:
    assert not any(final(direct.reduce_scatter(4), 1))
    assert final(ring.broadcast(3), 1) == [False]
    assert final(ring.broadcast(3), 2) == [True]


@pytest.mark.parametrize("plan", [direct.all_reduce(4), ring.all_reduce(4), ring.all_gather(5), ring.broadcast(3)])
def test_both_ends_of_a_transfer_agree(plan: CollectivePlan) -> None:
    programs = [program(plan, rank) for rank in range(plan.ranks)]
    for source, mine in enumerate(programs):
        for target, sends in mine.sends.items():
            theirs = programs[target].receives[source]
            assert [send.is_final for send in sends] == [receive.is_final for receive in theirs]
