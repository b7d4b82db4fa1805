"""Traffic inside scale-up domains: closed forms, contention, and what stays on the NICs."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from harness.simulated_runs import run
from openmrc.fabric.model.topology import Topology
from openmrc.report.simulation import report
from openmrc.report.terminal import show
from openmrc.sim.loop.run import LoopTransport as Carrier
from openmrc.sim.loop.run import Results, finish, prepare
from openmrc.sim.network.forwarding.scale_up import CHUNK
from openmrc.sim.results.summary import summary
from openmrc.sim.scenario.description import Scenario, Transport
from openmrc.sim.simulate import hosts_of, simulate
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.sim.transports.roce.transport import RoceTransport
from openmrc.sim.transports.uet.transport import UetTransport
from openmrc.sim.workloads.collectives.hierarchical import HierarchicalAllReduce
from openmrc.sim.workloads.joined import joined
from openmrc.sim.workloads.shares import plan_of
from openmrc.sim.workloads.traffic import CompletionSide, Traffic, traffic
from openmrc.units import NEVER, PS_PER_S, PS_PER_US
from tests.sim.described import topology_of
from tests.sim.small import Blast

LATENCY = PS_PER_US
RATE = 800_000_000_000  # bit/s of a NIC's GPUs: 10 ps a byte
BYTE = 8 * PS_PER_S // RATE


def racks(hosts: int = 4, nics: int = 2, gpus: int = 2, domain: int = 4, gbps: float = 800) -> Topology:
    """Machines of `nics` NICs and `gpus` GPUs, `domain` GPUs a rack, on two planes under one switch each."""
    return topology_of(
        f"hosts: {{count: {hosts}, nics: {nics}, gpus: {gpus}}}\n"
        f"planes: [{{count: 2, host_gbps: 100, t0: {{down: {hosts * nics}}}}}]\n"
        f"scale_up: {{gpus: {domain}, gbps: {gbps}, latency_ns: 1000}}\n"
    )


def alone(size: int) -> int:
    """When a message of whole chunks that meets nobody has arrived (ps after its start)."""
    return (size + CHUNK) * BYTE + LATENCY


def answered() -> int:
    """How long the answer takes."""
    return 2 * 64 * BYTE + LATENCY


TRANSPORTS = [Blast(), MrcTransport(evs=8), UetTransport(), RoceTransport()]


@pytest.mark.parametrize("transport", TRANSPORTS, ids=["datagrams", "mrc", "uet", "roce"])
def test_a_message_within_a_domain_takes_its_closed_form_whatever_the_transport(transport: Carrier) -> None:
    size = 100 * CHUNK
    result = run(racks(), traffic([0, 6], [3, 4], size, [0, PS_PER_US]), transport)
    assert (result.received - result.started == alone(size)).all()
    assert (result.finished - result.received == answered()).all()
    assert result.links["data_packets"].sum() == 0
    assert result.scale_up_bytes.tolist() == [64, 0, 0, size, size, 0, 64, 0]


def test_a_message_to_another_domain_takes_the_nics() -> None:
    result = run(racks(), traffic([0], [4], 100 * CHUNK), Blast())
    assert result.scale_up_bytes.sum() == 0
    assert result.links["data_packets"].sum() == 200


def test_without_scale_up_everything_takes_the_nics() -> None:
    transport = MrcTransport(evs=8)
    result = finish(prepare(racks(), traffic([0], [3], 100 * CHUNK), transport, scale_up=False), transport)
    assert result.scale_up_bytes.sum() == 0
    assert result.links["arrived"].sum() > 200
    assert result.finished[0] > 100 * CHUNK * 8 * PS_PER_S // (200 * 10**9)


def test_the_last_chunk_may_be_short() -> None:
    result = run(racks(), traffic([0], [3], 10 * CHUNK + 1), Blast())
    # The switch is busy with the whole chunk before it until one chunk after that has come.
    assert result.received[0] == 11 * CHUNK * BYTE + BYTE + LATENCY


def test_senders_to_one_share_the_port_to_it_and_nothing_is_lost() -> None:
    size = 50 * CHUNK
    result = run(racks(), traffic([0, 1, 2], 3, size), Blast())
    assert result.received.max() == (3 * size + CHUNK) * BYTE + LATENCY
    assert result.received.min() > 2.9 * size * BYTE  # in turn, chunk by chunk
    assert result.scale_up_bytes[3] == 3 * size


def test_one_senders_messages_leave_one_after_the_other() -> None:
    size = 20 * CHUNK
    result = run(racks(), traffic([0, 0], [1, 2], size), Blast())
    assert result.received.tolist() == [alone(size), alone(size) + size * BYTE]


def test_several_gpus_behind_a_nic_have_the_rate_of_all() -> None:
    topology = racks(hosts=4, nics=1, gpus=4, domain=8, gbps=200)  # two machines a rack
    result = run(topology, traffic([0, 0], [1, 2], 40 * CHUNK), Blast())
    assert result.received[0] == alone(40 * CHUNK)
    assert result.scale_up_bytes.tolist() == [64, 40 * CHUNK, 0, 0]  # NIC 2 is in the next rack


def test_an_irregular_fabric_can_have_domains() -> None:
    topology = topology_of(
        "nodes: [{name: a, kind: nic}, {name: b, kind: nic}, {name: s, kind: switch}]\n"
        "links: [{a: a, b: s, gbps: 100}, {a: b, b: s, gbps: 100}]\n"
        "scale_up: {gpus: 2, gbps: 800, latency_ns: 1000}\n"
    )
    result = run(topology, traffic([0], [1], 8 * CHUNK), UetTransport())
    assert result.received[0] == alone(8 * CHUNK)


def chained() -> Traffic:
    """A message in the domain, then one over the NICs, then one in the other domain."""
    return traffic(
        [0, 3, 4], [3, 4, 5], 64 * CHUNK, releases=([0, 1], [1, 2], [0, 0], [int(CompletionSide.RECEIVER)] * 2)
    )


@pytest.mark.parametrize("transport", TRANSPORTS[1:], ids=["mrc", "uet", "roce"])
def test_a_chain_over_both_networks_goes_on_at_each_arrival(transport: Carrier) -> None:
    result = run(racks(), chained(), transport)
    assert result.started[1] == result.received[0] == alone(64 * CHUNK)
    assert result.received[1] < NEVER
    assert result.received[2] == result.received[1] + alone(64 * CHUNK)


def test_threads_change_nothing() -> None:
    def ran(threads: int) -> Results:
        nic = np.arange(8)
        work = traffic(np.tile(nic, 2), np.concatenate([nic ^ 1, nic ^ 4]), 30 * CHUNK + 5)
        return run(racks(), work, MrcTransport(evs=8), threads=threads)

    one, two = ran(1), ran(2)
    assert np.array_equal(one.finished, two.finished)
    assert np.array_equal(one.scale_up_bytes, two.scale_up_bytes)


def test_a_hierarchical_all_reduce_in_one_domain_takes_its_closed_form() -> None:
    topology = racks(hosts=2)  # four NICs, one domain
    size = 4 * 25 * CHUNK
    plan = plan_of(hosts_of(topology), HierarchicalAllReduce(size=size), 1)
    work = joined([("h", plan)])
    result = run(topology, work.traffic, Blast())
    # Two halves of three steps; each but the first waits at its port for the answer to the one before.
    assert result.received[work.moving].max() == 6 * alone(size // 4) + 5 * 64 * BYTE


def test_a_hierarchical_all_reduce_crosses_domains_between_its_halves() -> None:
    topology = racks(hosts=4)  # two domains of four NICs
    size = 4 * 2 * 16 * CHUNK  # a message across is half of a quarter
    plan = plan_of(hosts_of(topology), HierarchicalAllReduce(size=size), 1)
    work = joined([("h", plan)])
    result = run(topology, work.traffic, MrcTransport(evs=8))
    flows = work.moving
    stays = work.traffic.source[flows] // 4 == work.traffic.destination[flows] // 4
    crossing = flows[~stays]
    assert (stays.sum(), len(crossing)) == (2 * 3 * 8, 2 * 8)
    assert result.started[crossing].min() == 3 * alone(size // 4) + 2 * 64 * BYTE
    after = result.received[flows].max() - result.received[crossing].max()
    assert 3 * alone(size // 4) <= after <= 3 * (alone(size // 4) + 2 * 64 * BYTE)
    # Two steps of one message for every NIC, each over both of its ports, unhindered under one switch.
    alone_across = 16 * CHUNK * 8 * PS_PER_S // (200 * 10**9)
    assert 2 * alone_across < np.ptp([result.started[crossing].min(), result.received[crossing].max()])


def test_a_scenario_carries_a_domains_messages_inside_unless_told_otherwise_and_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scenario = Scenario(name="x", fabric=racks().fabric, workloads=(HierarchicalAllReduce(size="1MiB"),))
    inside = simulate(scenario)
    assert inside.is_complete
    assert inside.results.scale_up_bytes.sum() > 6 * 8 * (1 << 18)
    reported = summary(inside)
    moved = reported["scale_up"]
    assert moved["domains"] == 2
    stays = inside.work.traffic.source // 4 == inside.work.traffic.destination // 4
    flows = np.flatnonzero(stays & (inside.work.traffic.size > 0))
    assert moved["flows"] == moved["finished"] == len(flows) == 2 * 3 * 8
    assert moved["bytes"] == inside.work.traffic.size[flows].sum()
    answers = inside.results.scale_up_bytes.sum() - moved["bytes"]
    assert moved["arrived_bytes"] - moved["bytes"] == answers == 64 * moved["flows"]
    assert moved["goodput_gbps"] == pytest.approx(moved["bytes"] * 8e3 / inside.span, rel=1e-5)
    assert 0 < moved["fct_us"]["mean"] <= moved["fct_us"]["max"] < reported["fct_us"]["max"]
    page = report(inside, reported, {})
    assert "inside scale-up domains: bytes" in page
    assert f"{moved['bytes']:,}" in page
    show(reported, None)
    assert f"inside domains 48 of 48 flows, {moved['bytes']:,} bytes" in " ".join(capsys.readouterr().out.split())

    outside = simulate(msgspec.structs.replace(scenario, transport=Transport(scale_up=False)))
    reported = summary(outside)
    assert "scale_up" not in reported
    assert "inside scale-up domains" not in report(outside, reported, {})
