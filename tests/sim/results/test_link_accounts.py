"""On every link, sent + duplicated = arrived + losses by cause, to the packet, under overload and faults."""

from __future__ import annotations

import numpy as np
import pytest

from harness.link_accounts import LinkAccounts, link_accounts
from harness.simulated_runs import run
from openmrc.base.faults import Schedule
from openmrc.fabric.model.topology import Topology
from openmrc.sim.loop.run import LoopTransport
from openmrc.sim.network.build import NetworkSettings
from openmrc.sim.network.network_tables import Trimming
from openmrc.sim.scenario.timeline import columns
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.sim.transports.roce.tables import Recovery
from openmrc.sim.transports.roce.transport import RoceTransport
from openmrc.sim.transports.uet.transport import UetTransport
from tests.sim.small import Blast, incast, leaf_spine

TIGHT = NetworkSettings(trimming=Trimming.EITHER, buffer_bdp=0.2, last_hop_buffer_bdp=0.2, control_buffer_bdp=0.002)
FAULTS = (
    "at: 2us, for: 3us, down: p0-t0-01<>p0-t1-01; loss: 2%, on: h5 port 0; duplicate: 3%, on: h6 port 0;"
    "trim: 5%, on: h7 port 0; jitter: 2us, on: h9 port 0; bit_errors: 1e-7, on: h10 port 0; reorder: 5%, on: h11 port 0"
)


def accounts(transport: LoopTransport, faults: str = "", size: int = 200_000) -> tuple[Topology, LinkAccounts]:
    topology = leaf_spine(hosts=16)
    broken = columns(topology, Schedule.parse(faults), 1) if faults else None
    results = run(topology, incast(12, size), transport, broken=broken, until=20_000_000_000)
    found = link_accounts(results.links)
    assert int(found.on_the_way.sum()) == results.on_the_way
    assert (found.sent + found.duplicated == found.arrived + found.lost + found.on_the_way).all()
    return topology, found


def nodes_that_keep_packets(topology: Topology, found: LinkAccounts) -> list[str]:
    """Return the switches that did not send what arrived at them."""
    into = np.bincount(topology.link_destination, found.arrived, topology.nodes)
    out = np.bincount(topology.link_source, found.sent, topology.nodes)
    return [topology.name(int(node)) for node in np.flatnonzero(into != out) if node >= topology.nics]


def test_overload_without_trimming_loses_to_full_queues_alone() -> None:
    topology, found = accounts(Blast(NetworkSettings(trimming=Trimming.NEVER, last_hop_buffer_bdp=0.2)))
    assert found.full.sum() == found.lost.sum() > 0
    assert nodes_that_keep_packets(topology, found) == []


def test_trimmed_packets_that_find_no_room_have_a_cause_of_their_own() -> None:
    topology, found = accounts(Blast(TIGHT))
    assert found.control_full.sum() == found.lost.sum() > 0
    assert nodes_that_keep_packets(topology, found) == []


def test_every_cause_is_named_where_it_was_injected() -> None:
    topology, found = accounts(Blast(TIGHT), FAULTS)
    assert (found.on_the_way == 0).all()
    assert found.down.sum() > 0
    assert found.at_random.sum() > 0
    assert found.duplicated.sum() > 0
    lossy = {topology.name(int(topology.link_source[link])) for link in np.flatnonzero(found.at_random)}
    assert {"h5"} <= lossy <= {"h5", "h10"}
    assert {topology.name(int(topology.link_source[link])) for link in np.flatnonzero(found.duplicated)} == {"h6"}
    assert nodes_that_keep_packets(topology, found) == []


@pytest.mark.parametrize(
    "transport",
    [MrcTransport(evs=8), UetTransport(), RoceTransport(recovery=Recovery.GO_BACK_N)],
    ids=["mrc", "uet", "roce"],
)
def test_the_links_of_every_transport_add_up(transport: LoopTransport) -> None:
    _, found = accounts(transport, FAULTS, size=40_000)
    assert found.lost.sum() > 0
