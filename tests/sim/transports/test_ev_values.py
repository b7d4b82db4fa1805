"""Entropy values of MRC in the simulator: no two planes share one, so feedback never blames another plane."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.fabric.topology import Topology
from openmrc.sim.loop.run import prepare
from openmrc.sim.network.build import NetworkSettings
from openmrc.sim.network.tables import Routing
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.sim.workloads.traffic import traffic
from tests.sim.small import leaf_spine, three_tiers

FABRICS = [
    pytest.param(leaf_spine(hosts=16, planes=4), Routing.ENTROPY, id="two-tiers"),
    pytest.param(leaf_spine(hosts=16, planes=4), Routing.HASH, id="hashed"),
    pytest.param(three_tiers(), Routing.ENTROPY, id="three-tiers"),
]


@pytest.mark.parametrize(("topology", "routing"), FABRICS)
def test_no_queue_pair_has_a_value_on_two_planes(topology: Topology, routing: Routing) -> None:
    transport = MrcTransport(evs=16, network=NetworkSettings(routing=routing))
    engine = prepare(topology, traffic([0, 5], [9, 12], 100_000), transport).state.engine
    for row in engine.qps:
        values = np.asarray(engine.evs)[row.ev_base : row.ev_base + row.ev_count]
        on_planes = {(int(ev["value"]), int(ev["port"])) for ev in values}
        assert len({value for value, _ in on_planes}) == len(on_planes)
        assert all(0 <= value < 1 << 32 for value, _ in on_planes)
