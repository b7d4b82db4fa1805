"""Drains of a running simulation, by the controller of a lab: nothing is lost, nothing crosses what is drained."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openmrc.core.rows import column
from openmrc.engine.state.machines import EvState
from openmrc.errors import ConfigError
from openmrc.fabric.model.naming import links_at
from openmrc.operations.control.controller import FabricController
from openmrc.operations.control.operated import ask_drains
from openmrc.operations.control.simulated_step import simulated_collectives
from openmrc.operations.fleets.simulated_fleet import SimulatedFleet
from openmrc.operations.fleets.state_folder import StateFolder
from openmrc.operations.page.operated_simulation import OperatedSimulation
from openmrc.operations.page.pictures import PageAction
from openmrc.programs.main import app
from openmrc.sim.scenario.description import load

SCENARIO = """
name: drains
fabric:
  name: drains
  hosts: {count: 8}
  planes:
    - {count: 2, host_gbps: 100, t0: {down: 2, up: 4}, t1: {}}
transport: {name: mrc}
workloads:
  - {kind: permutation, size: 16MiB, stride: 3}
seed: 1
until: 2ms
"""  # twice the uplinks that the NICs can fill, so the NICs are the bottleneck with one T1 less as well
SWITCH = "p0-t1-01"


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    (tmp_path / "drains.yaml").write_text(SCENARIO)
    return tmp_path / "drains.yaml"


@pytest.fixture
def simulation(scenario: Path, tmp_path: Path) -> Iterator[OperatedSimulation]:
    made = OperatedSimulation(load(scenario), 10.0, tmp_path / "ctl")
    yield made
    made.close()


def packets(simulation: OperatedSimulation, target: str) -> int:
    return SimulatedFleet(simulation.topology, simulation.world).packets(links_at(simulation.topology, target).tolist())


def goodput(simulation: OperatedSimulation, frames: int) -> float:
    """Return the mean Gb/s that arrive at NICs over some frames."""
    return sum(sum(simulation.frame().goodput) for _ in range(frames)) / frames


def said(simulation: OperatedSimulation, frames: int) -> list[str]:
    return [line.text for _ in range(frames) for line in simulation.frame().events]


@pytest.mark.parametrize("target", [SWITCH, "plane 0", "p1-t0-00<>p1-t1-02"])
def test_a_drain_causes_no_retransmission_and_leaves_the_goodput_that_remains(
    simulation: OperatedSimulation, target: str
) -> None:
    whole = goodput(simulation, 10)
    simulation.act(PageAction(verb="drain", target=target))
    assert f"{target} drained" in said(simulation, 15)
    count = packets(simulation, target)
    share = 0.5 if target == "plane 0" else 1.0  # the NICs keep one port of two, or all
    assert goodput(simulation, 10) > 0.98 * share * whole
    assert packets(simulation, target) == count > 0, "neither data nor acknowledgements nor probes"
    simulation.act(PageAction(verb="repair", target=target))
    assert f"{target} undrained" in said(simulation, 15)
    assert goodput(simulation, 10) > 0.98 * whole
    assert column(simulation.engine.qps, "retransmitted").sum() == 0
    assert simulation.frame().lost == 0


def test_what_is_drained_is_shown_and_what_would_cut_a_pair_is_refused(simulation: OperatedSimulation) -> None:
    simulation.frame()
    with pytest.raises(ConfigError, match="would lose their last path"):
        simulation.act(PageAction(verb="drain", target="h3"))
    simulation.act(PageAction(verb="drain", target="plane 0"))
    assert "plane 0 drained" in said(simulation, 15)
    assert max(simulation.frame().health) == 2
    with pytest.raises(ConfigError, match="would lose their last path"):
        simulation.act(PageAction(verb="drain", target="plane 1"))


def test_queue_pairs_keep_their_last_path_whatever_they_are_told(simulation: OperatedSimulation) -> None:
    simulation.frame()
    fleet = SimulatedFleet(simulation.topology, simulation.world)
    fleet.tell(5, frozenset(links_at(simulation.topology, "h0").tolist()), 30.0, fleet.now)
    assert "h0 to h3" in fleet.last_paths()
    assert goodput(simulation, 5) > 0


def test_the_next_controller_goes_on_with_a_drain(scenario: Path, tmp_path: Path) -> None:
    simulation = OperatedSimulation(load(scenario), 10.0)
    simulation.frame()
    fleet, folder = SimulatedFleet(simulation.topology, simulation.world), tmp_path / "ctl"
    ask_drains(StateFolder(folder), simulation.operated_plan, [SWITCH])
    words = []
    for frames in (1, 20):  # the first one dies at once
        with FabricController(simulation.operated_plan, folder, fleet.now, packets=fleet.packets, fleet=fleet) as one:
            for _ in range(frames):
                words += [event.what for event in one.step(fleet.now)]
                simulation.frame()
    assert words == ["drained"]
    assert column(simulation.engine.qps, "retransmitted").sum() == 0


def test_without_a_controller_denials_lapse(scenario: Path) -> None:
    simulation = OperatedSimulation(load(scenario), 10.0)
    simulation.frame()
    fleet = SimulatedFleet(simulation.topology, simulation.world)
    fleet.tell(1, frozenset(links_at(simulation.topology, SWITCH).tolist()), 0.5, fleet.now)
    states = column(simulation.engine.evs, "state")
    for left in (True, True, False):  # after 20, 40, 60 us; the lease is 50 us here
        goodput(simulation, 2)
        fleet.refresh()
        assert (states == EvState.DENIED).any() == left


def test_mrc_drain_reaches_a_running_simulation(simulation: OperatedSimulation, scenario: Path, tmp_path: Path) -> None:
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.01) and not simulation.finished:
            simulation.frame()

    page = threading.Thread(target=work)
    page.start()
    try:
        words = [str(scenario), SWITCH, "--ctl", str(tmp_path / "ctl")]
        done = CliRunner().invoke(app, ["drain", *words, "--apply", "--json"])
        assert (done.exit_code, '"drained":["p0-t1-01"]' in done.output) == (0, True), done.output
        assert CliRunner().invoke(app, ["undrain", *words]).exit_code == 0
    finally:
        stop.set()
        page.join()


def test_other_transports_are_shown_without_drains(scenario: Path) -> None:
    scenario.write_text(SCENARIO.replace("name: mrc", "name: uet"))
    other = OperatedSimulation(load(scenario), 10.0)
    assert "drain" not in other.picture().actions
    with pytest.raises(ConfigError, match="only MRC"):
        other.act(PageAction(verb="drain", target=SWITCH))


def test_packets_of_the_very_fabric_say_what_a_drain_costs(simulation: OperatedSimulation) -> None:
    links = links_at(simulation.topology, "plane 0")
    found = {each.collective: each.slow for each in simulated_collectives(simulation.operated_plan, links)}
    assert set(found) == {"all_reduce", "all_to_all", "point_to_point"}
    assert all(1.7 < slow < 2.3 for slow in found.values()), "one of two planes is left"
