"""After flaps every plane carries its share again, in both directions."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.simulated_runs import run
from openmrc.base.faults import Schedule
from openmrc.core.rows import column
from openmrc.engine.state.machines import EvState
from openmrc.fabric.model.topology import Topology
from openmrc.sim.loop.run import World
from openmrc.sim.scenario.timeline import columns
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.sim.workloads.traffic import traffic
from openmrc.units import NEVER, PS_PER_MS, PS_PER_US
from tests.sim.small import leaf_spine

Ints = NDArray[np.int64]
PLANES = 4


def rates(topology: Topology, sent: dict[int, Ints], nic: int, begin: int, end: int) -> list[float]:
    """Share of a NIC's line rate that reached it on each plane between two times (us), of bytes by link and time."""
    first, last = (next(now for now in sent if now >= at * PS_PER_US) for at in (begin, end))
    moved = sent[last] - sent[first]
    down = [int(shape.host_down) + nic for shape in topology.planes]
    rate = topology.link_rate[down] / 8e12
    return (moved[down] / ((last - first) * rate)).round(3).tolist()


@pytest.mark.parametrize("gone", ["all at once", "in turns"])
def test_ports_of_a_nic_that_flapped_are_used_again_by_both_sides_at_once(gone: str) -> None:
    topology = leaf_spine(hosts=8, planes=PLANES, gbps=100)
    starts = (40, 40, 40) if gone == "all at once" else (40, 50, 60)
    text = "; ".join(
        f"at: {start}us, for: 20us, every: 50us, times: 4, down: h0 port {port}" for port, start in enumerate(starts)
    )
    flows = traffic([0, 5], [5, 0], 20_000_000)
    faults = columns(topology, Schedule.parse(text), 1)
    sent: dict[int, Ints] = {}

    def look(world: World) -> None:
        if world.now >= max(sent, default=-1) + 10 * PS_PER_US:
            sent[world.now] = column(world.network.ports, "data_bytes").copy()

    results = run(topology, flows, MrcTransport(evs=64), broken=faults, observe=look, until=20 * PS_PER_MS)
    assert (results.finished < NEVER).all()
    assert results.links["lost"].sum() > 50
    for nic in (0, 5):
        shares = rates(topology, sent, nic, 270, 350)
        assert min(shares) > 0.9 * max(shares), "the window may still be small, but it is spread over all planes"
        assert max(shares) > 0.3


def test_paths_over_a_cable_that_flapped_come_back_by_their_probes() -> None:
    topology = leaf_spine(hosts=8, planes=2, gbps=100)
    text = "at: 20us, for: 50us, every: 100us, times: 5, down: p0-t0-00<>p0-t1-01"
    faults = columns(topology, Schedule.parse(text), 1)
    flows = traffic([0, 5] * 2, [5, 0] * 2, 5_000_000, start=np.repeat([0, 20 * PS_PER_MS], 2))
    bad: dict[int, int] = {}

    def look(world: World) -> None:
        states = column(world.state.engine.evs, "state")
        bad[world.now // PS_PER_MS] = int((states == EvState.ASSUMED_BAD).sum())

    results = run(topology, flows, MrcTransport(evs=32), broken=faults, observe=look, until=50 * PS_PER_MS)
    assert (results.finished < NEVER).all()
    assert bad[0] > 0
    assert bad[19 if 19 in bad else max(at for at in bad if at < 20)] == 0
    assert results.counters["ev_lost"] == results.counters["ev_probes_answered"] > 0
