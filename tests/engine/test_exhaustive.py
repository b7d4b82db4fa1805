"""Every run of a small world ends in delivery or in a reported error: bench/engine/exhaustive.py at a small depth."""

from __future__ import annotations

import pytest

from bench.engine.exhaustive import Choice, Outcome, _outcome, _step, _transmit, search, search_of

PORTS = int(Choice.PORT)
PLANES = 2


@pytest.mark.exhaustive
@pytest.mark.needs("jit")
def test_every_run_with_two_choices_of_the_network_is_delivered_or_reported() -> None:
    assert not search(planes=PLANES, packets=4, depth=2, most=100).complete, "it stopped early, and says so"
    report = search(planes=PLANES, packets=4, depth=2)
    assert report.complete
    assert report.wrong == {}, report.first_wrong
    assert report.delivered > 1000
    assert report.failed > 100, "both planes may die"


def run(choices: dict[int, int], evs: int = 1) -> Outcome:
    """Follow one run, interpreted; `choices` are made at these steps."""
    world = search_of(PLANES, evs, 4, len(choices), 1 << 10)
    _transmit(world, PLANES, 0)
    while (outcome := _outcome(world, PLANES)) == Outcome.RUNNING:
        _step(world, PLANES, choices.get(int(world.world[0].steps), 0))
    return Outcome(outcome)


@pytest.mark.parametrize("evs", [1, 2])
def test_answers_find_the_only_plane_that_works_back(evs: int) -> None:
    cut_back, cut_there = PORTS + 3 * PLANES, PORTS + 2 * PLANES + 1
    assert run({3: cut_back, 10: cut_there}, evs) == Outcome.DELIVERED


def test_a_plane_that_dies_while_only_the_transport_ack_is_missing_is_left_for_one_that_was_assumed_bad() -> None:
    lose, cut_there = int(Choice.LOSE), PORTS + 2 * PLANES
    assert run({3: lose, 12: cut_there, 13: lose}) == Outcome.DELIVERED


def test_a_port_that_goes_down_leaves_the_path_that_was_assumed_bad() -> None:
    assert run({3: int(Choice.LOSE), 12: PORTS + PLANES}) == Outcome.DELIVERED


@pytest.mark.parametrize("side", [0, 1])
def test_ports_that_are_down_before_the_first_packet_leaves_are_reported(side: int) -> None:
    ports = PORTS + side * PLANES
    assert run({0: ports, 1: ports + 1}) == Outcome.FAILED
