"""Any list of nodes and links, simulated: ways that are really the shortest, closed forms, every transport."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.simulated_runs import run
from openmrc.core.rows import column
from openmrc.errors import ConfigError
from openmrc.fabric.model.build import load
from openmrc.fabric.model.topology import Topology
from openmrc.sim.loop import run as loop
from openmrc.sim.loop.fault_events import FaultKind, faults
from openmrc.sim.network.build import NetworkSettings, build
from openmrc.sim.network.forwarding import graph_routes
from openmrc.sim.network.network_tables import Network, Routing, Trimming
from openmrc.sim.scenario.description import Scenario, Transport, TransportName
from openmrc.sim.simulate import simulate
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.sim.transports.roce.tables import Recovery
from openmrc.sim.transports.roce.transport import RoceTransport, adaptive
from openmrc.sim.transports.uet.transport import UetTransport
from openmrc.sim.workloads.collectives.permutation import Permutation
from openmrc.sim.workloads.traffic import CompletionSide, traffic
from openmrc.units import NEVER, PS_PER_MS, PS_PER_US
from tests.sim.described import topology_of
from tests.sim.small import Blast, on_wire

SHIPPED = Path(__file__).parents[3] / "scenarios" / "fabrics" / "irregular.yaml"
SELECTIVE = RoceTransport(recovery=Recovery.SELECTIVE, qps=2)
TRANSPORTS: list[loop.LoopTransport] = [MrcTransport(evs=16), UetTransport(), RoceTransport(), SELECTIVE, adaptive()]
IDS = ["mrc", "uet", "roce", "roce-selective", "roce-adaptive"]

CHAIN = """
nodes:
  - {name: a, kind: nic}
  - {name: s, kind: switch, switch_ns: 400}
  - {name: t, kind: switch, tier: 1, switch_ns: 700}
  - {name: b, kind: nic}
links:
  - {a: a, b: s, gbps: 100, link_ns: 50}
  - {a: s, b: t, gbps: 100, link_ns: 300}
  - {a: t, b: b, gbps: 100, link_ns: 90}
"""
ONE_WAY = (50 + 400 + 300 + 700 + 90) * 1000  # ps, propagation and switching

# Two NICs with two ports each in one plane, one NIC with a single port; four ways between a and b, two from each port.
UNLIKE = """
nodes:
  - {name: a, kind: nic}
  - {name: b, kind: nic}
  - {name: c, kind: nic}
  - {name: s, kind: switch}
  - {name: t, kind: switch}
links:
  - {a: a, b: s, gbps: 100, count: 2}
  - {a: b, b: t, gbps: 100, count: 2}
  - {a: c, b: t, gbps: 100}
  - {a: s, b: t, gbps: 100, count: 2}
"""


@pytest.mark.parametrize("transport", TRANSPORTS, ids=IDS)
def test_one_flow_alone_takes_the_time_of_its_closed_form(transport: loop.LoopTransport) -> None:
    packets, byte = 40, 80  # ps at 100 Gb/s
    # A release at the receiver makes its completion known.
    work = traffic([0, 1], [1, 0], [packets * 4096, 4096], releases=([0], [1], [0], [int(CompletionSide.RECEIVER)]))
    result = run(topology_of(CHAIN), work, transport)
    packet, answer = on_wire(transport), transport.network.control_size
    arrived = ONE_WAY + (packets + 2) * packet * byte
    if transport.name == "mrc":
        arrived += answer * byte  # the answer to the responder's EV probe goes ahead of the last packets
    assert result.received[0] == arrived == result.started[1]
    answered = arrived + ONE_WAY + 3 * answer * byte
    assert answered <= result.finished[0] <= answered + 2 * packet * byte  # the answer may meet the message back


@pytest.mark.parametrize("transport", TRANSPORTS, ids=IDS)
def test_the_shipped_irregular_fabric_runs_with_every_transport(transport: loop.LoopTransport) -> None:
    topology = topology_of(SHIPPED.read_text().split("name: irregular")[1])
    result = run(topology, traffic([0, 1], [1, 0], 400_000), transport, until=20 * PS_PER_MS)
    assert (result.finished < NEVER).all()
    # The two short 40G cables are all that the fewest hops allow; the way by `middle` has one more.
    used = {topology.link_name(int(link)) for link in np.flatnonzero(result.links["data_packets"])}
    assert used == {"a>left", "left>right", "right>b", "b>right", "right>left", "left>a"}


@pytest.mark.parametrize("name", ["mrc", "uet", "roce", "roce_selective", "roce_adaptive", "datagrams"])
def test_a_scenario_on_an_irregular_fabric_runs_from_its_file(name: TransportName) -> None:
    scenario = Scenario(
        name="x",
        fabric=load(SHIPPED),
        transport=Transport(name=name),
        workloads=(Permutation(size="100KB", stride=1),),
        faults=({"at": "9us", "down": "b port 0", "for": "1us"},),
    )
    result = simulate(scenario)
    assert result.results.links["lost"].sum() > 0
    assert result.is_complete == (name != "datagrams")  # nothing repeats a lost datagram
    assert len(result.samples.at) > 0


@pytest.mark.parametrize("transport", TRANSPORTS, ids=IDS)
def test_nics_with_unlike_numbers_of_ports_talk_to_each_other(transport: loop.LoopTransport) -> None:
    topology = topology_of(UNLIKE)
    pairs = list(itertools.permutations(range(3), 2))
    work = traffic([pair[0] for pair in pairs], [pair[1] for pair in pairs], 300_000)
    result = run(topology, work, transport, until=50 * PS_PER_MS)
    assert (result.finished < NEVER).all()
    assert result.links["dropped"].sum() == 0


def test_mrc_spreads_over_all_ports_and_ways_alike() -> None:
    topology = topology_of(UNLIKE)
    result = run(topology, traffic([0], [1], 4_000_000), MrcTransport(evs=16))
    busy = result.links["data_packets"][result.links["data_packets"] > 0]
    assert len(busy) == 6  # two ports, two cables, two last links
    assert busy.min() > 0.8 * busy.max()
    alone = 4_000_000 * 8 / 200e9 * 1e12
    assert alone < result.finished[0] < 1.2 * alone


def test_mrc_goes_on_over_the_port_that_is_left() -> None:
    topology = topology_of(UNLIKE)
    first, out = topology.outgoing
    cable = int(out[first[0]])
    both = [cable, int(topology.link_reverse[cable])]
    broken = faults([5 * PS_PER_US] * 2, FaultKind.LINK_DOWN, both, 1)
    result = run(topology, traffic([0], [1], 2_000_000), MrcTransport(evs=16), broken=broken, until=50 * PS_PER_MS)
    assert result.finished[0] < NEVER
    assert 0 < result.links["lost"].sum() < 300


def walked(network: Network, topology: Topology, nic: int, destination: int, number: int) -> tuple[int, ...]:
    """The links that a packet with a number takes from a NIC's first port."""
    hop = network.hops[0]
    hop.destination, hop.path_number = destination, number
    node, links = int(topology.link_destination[topology.outgoing[1][topology.outgoing[0][nic]]]), []
    while node != destination:
        links.append(graph_routes.follow(network, node, 0, 0, 0))
        node = int(topology.link_destination[links[-1]])
    return tuple(links)


def shortest(topology: Topology, start: int, destination: int) -> set[tuple[int, ...]]:
    """All ways of the fewest links, found by trying everything."""
    first, out = topology.outgoing
    found: list[tuple[int, ...]] = [()]
    ends = [start]
    while True:
        there = {way for way, end in zip(found, ends, strict=True) if end == destination}
        if there:
            return there
        steps = [
            ((*way, int(link)), int(topology.link_destination[link]))
            for way, end in zip(found, ends, strict=True)
            for link in out[first[end] : first[end + 1]]
            if topology.link_destination[link] >= topology.nics or topology.link_destination[link] == destination
        ]
        found, ends = [way for way, _ in steps], [end for _, end in steps]


@settings(max_examples=25, deadline=None)
@given(
    st.integers(2, 5).flatmap(
        lambda switches: st.tuples(
            st.just(switches),
            st.lists(st.tuples(st.integers(0, switches - 1), st.integers(0, switches - 1)), max_size=6),
            st.integers(0, switches - 1),
        )
    )
)
def test_the_numbers_of_ways_name_every_shortest_way_once(graph: tuple[int, list[tuple[int, int]], int]) -> None:
    switches, extra, home = graph
    cables = [(at, at + 1) for at in range(switches - 1)] + [pair for pair in extra if pair[0] != pair[1]]
    text = "nodes:\n" + "".join(f"  - {{name: n{at}, kind: nic}}\n" for at in range(2))
    text += "".join(f"  - {{name: s{at}, kind: switch}}\n" for at in range(switches))
    text += f"links:\n  - {{a: n0, b: s0, gbps: 100}}\n  - {{a: n1, b: s{home}, gbps: 100}}\n"
    text += "".join(f"  - {{a: s{a}, b: s{b}, gbps: 100}}\n" for a, b in cables)
    topology = topology_of(text)
    network = build(topology, NetworkSettings(), hops=2)
    column(network.nodes, "salt")[:] = 1
    count = int(graph_routes.ways_between(network, np.array([0]), np.array([1]), 1)[0, 0])
    ways = [walked(network, topology, 0, 1, number) for number in range(count)]
    assert len(set(ways)) == count
    assert set(ways) == shortest(topology, 2, 1)  # the first switch is node 2
    assert walked(network, topology, 0, 1, count) == ways[0]  # numbers go round


def test_ecmp_spreads_flows_over_equal_ways() -> None:
    network = NetworkSettings(routing=Routing.HASH, trimming=Trimming.NEVER, buffer_bdp=0)
    topology = topology_of(UNLIKE)
    result = run(topology, traffic([0], [1], 2_000_000), Blast(network))
    cables = [link for link in range(topology.links) if topology.link_name(link) == "s>t"]
    carried = result.links["data_packets"][cables]
    assert carried.sum() == 489
    assert carried.min() > 200


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CHAIN.replace("  - {a: s, b: t, gbps: 100, link_ns: 300}\n", ""), r"port 0 of b \(b>t\) has no path to a"),
        (CHAIN.replace("  - {a: t, b: b, gbps: 100, link_ns: 90}\n", ""), "no link leads to the NIC b"),
        (CHAIN.replace("link_ns: 90", "link_ns: 0"), "a link of 0 ns"),
        (CHAIN.replace("gbps: 100, link_ns: 90", "gbps: .inf, link_ns: 90"), r"described:\d+: .*<= 1000000.0"),
        (CHAIN.replace("gbps: 100, link_ns: 90", "gbps: .nan, link_ns: 90"), r"described:\d+: "),
        (CHAIN.replace("tier: 1", "tier: 300"), r"described:\d+: .*<= 15"),
        (CHAIN.replace("tier: 1", "plane: 64"), r"described:\d+: .*<= 63"),
        (CHAIN.replace("link_ns: 90", "link_ns: 99999999999999999999"), r"described:\d+: "),
        (CHAIN + "scale_up: {gpus: 4, gbps: 800}\n", "scale_up.gpus = 4 does not divide the fabric's 2 GPUs"),
    ],
)
def test_a_graph_that_cannot_be_simulated_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build(topology_of(text), NetworkSettings(), hops=64)
