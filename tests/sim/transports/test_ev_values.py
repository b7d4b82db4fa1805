"""Feedback of MRC in the simulator never blames a plane that did nothing: values are unique, losses are certain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from openmrc.base.faults import Schedule
from openmrc.core.rows import column
from openmrc.fabric.model.topology import Topology
from openmrc.sim.loop.run import prepare
from openmrc.sim.network.build import NetworkSettings
from openmrc.sim.network.network_tables import Routing
from openmrc.sim.scenario.timeline import columns
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.sim.workloads.traffic import traffic
from openmrc.units import NEVER
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


def with_losses_on_plane_2(destinations: list[int], seed: int) -> tuple[Any, Any, dict[str, Any]]:
    """Return the ports and the losses of the EVs after a run, and the counters."""
    topology, transport = leaf_spine(hosts=16, planes=4), MrcTransport(evs=16)
    lossy = columns(topology, Schedule.parse("loss: 2%, on: plane 2"), seed)
    world = prepare(topology, traffic([0, 1, 2, 3], destinations, 2_000_000), transport, lossy, seed)
    world.run(NEVER, lambda: None)
    engine = world.state.engine
    return column(engine.evs, "port"), column(engine.ev_failures, "lost"), transport.counters(world.state)


@pytest.mark.parametrize("seed", range(1, 7))
def test_losses_on_one_plane_blame_that_plane_alone(seed: int) -> None:
    ports, lost, counters = with_losses_on_plane_2([12, 13, 14, 15], seed)
    assert lost[ports == 2].sum() > 0
    assert lost[ports != 2].sum() == 0
    assert counters["duplicates"] == 0


@pytest.mark.parametrize("seed", range(1, 7))
def test_what_is_taken_for_lost_in_an_incast_has_not_arrived(seed: int) -> None:
    """Other planes are blamed for packets that were trimmed there and whose NACK was lost on plane 2."""
    _, lost, counters = with_losses_on_plane_2([12, 12, 12, 12], seed)
    assert lost.sum() == counters["inferred_losses"] > 0
    assert (counters["spurious"], counters["duplicates"]) == (0, 0)
