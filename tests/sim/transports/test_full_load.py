"""Every uplink of every rack full: flows get the line, with any number of EVs for a path (text with figure 20 of
arXiv 2605.04333: 390 of 394 Gb/s)."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.sim.loop.run import run
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.sim.workloads.traffic import traffic
from openmrc.units import PS_PER_US
from tests.sim.small import leaf_spine

GBPS, SHARE, ROUND_TRIP_US = 400, 0.985, 10
PACKETS = 4096


def crossing(nics: int, rack: int, seed: int) -> list[int]:
    """Return a random permutation without a pair in one rack."""
    random = np.random.default_rng(seed)
    to = random.permutation(nics)
    while (inside := np.flatnonzero(to // rack == np.arange(nics) // rack)).size:
        for nic in inside:
            other = random.integers(nics)
            to[nic], to[other] = to[other], to[nic]
    return [int(nic) for nic in to]


@pytest.mark.parametrize("evs", [64, 128, 256])
@pytest.mark.parametrize("uplinks", [4, 16])
@pytest.mark.parametrize("is_random", [False, True], ids=["stride", "random"])
def test_flows_over_all_uplinks_get_the_line(uplinks: int, evs: int, is_random: bool) -> None:
    nics = 4 * uplinks
    to = crossing(nics, uplinks, 1) if is_random else [(nic + uplinks) % nics for nic in range(nics)]
    done = run(
        leaf_spine(hosts=nics, down=uplinks, gbps=GBPS),
        traffic(np.arange(nics), to, PACKETS * 4096),
        MrcTransport(evs=evs),
    )
    line_us = PACKETS * 4160 * 8 / (GBPS * 1000)
    assert done.finished.max() / PS_PER_US <= line_us / SHARE + ROUND_TRIP_US
