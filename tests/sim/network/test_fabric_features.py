"""What a fabric.yaml can say, each end to end in a small simulation: speeds, ports, sites, buffers."""

from __future__ import annotations

import numpy as np
import pytest

from harness.simulated_runs import run
from openmrc.core.rows import column
from openmrc.fabric.model.topology import LinkTier
from openmrc.sim.loop.run import Results, prepare
from openmrc.sim.network.build import NetworkSettings
from openmrc.sim.network.network_tables import Routing, Trimming
from openmrc.sim.network.reach import reaches
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.sim.transports.roce.transport import RoceTransport
from openmrc.sim.transports.uet.transport import UetTransport
from openmrc.sim.workloads.traffic import CompletionSide, traffic
from openmrc.units import NEVER, PS_PER_MS, PS_PER_S, PS_PER_US
from tests.sim.described import topology_of
from tests.sim.small import Blast, on_wire, shifted

TALL = """
hosts: {count: 12}
planes:
  - host_gbps: 100
    host_link_ns: 70
    t0: {down: 2, up: 2, up_link_ns: 210, switch_ns: 500}
    t1: {down: 3, up: 2, up_link_ns: 330, switch_ns: 650}
    t2: {switch_ns: 800}
"""


def gbps(result: Results, size: int) -> float:
    return size * 8 / (result.finished.max() / PS_PER_S) / 1e9


def test_latency_is_that_of_every_tier_on_the_way() -> None:
    topology = topology_of(TALL)
    result = run(topology, traffic([0, 0, 0], [1, 2, 11], 4096, [0, 10**9, 2 * 10**9]), Blast())
    one, byte = 4160, 80
    same_t0 = 2 * 70_000 + 500_000 + 2 * one * byte
    same_pod = 2 * (70_000 + 210_000) + 2 * 500_000 + 650_000 + 4 * one * byte
    other_pod = 2 * (70_000 + 210_000 + 330_000) + 2 * (500_000 + 650_000) + 800_000 + 6 * one * byte
    assert (result.received - result.started).tolist() == [same_t0, same_pod, other_pod]


def test_planes_of_different_speeds_carry_in_proportion() -> None:
    topology = topology_of(
        "hosts: {count: 8}\nplanes:\n"
        "  - {host_gbps: 50, t0: {down: 4, up: 4}, t1: {}}\n"
        "  - {host_gbps: 200, t0: {down: 4, up: 4}, t1: {}}\n"
    )
    size = 8_000_000
    result = run(topology, shifted(8, size, by=4), MrcTransport(evs=32))
    arrived = result.links["data_bytes"][topology.link_destination < topology.nics]
    plane = topology.link_plane[topology.link_destination < topology.nics]
    slow, fast = arrived[plane == 0].sum(), arrived[plane == 1].sum()
    assert fast == pytest.approx(4 * slow, rel=0.05)
    assert gbps(result, size) > 0.85 * 250


def test_single_path_senders_use_the_rate_of_the_plane_they_are_on() -> None:
    topology = topology_of(
        "hosts: {count: 8}\nplanes:\n"
        "  - {host_gbps: 50, t0: {down: 4, up: 4}, t1: {}}\n"
        "  - {host_gbps: 200, t0: {down: 4, up: 4}, t1: {}}\n"
    )
    packets = 500
    flows = traffic([1, 6, 0, 2], [5, 3, 4, 6], packets * 4096)
    transport = RoceTransport()
    planes = column(prepare(topology, flows, transport).state.senders, "plane").tolist()
    assert planes == [0, 0, 1, 1]  # a hash of each pair
    result = run(topology, flows, transport)
    took = result.finished - result.started
    serialised = [packets * on_wire(transport) * 8 * 1000 // (50, 200)[plane] for plane in planes]
    round_trips = [reaches(topology, 4096, transport.network.header)[plane].round_trip for plane in planes]
    # All packets in a row at the rate of the plane, and one round trip: the last packet there, its answer back.
    assert (0.9 * np.array(round_trips) < took - serialised).all()
    assert (took - serialised < 1.1 * np.array(round_trips)).all()


def test_several_nics_a_host_work_at_once_and_rails_lead_to_their_t0() -> None:
    topology = topology_of(
        "hosts: {count: 4, nics: 4, attach: rail}\nplanes: [{host_gbps: 100, t0: {down: 4, up: 4}, t1: {}}]\n"
    )
    size = 1_000_000
    result = run(topology, traffic([0, 1, 2, 3], [4, 5, 6, 7], size), MrcTransport(evs=8))
    assert result.links["data_packets"][topology.link_tier == LinkTier.FABRIC].sum() == 0
    assert gbps(result, size) > 0.9 * 100 * 4096 / on_wire(MrcTransport()) * 0.9


@pytest.mark.parametrize(
    ("text", "far"),
    [
        ("hosts: {count: 8}\nplanes: [{host_gbps: 100, t0: {down: 2, up: 2}, t1: {}}]\n", 4),
        ("hosts: {count: 8}\nplanes: [{host_gbps: 100, t0: {down: 4}}]\n", 4),
        ("hosts: {count: 8}\nplanes: [{host_gbps: 100, t0: {down: 2, up: 2}, t1: {down: 1, up: 1}, t2: {}}]\n", 4),
    ],
    ids=["two-tiers", "one-switch", "three-tiers"],
)
def test_two_sites_use_every_long_link(text: str, far: int) -> None:
    topology = topology_of(text + "sites: {links: 3, gbps: 100, link_us: 20}\n")
    result = run(topology, shifted(8, 1_000_000, by=far), MrcTransport(evs=64), until=50 * PS_PER_MS)
    assert (result.finished < NEVER).all()
    carried = result.links["data_packets"][topology.link_tier == LinkTier.LONG]
    assert carried.min() > 0.5 * carried.mean()
    assert result.finished.min() > 2 * 20_000_000  # there and back


def test_a_long_link_takes_its_time_once() -> None:
    topology = topology_of(
        "hosts: {count: 4}\nplanes: [{host_gbps: 100, host_link_ns: 50, t0: {down: 2, switch_ns: 600}}]\n"
        "sites: {links: 1, gbps: 400, link_us: 250}\n"
    )
    result = run(topology, traffic([0], [2], 4096), Blast())
    assert result.received[0] == 2 * 50_000 + 2 * 600_000 + 250_000_000 + 4160 * (2 * 80 + 20)


@pytest.mark.parametrize("link_us", [5, 50, 250, 1000])
def test_two_sites_lose_no_time_to_more_than_their_distance(link_us: int) -> None:
    """A flow takes as long as its line or its window of 1,024 packets asks for, also beyond the timeout of 131 us."""
    packets, line_us = 1500, on_wire(MrcTransport()) * 8 / 100_000
    topology = topology_of(
        "hosts: {count: 4}\nplanes: [{host_gbps: 100, t0: {down: 2}}]\n"
        f"sites: {{links: 1, gbps: 400, link_us: {link_us}}}\n"
    )
    result = run(topology, traffic([0], [2], packets * 4096), MrcTransport(evs=8), until=50 * PS_PER_MS)
    round_trip_us = 2 * link_us + 5
    expected_us = round_trip_us + max(packets * line_us, packets / 1024 * round_trip_us)
    assert result.finished[0] < 1.25 * expected_us * PS_PER_US
    assert result.counters["retransmitted"] == 0


@pytest.mark.parametrize("up", ["oversubscription: 2", "up: 2, up_gbps: 100"])
def test_oversubscription_halves_what_crosses_the_fabric(up: str) -> None:
    topology = topology_of(f"hosts: {{count: 8}}\nplanes: [{{host_gbps: 100, t0: {{down: 4, {up}}}, t1: {{}}}}]\n")
    size = 2_000_000
    across = run(topology, shifted(8, size, by=4), MrcTransport(evs=8))
    within = run(topology, traffic([0, 1, 2, 3], [1, 2, 3, 0], size), MrcTransport(evs=8))
    assert 40 < gbps(across, size) < 50
    assert gbps(within, size) > 85


def test_faster_uplinks_carry_as_much_with_fewer() -> None:
    topology = topology_of(
        "hosts: {count: 8}\nplanes: [{host_gbps: 100, t0: {down: 4, up: 1, up_gbps: 400}, t1: {}}]\n"
    )
    result = run(topology, shifted(8, 2_000_000, by=4), MrcTransport(evs=8))
    assert gbps(result, 2_000_000) > 85


def test_all_links_of_a_bundle_carry_both_up_and_down() -> None:
    topology = topology_of("hosts: {count: 8}\nplanes: [{host_gbps: 100, t0: {down: 4, up: 4, bundle: 2}, t1: {}}]\n")
    result = run(topology, shifted(8, 2_000_000, by=4), MrcTransport(evs=16))
    carried = result.links["data_packets"][topology.link_tier == LinkTier.FABRIC]
    assert carried.min() > 0.7 * carried.mean()
    assert gbps(result, 2_000_000) > 75


def test_the_fabrics_buffers_bound_the_queues_of_their_tier() -> None:
    topology = topology_of(
        "hosts: {count: 16}\nplanes: [{host_gbps: 100, t0: {down: 4, up: 1, buffer_kb: 32}, t1: {buffer_kb: 64}}]\n"
    )
    settings = NetworkSettings(routing=Routing.HASH, trimming=Trimming.NEVER, buffer_bdp=0)
    result = run(topology, traffic(np.arange(4, 16), np.arange(12) % 4, 400_000), Blast(settings))
    up = (topology.node_tier[topology.link_source] == 0) & (topology.node_tier[topology.link_destination] == 1)
    down = (topology.node_tier[topology.link_source] == 1) & (topology.node_tier[topology.link_destination] == 0)
    assert 0.8 * 32 * 1024 * 80 < result.links["peak"][up].max() <= 32 * 1024 * 80
    assert 0.8 * 64 * 1024 * 80 < result.links["peak"][down].max() <= 64 * 1024 * 80
    assert result.links["dropped"][up].sum() > 0
    assert result.links["dropped"][down].sum() > 0


def test_nothing_is_dropped_where_a_buffer_has_no_limit() -> None:
    topology = topology_of(
        "hosts: {count: 8}\nplanes: [{host_gbps: 100, t0: {down: 4, up: 1, buffer_kb: 0}, t1: {buffer_kb: 0}}]\n"
    )
    result = run(topology, shifted(8, 400_000, by=4), Blast())
    assert result.links["dropped"].sum() == 0
    assert (result.received < NEVER).all()


@pytest.mark.parametrize(
    "transport", [MrcTransport(evs=8), UetTransport(), RoceTransport()], ids=["mrc", "uet", "roce"]
)
def test_every_transport_crosses_sites_and_unlike_planes(transport: object) -> None:
    topology = topology_of(
        "hosts: {count: 8, nics: 2, attach: rail}\nplanes:\n"
        "  - {host_gbps: 100, t0: {down: 4, up: 2}, t1: {}}\n"
        "  - {host_gbps: 50, t0: {down: 2, oversubscription: 2, up_gbps: 50}, t1: {}}\n"
        "sites: {links: 2, gbps: 200, link_us: 3}\n"
    )
    work = traffic([0, 1, 15], [15, 8, 0], 200_000, releases=([0], [2], [0], [int(CompletionSide.RECEIVER)]))
    result = run(topology, work, transport, until=50 * PS_PER_MS)  # type: ignore[arg-type]
    assert (result.finished < NEVER).all()
