"""Baselines under failures: routing leaves broken links out, bonds change ports, and retries end in an error."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from harness.simulated_runs import run
from openmrc.base.faults import Schedule
from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import Fabric, Hosts, Plane, Sites, Tier
from openmrc.fabric.model.topology import Topology
from openmrc.sim.loop.fault_events import FaultKind, Faults
from openmrc.sim.loop.run import LoopTransport, Results
from openmrc.sim.network.build import NetworkSettings
from openmrc.sim.network.network_tables import Routing
from openmrc.sim.scenario.convergence import converging
from openmrc.sim.scenario.timeline import columns
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.sim.transports.roce.transport import RoceTransport, adaptive
from openmrc.sim.transports.uet.transport import UetTransport
from openmrc.sim.workloads.traffic import Traffic, traffic
from openmrc.units import NEVER, PS_PER_MS, PS_PER_US
from tests.sim.small import leaf_spine, shifted, three_tiers

ROUTED = NetworkSettings(routing=Routing.HASH, reroute_delay_us=20, failover_delay_us=10)


def faults_of(topology: Topology, text: str, settings: NetworkSettings = ROUTED) -> Faults:
    return converging(topology, columns(topology, Schedule.parse(text), 1), settings)


def moments(faults: Faults, kind: FaultKind) -> list[tuple[int, int]]:
    mine = faults.kind == kind
    return sorted(set(zip((faults.at[mine] // PS_PER_US).tolist(), faults.value[mine].tolist(), strict=True)))


def test_routing_follows_a_cable_by_its_delay_both_ways() -> None:
    faults = faults_of(leaf_spine(), "at: 10us, for: 100us, down: p0-t0-00<>p0-t1-01")
    assert moments(faults, FaultKind.ROUTE_WITHDRAWN) == [(30, 1), (130, 0)]
    assert (faults.kind == FaultKind.ROUTE_WITHDRAWN).sum() == 4


@pytest.mark.parametrize("text", ["down: p0-t0-00>p0-t1-01", "loss: 100%, on: p0-t0-00>p0-t1-01"])
def test_routing_sees_one_dead_direction_and_silence_as_its_hellos_do(text: str) -> None:
    faults = faults_of(leaf_spine(), f"at: 10us, {text}")
    assert (faults.kind == FaultKind.ROUTE_WITHDRAWN).sum() == 2


@pytest.mark.parametrize("text", ["loss: 99%", "for: 8us, every: 30us, times: 9, down: plane 0", "rate: 1Gbps"])
def test_routing_does_not_see_grey_losses_and_short_flaps(text: str) -> None:
    faults = faults_of(leaf_spine(), f"at: 10us, {text}")
    assert not (faults.kind >= FaultKind.ROUTE_WITHDRAWN).any()


def test_a_nic_s_cable_is_left_by_its_bond_and_withdrawn_by_routing() -> None:
    faults = faults_of(leaf_spine(planes=2), "at: 10us, for: 100us, down: h3 port 1")
    assert moments(faults, FaultKind.BOND_LEFT) == [(20, 1), (120, 0)]
    assert moments(faults, FaultKind.PORT_WITHDRAWN) == [(30, 1), (130, 0)]
    assert set(faults.subject[faults.kind > FaultKind.ROUTE_WITHDRAWN].tolist()) == {3 * 64 + 1}
    assert not (faults.kind == FaultKind.ROUTE_WITHDRAWN).any()


def test_mrc_s_tables_are_static() -> None:
    faults = faults_of(leaf_spine(), "at: 10us, down: p0-t0-00<>p0-t1-01", MrcTransport().network)
    assert not (faults.kind >= FaultKind.ROUTE_WITHDRAWN).any()


def after_convergence(transport: LoopTransport, topology: Topology, text: str, flows: Traffic) -> Results:
    """Faults from the beginning, flows that start when routing has settled."""
    settings = transport.network
    faults = converging(topology, columns(topology, Schedule.parse(text), 1), settings)
    return run(topology, flows, transport, broken=faults, until=300 * PS_PER_MS)


LATER = 50 * PS_PER_US


def quick(transport: RoceTransport | UetTransport) -> RoceTransport | UetTransport:
    network = replace(transport.network, reroute_delay_us=20, failover_delay_us=10)
    return replace(transport, network=network)


BASELINES = [
    pytest.param(quick(RoceTransport()), id="roce"),
    pytest.param(quick(adaptive()), id="roce-adaptive"),
    pytest.param(quick(UetTransport()), id="uet"),
]


@pytest.mark.parametrize("transport", BASELINES)
def test_nothing_goes_where_routing_has_withdrawn_a_link(transport: LoopTransport) -> None:
    """A T1 without its link to the T0 of the receivers is left out by every sender's T0, not only by its neighbour."""
    topology = leaf_spine(hosts=16)
    flows = shifted(16, 400_000, by=4, start=LATER)
    text = "down: p0-t0-02<>p0-t1-01; down: p0-t0-03<>p0-t1-00"
    results = after_convergence(transport, topology, text, flows)
    assert (results.finished < NEVER).all()
    assert results.links["lost"].sum() == 0
    assert results.counters["timeouts"] == 0


@pytest.mark.parametrize("transport", BASELINES)
def test_a_link_that_is_back_is_used_again(transport: LoopTransport) -> None:
    topology = leaf_spine(hosts=16)
    faults = converging(
        topology,
        columns(topology, Schedule.parse("for: 100us, down: p0-t0-00<>p0-t1-01"), 1),
        transport.network,
    )
    flows = shifted(16, 400_000, by=4, start=200 * PS_PER_US)
    results = run(topology, flows, transport, broken=faults, until=300 * PS_PER_MS)
    uplink = int(topology.node_named("p0-t0-00"))
    used = [
        link
        for link in range(topology.links)
        if topology.link_source[link] == uplink and topology.link_destination[link] == topology.node_named("p0-t1-01")
    ]
    healthy = run(topology, flows, transport, until=300 * PS_PER_MS)
    assert results.links["data_packets"][used].sum() == healthy.links["data_packets"][used].sum()
    assert (results.finished < NEVER).all()


def test_three_tiers_find_the_way_around_a_pod_s_lost_links() -> None:
    topology = three_tiers()
    transport = UetTransport(network=ROUTED)
    text = "down: p0-t1-00<>p0-t2-00; down: p0-t0-07<>p0-t1-06"
    results = after_convergence(transport, topology, text, shifted(16, 100_000, by=8, start=LATER))
    assert results.links["lost"].sum() == 0
    assert (results.finished < NEVER).all()


def test_two_sites_find_the_way_around_a_lost_long_link() -> None:
    plane = Plane(t0=Tier(down=2, up_link_ns=500), t1=Tier(down=4), host_gbps=100)
    topology = build(
        Fabric(name="sites", hosts=Hosts(count=16), planes=(plane,), sites=Sites(links=2, gbps=100, link_us=5))
    )
    long = [link for link in range(topology.links) if topology.link_name(link).count("t1") > 1]
    assert long
    text = f"down: {topology.link_name(long[0]).replace('>', '<>')}"
    results = after_convergence(UetTransport(network=ROUTED), topology, text, shifted(16, 50_000, 8, LATER))
    assert results.links["lost"].sum() == 0
    assert (results.finished < NEVER).all()


def test_before_convergence_packets_are_lost_and_after_it_the_queue_pair_goes_on() -> None:
    topology = leaf_spine(hosts=16)
    transport = quick(RoceTransport(timeout_us=30))
    settings = transport.network
    faults = converging(topology, columns(topology, Schedule.parse("at: 5us, down: p0-t1-01"), 1), settings)
    results = run(topology, shifted(16, 2_000_000, by=4), transport, broken=faults, until=50 * PS_PER_MS)
    assert results.links["lost"].sum() > 0
    assert results.counters["timeouts"] > 0
    assert (results.finished < NEVER).all()


@pytest.mark.parametrize("transport", BASELINES)
@pytest.mark.parametrize("place", ["h3 port 0", "p0-t0-00", "plane 0"])
def test_a_bond_goes_on_with_the_ports_that_are_left(transport: LoopTransport, place: str) -> None:
    topology = leaf_spine(hosts=8, planes=2)
    results = after_convergence(transport, topology, f"down: {place}", shifted(8, 200_000, 4, LATER))
    assert (results.finished < NEVER).all()
    assert results.links["lost"].sum() == 0


@pytest.mark.parametrize("transport", BASELINES)
def test_a_bond_takes_its_port_back(transport: LoopTransport) -> None:
    topology = leaf_spine(hosts=8, planes=2)
    text = "for: 100us, down: h3 port 0; for: 100us, down: h4 port 1"
    settings = transport.network
    faults = converging(topology, columns(topology, Schedule.parse(text), 1), settings)
    flows = shifted(8, 400_000, 4, 200 * PS_PER_US)
    results = run(topology, flows, transport, broken=faults, until=300 * PS_PER_MS)
    healthy = run(topology, flows, transport, until=300 * PS_PER_MS)
    assert np.array_equal(results.links["data_packets"], healthy.links["data_packets"])


ENDING = [
    pytest.param(MrcTransport(evs=8, timeout_us=20, linear_count=2, exponential_count=2), "user timeout", id="mrc"),
    pytest.param(RoceTransport(timeout_us=50, retries=2), "retries spent", id="roce"),
    pytest.param(RoceTransport(timeout_us=50, retries=2, qps=3), "retries spent", id="roce-3-qps"),
    pytest.param(UetTransport(give_up_us=500), "retries spent", id="uet"),
]


@pytest.mark.parametrize(("transport", "cause"), ENDING)
def test_a_partition_ends_in_errors_that_say_why_and_where(transport: LoopTransport, cause: str) -> None:
    topology = leaf_spine(hosts=8)
    faults = columns(topology, Schedule.parse("at: 2us, down: h5 port 0"), 1)
    flows = traffic([0, 1, 2], [5, 6, 5], 400_000)
    results = run(topology, flows, transport, broken=faults, until=200 * PS_PER_MS)
    assert (results.failed < NEVER).tolist() == [True, False, True]
    assert results.finished[1] < NEVER
    assert results.now < 200 * PS_PER_MS or transport.name == "mrc", "nothing goes on for ever"
    failed = {failure.flow: failure for failure in results.failures}
    assert set(failed) == {0, 2}
    for flow, nic in ((0, 0), (2, 2)):
        failure = failed[flow]
        assert (failure.cause, failure.nic, failure.peer) == (cause, nic, 5)
        assert failure.at == results.failed[flow]
        assert failure.progressed_at <= failure.at
        assert failure.plane == 0
        assert failure.ev >= 0
    assert results.counters["qp_errors"] >= 2


def test_a_connection_that_was_never_answered_says_so() -> None:
    topology = leaf_spine(hosts=8)
    faults = columns(topology, Schedule.parse("down: h5 port 0"), 1)
    transport = MrcTransport(evs=8, timeout_us=20, linear_count=2, exponential_count=2)
    results = run(topology, traffic([0], [5], 400_000), transport, broken=faults, until=100 * PS_PER_MS)
    assert [failure.progressed_at for failure in results.failures] == [0]


def test_what_is_posted_to_a_connection_in_error_fails_too() -> None:
    topology = leaf_spine(hosts=8)
    faults = columns(topology, Schedule.parse("down: h5 port 0"), 1)
    transport = MrcTransport(evs=8, timeout_us=20, linear_count=1, exponential_count=1)
    flows = traffic([0, 0], [5, 5], 40_000, start=[0, 20 * PS_PER_MS])
    results = run(topology, flows, transport, broken=faults, until=100 * PS_PER_MS)
    assert (results.failed < NEVER).all()
    assert results.failed[1] == 20 * PS_PER_MS
