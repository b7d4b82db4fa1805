"""When are two steps the same?"""

from __future__ import annotations

from dataclasses import replace

from openmrc.sim.loop.fault_events import FaultKind, faults
from openmrc.sim.steps.equivalence import ANY, Condition, KnownStep, KnownSteps, PresentFaults
from openmrc.sim.transports.next_step import TransportState
from tests.sim.small import leaf_spine

CALM = Condition((), TransportState(window=100_000.0), 0)


def test_small_differences_of_windows_and_paths_do_not_count() -> None:
    other = replace(CALM, transport=TransportState(window=104_000.0, paths_out=0.004))
    assert CALM.is_like(other)
    assert other.is_like(CALM)


def test_a_port_that_is_not_used_counts() -> None:
    assert not CALM.is_like(replace(CALM, transport=replace(CALM.transport, ports_down=1)))


def test_half_the_window_counts() -> None:
    assert not CALM.is_like(replace(CALM, transport=TransportState(window=50_000.0)))


def test_a_step_after_repairs_is_like_no_other_unless_losses_are_random() -> None:
    assert not CALM.is_like(replace(CALM, repaired=1))
    assert not replace(CALM, repaired=2).is_like(replace(CALM, repaired=2))
    assert replace(CALM, repaired=ANY).is_like(replace(CALM, repaired=ANY))
    assert not replace(CALM, repaired=ANY).is_like(CALM)


def _down(subject: int, at: int = 0, until: int = 5) -> tuple[list[int], FaultKind, int, list[int]]:
    return [at, until], FaultKind.LINK_DOWN, subject, [1, 0]


def test_links_between_the_same_tiers_are_the_same_for_sprayed_packets_only() -> None:
    topology = leaf_spine()
    up = [link for link in range(topology.links) if topology.link_source[link] >= topology.nics][:2]
    nic = next(link for link in range(topology.links) if topology.link_source[link] < topology.nics)
    digests = {}
    for by_link in (False, True):
        for link in (*up, nic):
            present = PresentFaults(topology, by_link)
            present.apply(faults(*_down(link)), 0, 1)
            digests[by_link, link] = present.digest()
    tiers = {
        tuple(topology.node_tier[end] for end in (topology.link_source[link], topology.link_destination[link]))
        for link in up
    }
    assert (digests[False, up[0]] == digests[False, up[1]]) == (len(tiers) == 1)
    assert digests[True, up[0]] != digests[True, up[1]]
    assert digests[False, nic] != digests[False, up[0]]


def test_a_fault_that_has_ended_is_as_none() -> None:
    topology = leaf_spine()
    present = PresentFaults(topology, by_link=True)
    rate = int(topology.link_rate[3])
    schedule = faults(
        [0, 1, 2, 3, 4, 5],
        [FaultKind.LINK_DOWN, FaultKind.LINK_LOSS, FaultKind.LINK_RATE] * 2,
        3,
        [1, 1000, rate // 2, 0, 0, rate],
    )
    present.apply(schedule, 0, 3)
    assert present.count == 3
    present.apply(schedule, 3, 6)
    assert present.digest() == ()


def test_a_step_may_be_left_out_after_four_that_ended_as_they_began() -> None:
    known = KnownSteps()
    for length in (1_000_000, 1_001_000, 1_000_500, 1_000_500):
        found = known.find(CALM)
        assert found is None or not found.is_settled()
        known.add(CALM, CALM, length)
    settled = known.find(CALM)
    assert settled is not None
    assert settled.is_settled()
    assert settled.mean == 1_000_500
    assert known.calm() is settled


def test_a_step_that_changes_the_condition_stands_for_none() -> None:
    known = KnownSteps()
    known.add(CALM, replace(CALM, repaired=7), 1_000_000)
    assert known.find(CALM) is None


def test_lengths_that_vary_need_more_steps() -> None:
    step = KnownStep(CALM, [1_000_000, 1_010_000, 990_000, 1_000_000])
    assert not step.is_settled()
    step.lengths *= 8
    assert step.is_settled()


def test_random_losses_are_told_from_those_that_show_a_dead_path() -> None:
    present = PresentFaults(leaf_spine(), by_link=False)
    present.apply(faults(0, FaultKind.LINK_DOWN, 3, 1), 0, 1)
    assert not present.are_random
    present.apply(faults(0, FaultKind.LINK_LOSS, 4, 1000), 0, 1)
    assert present.are_random
