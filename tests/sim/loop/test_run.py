"""When a run ends, what it calls finished, and that packets never lack rows."""

from __future__ import annotations

import numpy as np
import pytest

from harness.simulated_runs import run
from openmrc.sim.loop import run as loop
from openmrc.sim.loop.fault_events import FaultKind, faults
from openmrc.sim.network.build import NetworkSettings
from openmrc.sim.network.network_tables import Trimming
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.units import NEVER, PS_PER_MS, PS_PER_US
from tests.sim.small import Blast, incast, leaf_spine, shifted


def test_a_run_ends_with_its_last_flow_although_probes_of_a_dead_path_go_on() -> None:
    topology = leaf_spine(hosts=8, planes=2, gbps=100)
    dead = topology.planes[0].fabric_up  # one silent uplink: its EVs are probed for ever
    broken = faults([0], FaultKind.LINK_LOSS, [dead], 10**9)
    results = run(topology, shifted(8, 400_000, 4), MrcTransport(evs=8), broken=broken, until=2000 * PS_PER_MS)
    assert (results.finished < NEVER).all()
    assert results.now < results.finished.max() + 200 * PS_PER_US


def test_datagrams_are_finished_when_they_have_arrived() -> None:
    results = run(leaf_spine(), shifted(16, 10_000, 5), Blast())
    assert (results.finished == results.received).all()
    assert (results.finished - results.started > 4 * PS_PER_US).all(), "four links of a microsecond"


def test_datagrams_that_are_lost_are_not_finished() -> None:
    drops = Blast(NetworkSettings(buffer_bdp=0.1, last_hop_buffer_bdp=0.1, trimming=Trimming.NEVER))
    results = run(leaf_spine(), incast(12, 200_000), drops)
    assert results.links["dropped"].sum() > 0
    assert (results.finished[results.received == NEVER] == NEVER).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_rows_for_packets_grow_with_need_and_change_nothing(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    def outcome() -> loop.Results:
        broken = faults(np.zeros(64), FaultKind.LINK_DELAY, np.arange(64), 50 * PS_PER_US)
        return run(leaf_spine(), shifted(16, 60_000, 5), MrcTransport(evs=8), broken=broken, threads=threads)

    plenty = outcome()
    monkeypatch.setattr(loop, "_hops_needed", lambda *_: 64)
    few = outcome()
    assert (plenty.finished < NEVER).all()
    assert (few.finished == plenty.finished).all()
    assert few.hops == plenty.hops
