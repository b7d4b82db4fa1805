"""Probes as packets of a simulation: each crosses the links of its plan, and names what no data crosses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from openmrc.core.rows import column, table
from openmrc.errors import ConfigError
from openmrc.fabric.model.naming import links_at
from openmrc.operations.fleets.simulated_fleet import TRAIN, SimulatedProber
from openmrc.operations.page.operated_simulation import OperatedSimulation
from openmrc.operations.page.pictures import PageAction
from openmrc.sim.network.network_tables import Shard
from openmrc.sim.scenario.description import load

SCENARIO = """
name: probes
fabric:
  name: probes
  hosts: {count: 12}
  planes:
    - {count: 2, host_gbps: 100, t0: {down: 4, up: 4}, t1: {}}
transport: {name: mrc}
workloads:
  - {kind: permutation, size: 4KiB, start: 20ms}
seed: 1
until: 30ms
"""
LOADED = SCENARIO.replace("seed: 1", "  - {kind: permutation, size: 32MiB}\nseed: 1")
BROKEN = "p1-t0-01>p1-t1-02"


def source(tmp_path: Path, probe_us: float, text: str = SCENARIO) -> OperatedSimulation:
    (tmp_path / "probes.yaml").write_text(text)
    return OperatedSimulation(load(tmp_path / "probes.yaml"), step_us=50.0, probe_us=probe_us)


def test_probes_cross_the_links_of_the_plan_and_all_arrive(tmp_path: Path) -> None:
    made = source(tmp_path, 1000.0)
    for _ in range(80):
        made.frame()
    network = made.world.network
    assert made.prober is not None
    sent, arrived = (column(network.probes, name).astype(np.int64) for name in ("sent", "arrived"))
    assert sent.min() >= 1
    assert sent.sum() - arrived.sum() <= 2, "the last ones are on their way"
    expected = np.zeros(made.topology.links, dtype=np.int64)
    first = 0
    for plan in made.prober.plans:
        small, first = first + np.arange(len(plan)), first + 2 * len(plan)
        for rows in (small, small + len(plan)):
            for place in range(plan.links.shape[1]):
                has = plan.links[:, place] >= 0
                np.add.at(expected, plan.links[has, place] + plan.shape.host_up, sent[rows[has]])
    both = [column(network.ports, name)[: made.topology.links] for name in ("control_packets", "data_packets")]
    crossed = np.sum(both, axis=0)
    assert np.abs(expected - crossed).sum() <= 8, "each went over its links and no others"
    assert crossed.min() > 0, "every direction of every cable is probed"


def test_probes_name_a_silent_direction_that_no_data_crosses(tmp_path: Path) -> None:
    made = source(tmp_path, 1000.0)
    assert made.picture().verdicts_from == "votes of entropy values and probes"
    for _ in range(40):
        assert made.frame().verdicts == []
    made.act(PageAction(verb="break", target=BROKEN))
    begun, frame = made.frame().at, made.frame()
    while not frame.verdicts:
        frame = made.frame()
        assert frame.at - begun < 5000, "named within 5 ms of the simulation's clock"
    (verdict,) = frame.verdicts
    assert verdict.suspect == BROKEN
    assert verdict.votes.startswith("dead: ")
    assert made.actions == ("break", "degrade", "drain", "repair")
    for _ in range(20):
        assert [each.suspect for each in made.frame().verdicts] == [BROKEN]


@pytest.mark.parametrize("fault", ["bit_errors: 1e-4", "mtu: 1KB", 'data_loss: "100%"'])
def test_probes_like_data_name_a_direction_that_small_ones_pass(tmp_path: Path, fault: str) -> None:
    """At 1e-4 a packet of 4 KiB has three wrong bits, one of 118 bytes has one in eleven times."""
    text = f'{SCENARIO}faults:\n  - {{at: 1ms, {fault}, on: "{BROKEN}"}}\n'
    made = source(tmp_path, 200.0, text)
    frame = made.frame()
    while not frame.verdicts:
        frame = made.frame()
        assert frame.at < 6000
    (verdict,) = frame.verdicts
    assert verdict.suspect == BROKEN
    assert verdict.votes.startswith(("lossy: ", "one size: ")), "whether enough small ones crossed it says which"


def test_a_train_of_probes_like_data_is_late_behind_a_slow_port_and_behind_no_other(tmp_path: Path) -> None:
    """Beside data at line rate, where full queues of healthy ports mark and trim packets, too."""
    made = source(tmp_path, 1000.0, f'{LOADED}faults:\n  - {{rate: 10Gbps, on: "{BROKEN}"}}\n')
    prober = made.prober
    assert prober is not None
    made.frame()
    plan, slow = prober.plans[1], links_at(made.topology, BROKEN)
    over = np.flatnonzero(plan.crossing(slow.tolist()))
    beside = np.setdiff1d(np.flatnonzero(plan.crossing(links_at(made.topology, "p1-t1-02").tolist())), over)
    late = []
    for row in (over[0], *beside[:4]):
        prober.recheck(1, np.array([len(plan) + row]))
        for _ in range(4):
            made.frame()
        counts = made.world.network.probes[2 * len(prober.plans[0]) + len(plan) + row]
        assert counts.arrived == counts.sent >= TRAIN
        late.append(counts.late)
    assert late[0] > 0, "the others wait less, or are trimmed"
    assert late[1:] == [0] * 4


@pytest.mark.parametrize("part", [BROKEN, "p0-t1-03>p0-t0-00"])
def test_a_slow_port_under_load_is_named_and_nothing_beside_it(tmp_path: Path, part: str) -> None:
    made = source(tmp_path, 200.0, f'{LOADED}faults:\n  - {{at: 200us, rate: 10Gbps, on: "{part}"}}\n')
    assert {each.suspect for _ in range(24) for each in made.frame().verdicts} == {part}


def test_without_probes_it_is_not_seen(tmp_path: Path) -> None:
    made = source(tmp_path, 0.0)
    made.act(PageAction(verb="break", target=BROKEN))
    assert not any(made.frame().verdicts for _ in range(100))


def test_data_waits_for_probes_on_the_links_that_they_share(tmp_path: Path) -> None:
    """Probes are packets on the wires: a flow alone, at line rate, ends later beside them."""
    text = SCENARIO.replace("permutation, size: 4KiB, start: 20ms", "incast, senders: 1, size: 16MiB")
    ends = []
    for period in (0.0, 200.0):
        made = source(tmp_path, period, text)
        while not made.frame().finished:
            pass
        ends.append(int(column(made.world.network.flows, "sent_at").max()))
    assert ends[0] < ends[1] < 1.05 * ends[0]


def test_a_run_on_several_threads_is_not_probed(tmp_path: Path) -> None:
    made = source(tmp_path, 0.0)
    made.world.network = made.world.network._replace(shards=table(Shard, 2))
    with pytest.raises(ConfigError, match="one thread"):
        SimulatedProber(made.topology, made.world)
