"""Every uplink of every rack full: flows get the line, with any number of EVs for a path (text with figure 20 of
arXiv 2605.04333: 390 of 394 Gb/s)."""

from __future__ import annotations

import numpy as np
import pytest

from harness.simulated_runs import run
from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import Fabric, Hosts, Plane, Tier
from openmrc.fabric.model.topology import Topology
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.sim.workloads.traffic import traffic
from openmrc.units import PS_PER_US
from tests.sim.small import on_wire

SHARE, ROUND_TRIP_US = 0.985, 10  # of eight planes of 100G; of one of 400G it is less
RACKS = 4


def fabric(planes: int, uplinks: int) -> Topology:
    """Return racks with as many uplinks as NICs, 400G in one plane or 100G in each of several."""
    gbps = 400 if planes == 1 else 100
    plane = Plane(count=planes, host_gbps=gbps, t0=Tier(down=uplinks, up=uplinks), t1=Tier(down=RACKS))
    return build(Fabric(name="full", hosts=Hosts(count=RACKS * uplinks), planes=(plane,)))


def crossing(nics: int, rack: int, seed: int) -> list[int]:
    """Return a random permutation without a pair in one rack."""
    random = np.random.default_rng(seed)
    to = random.permutation(nics)
    while (inside := np.flatnonzero(to // rack == np.arange(nics) // rack)).size:
        for nic in inside:
            other = random.integers(nics)
            to[nic], to[other] = to[other], to[nic]
    return [int(nic) for nic in to]


def share(planes: int, uplinks: int, evs: int, is_random: bool, packets: int) -> float:
    """Return what the slowest flow gets of the line, over all but the first round trip."""
    nics = RACKS * uplinks
    to = crossing(nics, uplinks, 1) if is_random else [(nic + uplinks) % nics for nic in range(nics)]
    done = run(fabric(planes, uplinks), traffic(np.arange(nics), to, packets * planes * 4096), MrcTransport(evs=evs))
    line_us = packets * on_wire(MrcTransport()) * 8 / (400_000 if planes == 1 else 100_000)
    return line_us / (float(done.finished.max()) / PS_PER_US - ROUND_TRIP_US)


CASES = [(1, 4, 64), (1, 4, 128), (1, 4, 256), (1, 16, 64), (1, 16, 256), (8, 4, 128)]


@pytest.mark.parametrize("is_random", [False, True], ids=["stride", "random"])
@pytest.mark.parametrize(("planes", "uplinks", "evs"), CASES)
def test_flows_over_all_uplinks_get_the_line(planes: int, uplinks: int, evs: int, is_random: bool) -> None:
    assert share(planes, uplinks, evs, is_random, packets=4096 if planes == 1 else 1024) >= SHARE


@pytest.mark.exhaustive
@pytest.mark.parametrize(("planes", "uplinks", "evs", "least"), [
    (1, 64, 64, SHARE), (1, 64, 256, SHARE), (1, 256, 256, SHARE), (8, 16, 128, SHARE),
    (8, 32, 256, 0.984),
    (8, 32, 128, 0.90),  # half of the paths, drawn at random: the draw loads uplinks unevenly
])  # fmt: skip
def test_flows_over_many_uplinks_get_the_line(planes: int, uplinks: int, evs: int, least: float) -> None:
    assert share(planes, uplinks, evs, is_random=False, packets=4096) >= least
