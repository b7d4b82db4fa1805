"""The transports on small fabrics: agreement with uet-htsim, losses repaired, ports of both kinds alike."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from bench.sim.agreement import ROWS, compare
from harness.simulated_runs import run
from openmrc.core.rows import column
from openmrc.sim.loop.fault_events import FaultKind, faults
from openmrc.sim.loop.run import finish, prepare
from openmrc.sim.network.build import NetworkSettings
from openmrc.sim.network.network_tables import Routing, Trimming
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.sim.transports.mrc.tap import CaptureTap
from openmrc.sim.transports.mrc.transport import Mrc
from openmrc.sim.transports.roce.tables import Recovery
from openmrc.sim.transports.roce.transport import RoceTransport, adaptive
from openmrc.sim.transports.uet.spraying.policies import POLICIES
from openmrc.sim.transports.uet.transport import UetTransport
from openmrc.sim.workloads.traffic import CompletionSide, traffic
from openmrc.units import NEVER, PS_PER_MS, PS_PER_S, PS_PER_US
from openmrc.wire.codes import Opcode, Trim
from openmrc.wire.layout import COLUMN
from tests.sim.small import Blast, incast, leaf_spine, on_wire, shifted

AGREEING = [row for row in ROWS if row.fabric.endswith("128_400g") and row.transport != "roce"]


@pytest.mark.parametrize("row", AGREEING, ids=lambda row: f"{row.fabric}-{row.matrix}-{row.transport}")
def test_uet_agrees_with_htsim(row: object) -> None:
    line = compare(row, seeds=3)  # type: ignore[arg-type]
    assert line["agrees"], line


LOSSY = [
    pytest.param(MrcTransport(evs=16), id="mrc"),
    *(pytest.param(UetTransport(spraying=name), id=f"uet-{name}") for name in POLICIES),
    pytest.param(RoceTransport(timeout_us=100), id="roce-go-back-n"),
    pytest.param(RoceTransport(timeout_us=100, recovery=Recovery.SELECTIVE, qps=4), id="roce-selective"),
    pytest.param(adaptive(), id="roce-adaptive"),
]


@pytest.mark.parametrize("transport", LOSSY)
def test_every_transport_repairs_random_losses(transport: MrcTransport | UetTransport | RoceTransport) -> None:
    topology = leaf_spine(hosts=16)
    links = np.arange(topology.links)
    lossy = faults(np.zeros(len(links)), FaultKind.LINK_LOSS, links, 10**9 // 500)
    results = run(topology, shifted(16, 300_000, by=5), transport, broken=lossy, until=50 * PS_PER_MS)
    assert results.links["lost"].sum() > 0
    assert (results.finished < NEVER).all()
    assert results.counters["retransmitted"] > 0


def test_a_full_queue_trims_and_the_trimmed_packets_come_again() -> None:
    results = run(leaf_spine(hosts=16), incast(12, 500_000), MrcTransport(evs=16))
    assert results.links["trimmed"].sum() > 100
    assert results.links["dropped"].sum() == 0
    assert results.counters["retransmitted"] == results.links["trimmed"].sum()
    assert (results.finished < NEVER).all()


def to_sender(transport: MrcTransport | UetTransport) -> MrcTransport | UetTransport:
    return dataclasses.replace(transport, network=dataclasses.replace(transport.network, trim_to_sender=True))


@pytest.mark.parametrize("transport", [MrcTransport(evs=16), UetTransport()], ids=lambda transport: transport.name)
def test_every_packet_that_is_trimmed_to_its_sender_is_sent_again_and_no_receiver_sees_one(
    transport: MrcTransport | UetTransport,
) -> None:
    results = run(leaf_spine(hosts=16), incast(12, 500_000), to_sender(transport))
    trimmed = results.links["trimmed"].sum()
    assert trimmed > 1000, "some packets are trimmed several times"
    heard = results.counters["nacks_received" if isinstance(transport, MrcTransport) else "nacks"]
    assert (trimmed, heard, results.counters["trimmed_arrivals"]) == (results.counters["retransmitted"], trimmed, 0)
    assert results.counters.get("inferred_losses", 0) == 0, "none is thought lost"
    assert (results.finished < NEVER).all()


def test_a_trimmed_packet_is_back_after_its_own_time_to_the_switch_and_that_of_its_headers_back() -> None:
    tapped = to_sender(MrcTransport(evs=16, capture=CaptureTap(nics=(1,), limit=1000)))
    world = prepare(leaf_spine(hosts=16), incast(12, 500_000), tapped)
    finish(world, tapped)
    assert isinstance(world.state, Mrc)
    taps = world.state.tapped
    at, outgoing = column(taps.seen, "at"), column(taps.seen, "outgoing")
    opcode, psn, repeat, trimmed = (
        taps.kept[:, COLUMN[name]] for name in ("opcode", "psn", "retransmitted", "trimmed")
    )
    back = np.flatnonzero((outgoing == 0) & (opcode <= Opcode.WRITE_ONLY_IMM) & (repeat == 0) & (at > 0))
    assert len(back) > 40
    assert (trimmed[back] == Trim.TRIMMED_LASTHOP).all(), "NIC 1 is in the receiver's rack"
    sent = {
        int(psn[row]): int(at[row])
        for row in np.flatnonzero((outgoing == 1) & (repeat == 0) & (opcode <= Opcode.WRITE_ONLY_IMM))
    }
    took = min(int(at[row]) - sent[int(psn[row])] for row in back)
    on_the_wire = (on_wire(MrcTransport()) + MrcTransport().network.trim_size) * 8 / 400e9
    assert took == pytest.approx((on_the_wire + 2 * 1000e-9) * PS_PER_S, abs=100)


def test_a_dead_path_costs_mrc_a_few_packets_and_then_nothing() -> None:
    topology = leaf_spine(hosts=16)
    uplink = topology.planes[0].fabric_up  # of the first T0
    broken = faults([5 * PS_PER_US], FaultKind.LINK_DOWN, [uplink], 1)
    healthy = run(topology, shifted(16, 4_000_000, by=4), MrcTransport(evs=16))
    results = run(topology, shifted(16, 4_000_000, by=4), MrcTransport(evs=16), broken=broken, until=50 * PS_PER_MS)
    assert (results.finished < NEVER).all()
    assert 0 < results.links["lost"].sum() < 400
    assert results.counters["ev_lost"] > 0
    assert healthy.counters["ev_lost"] == 0
    assert results.finished.max() < 3 * healthy.finished.max()


def test_a_partition_ends_in_failed_flows() -> None:
    topology = leaf_spine(hosts=8)
    broken = faults([PS_PER_US], FaultKind.LINK_DOWN, [topology.planes[0].host_down + 5], 1)
    impatient = MrcTransport(evs=8, timeout_us=20, linear_count=2, exponential_count=2)
    results = run(topology, traffic([0, 1], [5, 6], 100_000), impatient, broken=broken, until=100 * PS_PER_MS)
    assert results.failed[0] < NEVER
    assert results.counters["qp_errors"] == 1
    assert results.finished[0] == NEVER
    assert results.finished[1] < NEVER


def test_pause_keeps_an_incast_without_a_loss() -> None:
    results = run(leaf_spine(hosts=16), incast(12, 500_000), RoceTransport(dcqcn=False))
    assert results.links["dropped"].sum() == results.links["trimmed"].sum() == results.counters["retransmitted"] == 0
    assert (results.finished < NEVER).all()
    # Without pauses the last queue would hold what 12 senders bring; with them, 15 packets a sender and slack.
    assert results.links["peak"].max() < 12 * 40 * 4160 * 20


def test_a_lost_resume_does_not_stop_a_port_for_ever() -> None:
    topology = leaf_spine(hosts=16)
    both = np.arange(topology.links)
    at = np.concatenate([np.full(len(both), 12 * PS_PER_US), np.full(len(both), 300 * PS_PER_US)])
    blackout = faults(at, FaultKind.LINK_DOWN, np.concatenate([both, both]), np.repeat([1, 0], len(both)))
    eager = RoceTransport(dcqcn=False, timeout_us=200)
    results = run(topology, incast(12, 500_000), eager, broken=blackout, until=50 * PS_PER_MS)
    assert results.links["lost"].sum() > 100
    assert (results.finished < NEVER).all()


@pytest.mark.parametrize("is_told", [True, False])
def test_a_receiver_without_naks_leaves_holes_to_the_timeout(is_told: bool) -> None:
    """Nothing arrives for 2 us in the middle of a message: a NAK mends it in a round trip, a timer when it is over."""
    topology = leaf_spine(hosts=16)
    down = faults(np.array([20, 22]) * PS_PER_US, FaultKind.LINK_DOWN, 1, [1, 0])
    transport = RoceTransport(dcqcn=False, timeout_us=500, reorder=0 if is_told else 1 << 20)
    results = run(topology, incast(1, 4_000_000), transport, broken=down, until=50 * PS_PER_MS)
    assert results.links["lost"].sum() > 0
    assert (results.counters["naks"] > 0) == is_told
    assert (results.finished[0] > 500 * PS_PER_US) == (not is_told)


def test_dcqcn_slows_senders_down_and_lets_them_recover() -> None:
    results = run(leaf_spine(hosts=16), incast(8, 4_000_000), RoceTransport(), until=100 * PS_PER_MS)
    assert results.counters["cnps"] > 8
    assert (results.finished < NEVER).all()


def test_both_kinds_of_port_agree_where_both_apply() -> None:
    """Nothing paused, dropped or in priority: the queue without events and the real one give the same times."""
    marks = {"ecn_low_bdp": 0.05, "ecn_high_bdp": 0.0501, "routing": Routing.HASH}
    quick = NetworkSettings(trimming=Trimming.NEVER, buffer_bdp=0, **marks)  # type: ignore[arg-type]
    real = NetworkSettings(trimming=Trimming.NEVER, buffer_bdp=0, lossless=True, pause_packets=1 << 16, **marks)  # type: ignore[arg-type]
    flows = traffic(np.arange(1, 13), np.arange(12) % 3 + 13, 150_000, np.arange(12) * 700_000)
    a, b = (run(leaf_spine(hosts=16), flows, Blast(settings), seed=3) for settings in (quick, real))
    assert np.array_equal(a.received, b.received)
    assert np.array_equal(a.links["arrived"], b.links["arrived"])
    assert np.array_equal(a.links["marked"], b.links["marked"])
    assert a.links["marked"].sum() > 50


def test_a_release_lets_the_next_message_go_when_its_cause_is_complete() -> None:
    topology = leaf_spine()
    chain = traffic(
        [0, 9, 3], [9, 3, 0], 8192, releases=([0, 1], [1, 2], [2 * PS_PER_US, 0], [int(CompletionSide.RECEIVER)] * 2)
    )
    results = run(topology, chain, Blast())
    assert results.started[1] == results.received[0] + 2 * PS_PER_US
    assert results.started[2] == results.received[1]


def test_a_release_on_another_nic_takes_the_shortest_link() -> None:
    crossed = traffic([0, 5], [9, 6], 8192, releases=([0], [1], [0], [int(CompletionSide.RECEIVER)]))
    results = run(leaf_spine(), crossed, Blast())
    assert results.started[1] == results.received[0] + PS_PER_US
