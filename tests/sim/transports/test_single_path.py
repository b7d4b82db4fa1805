"""Messages on a single path beside sprayed ones, in one run and with one transport."""

from __future__ import annotations

import numpy as np
import pytest

from harness.simulated_runs import run
from openmrc.fabric.model.topology import Topology
from openmrc.sim.loop.run import LoopTransport, Results
from openmrc.sim.scenario.description import Scenario, load
from openmrc.sim.simulate import prepare
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.sim.transports.roce.transport import RoceTransport, adaptive
from openmrc.sim.transports.uet.transport import UetTransport
from openmrc.sim.workloads.traffic import traffic
from openmrc.units import NEVER, PS_PER_MS
from tests.sim.small import leaf_spine

TRANSPORTS = [
    pytest.param(MrcTransport(evs=16), id="mrc"),
    pytest.param(UetTransport(), id="uet"),
    pytest.param(RoceTransport(qps=4), id="roce"),
    pytest.param(adaptive(), id="roce-adaptive"),
]


def uplinks_used(topology: Topology, results: Results, t0: str) -> int:
    """Count the links from a T0 upwards that carried data."""
    node = topology.node_named(t0)
    up = (topology.link_source == node) & (topology.link_destination >= topology.nics)
    return int((results.links["data_packets"][up] > 0).sum())


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_single_path_is_one_uplink_and_the_others_still_spray(transport: LoopTransport) -> None:
    topology = leaf_spine(hosts=16, planes=2)
    flows = traffic([0, 4], [12, 13], 400_000, single_path=[1, 0])
    results = run(topology, flows, transport, until=50 * PS_PER_MS)
    assert (results.finished < NEVER).all()
    assert sum(uplinks_used(topology, results, f"p{plane}-t0-00") for plane in range(2)) == 1
    assert sum(uplinks_used(topology, results, f"p{plane}-t0-01") for plane in range(2)) > 1


def test_a_single_path_of_mrc_gets_over_losses_on_it() -> None:
    """Its one EV is assumed bad, and is in use again at once, as the least bad of all."""
    topology = leaf_spine(hosts=16, planes=2)
    from openmrc.base.faults import Schedule
    from openmrc.sim.scenario.timeline import columns

    flows = traffic([0], [12], 400_000, single_path=1)
    lossy = columns(topology, Schedule.parse("loss: 2%"), 1)
    results = run(topology, flows, MrcTransport(evs=16), broken=lossy, until=50 * PS_PER_MS)
    assert results.links["lost"].sum() > 0
    assert results.finished[0] < NEVER


def test_connections_of_one_pair_do_not_mix_single_paths_with_sprayed_ones() -> None:
    topology = leaf_spine(hosts=16, planes=2)
    flows = traffic([0, 0], [12, 12], 400_000, single_path=[1, 0])
    results = run(topology, flows, MrcTransport(evs=16), until=50 * PS_PER_MS)
    assert (results.finished < NEVER).all()
    assert sum(uplinks_used(topology, results, f"p{plane}-t0-00") for plane in range(2)) > 4


WORKLOADS = """
name: both
fabric: {name: x, hosts: {count: 16}, planes: [{count: 2, host_gbps: 100, t0: {down: 4, up: 4}, t1: {down: 4}}]}
workloads:
  - {kind: permutation, size: 20KB}
  - {kind: permutation, size: 20KB, single_path: true}
  - {kind: incast, size: 20KB, senders: 3, single_path: true, victim: [5, 6]}
  - {kind: background, size: 20KB, load: 0.1, duration: 20us}
"""


def test_workloads_say_which_messages_have_a_single_path(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("scenario") / "both.yaml"
    path.write_text(WORKLOADS)
    scenario: Scenario = load(path)
    prepared = prepare(scenario)
    marks = [prepared.work.traffic.single_path[prepared.work.workload == number] for number in range(4)]
    assert not marks[0].any()
    assert marks[1].all()
    assert np.array_equal(marks[2], [1, 1, 1, 0])
    assert marks[3].all()
    assert prepared.warnings == []
