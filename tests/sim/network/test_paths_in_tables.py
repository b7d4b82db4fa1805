"""The loop's arithmetic against the fabric's uSID tables: both lead every EV of a queue pair over the same ports."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from openmrc.core.rows import column
from openmrc.fabric.addressing.paths import Choice, path
from openmrc.fabric.addressing.sid_tables import build_tables
from openmrc.fabric.addressing.usid import DEEPEST, usid_plan
from openmrc.fabric.addressing.walk import Cabling, Fate, Lookup, walk
from openmrc.fabric.model.build import build, load
from openmrc.fabric.model.topology import Topology
from openmrc.sim.loop.run import prepare
from openmrc.sim.network.forwarding.path_of_ev import choices, connected_evs, links_of
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.sim.workloads.traffic import traffic
from tests.sim.small import three_tiers

FABRICS = Path(__file__).parents[3] / "scenarios" / "fabrics"


def topology_of(name: str) -> Topology:
    return three_tiers() if name == "three tiers" else build(load(FABRICS / name))


@pytest.mark.parametrize("name", ["lab.yaml", "lab-slow.yaml", "rails.yaml", "two-sites.yaml", "three tiers"])
def test_every_ev_crosses_the_ports_that_the_tables_lead_it_to(name: str) -> None:
    topology = topology_of(name)
    plan, nic = usid_plan(topology), np.arange(topology.nics)
    near, far = (nic + 1) % topology.nics, (nic + topology.nics // 2) % topology.nics
    work = traffic(np.tile(nic, 2), np.concatenate([near, far]), 100_000)
    world = prepare(topology, work, MrcTransport(evs=16))
    rows, _, source, destination = connected_evs(world.state.engine)
    plane, ev = (column(world.state.engine.evs, name)[rows].astype(np.int64) for name in ("port", "value"))
    assert len(rows) == len(world.state.engine.evs)
    links = links_of(world.network, source, destination, plane, ev)
    computed = np.where(links >= 0, topology.link_port[links], -1)
    tables, cabling = build_tables(plan), Cabling(topology)
    for number, sids in enumerate(plan.planes):
        mine = np.flatnonzero(plane == number)
        stack = np.zeros((len(mine), DEEPEST), np.int64)
        for row, at in enumerate(mine.tolist()):
            choice = Choice(number, *(int(each) for each in choices(sids.shape, int(ev[at]))))
            words = path(plan, int(source[at]), int(destination[at]), choice).sids
            stack[row, : len(words)] = words
        lookup = Lookup(topology, tables, sids.block)
        walked = walk(topology, tables, lookup, cabling, source[mine], number, stack)
        assert (walked.fate == Fate.ARRIVED).all()
        assert (walked.last == destination[mine]).all()
        ports = np.full_like(computed[mine], -1)
        width = min(walked.trace.shape[1], ports.shape[1])
        ports[:, :width] = walked.trace[:, :width] >> 4
        assert (ports == computed[mine]).all()
