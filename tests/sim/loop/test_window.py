"""The loop against what can be reckoned by hand: closed forms, conservation, Little's law, twins."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from harness.simulated_runs import run
from openmrc.core.rows import column
from openmrc.fabric.model.topology import Topology
from openmrc.sim.loop import window
from openmrc.sim.loop.fault_events import FaultKind, faults
from openmrc.sim.loop.run import World, prepare
from openmrc.sim.network import egress
from openmrc.sim.network.build import NetworkSettings
from openmrc.sim.network.network_tables import Network, Trimming
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.sim.workloads.traffic import CompletionSide, traffic
from openmrc.units import NEVER, PS_PER_US
from tests.sim.small import Blast, incast, leaf_spine, same, shifted, three_tiers

HEADER = 64  # of datagrams


def wire_ps(size: int, gbps: int) -> int:
    return size * 8000 // gbps


def one_way(topology: Topology, hops: list[int]) -> int:
    delays = topology.delays()
    return int(sum(delays[link] for link in hops))


def alone(size: int, gbps: int, links: int, delay: int, header: int = HEADER) -> int:
    """Return when the last byte of a lone message arrives: the first packet's way, then all of them in a row."""
    full, rest = divmod(size, 4096)
    packets = [4096 + header] * full + ([rest + header] if rest else [])
    return (links - 1) * wire_ps(packets[0], gbps) + sum(wire_ps(packet, gbps) for packet in packets) + delay


@pytest.mark.parametrize("size", [1, 4096, 100_000, 2_000_000])
def test_a_lone_flow_takes_the_closed_form(size: int) -> None:
    topology = leaf_spine()
    results = run(topology, traffic(0, 9, size), Blast())
    assert results.received[0] == alone(size, 400, 4, 4 * PS_PER_US)


def test_a_lone_flow_below_one_switch_takes_the_closed_form() -> None:
    results = run(leaf_spine(), traffic(0, 1, 50_000), Blast())
    assert results.received[0] == alone(50_000, 400, 2, 2 * PS_PER_US)


def test_switch_latency_and_three_tiers_add_up() -> None:
    topology = three_tiers()
    results = run(topology, traffic(0, 15, 50_000), Blast())
    delay = 2 * 300_000 + 4 * 500_000 + 5 * 250_000
    assert results.received[0] == alone(50_000, 100, 6, delay)


def test_a_lone_mrc_flow_takes_the_closed_form_and_its_acknowledgement_the_way_back() -> None:
    size = 1_000_000
    watched = traffic([0, 9], [9, 9], [size, 0], releases=([0], [1], [0], [int(CompletionSide.RECEIVER)]))
    transport = MrcTransport(evs=8)
    results = run(leaf_spine(), watched, transport)
    answer = transport.network.control_size
    there = alone(size, 400, 4, 4 * PS_PER_US, transport.network.header)
    there += wire_ps(answer, 400)  # the answer to the responder's EV probe goes ahead of the last packets
    assert results.received[0] == there
    sack, back = wire_ps(answer, 400), 4 * (wire_ps(answer, 400) + PS_PER_US)  # the transport ACK follows a SACK
    assert results.finished[0] == there + sack + back


def test_every_packet_is_accounted_for_at_every_window() -> None:
    settings = NetworkSettings(
        trimming=Trimming.EITHER, buffer_bdp=0.2, last_hop_buffer_bdp=0.2, control_buffer_bdp=0.002
    )
    broken = faults([5 * PS_PER_US] * 2, FaultKind.LINK_LOSS, [3, 16], 300_000_000)
    world = prepare(leaf_spine(hosts=16), incast(12, 300_000), Blast(settings), broken, seed=3)
    windows: list[int] = []

    def conserve() -> None:
        network = world.network
        sent = int(column(network.shards, "allocated").sum())
        over = int(column(network.shards, "released").sum())
        delivered = int(column(network.wires, "arrived")[_to_nics(world)].sum())
        dropped = int(column(network.ports, "dropped").sum())
        lost = int(column(network.wires, "lost").sum())
        assert over == delivered + dropped + lost
        assert sent - over == on_the_way(world)
        windows.append(sent - over)

    world.run(NEVER, conserve)
    assert len(windows) > 12
    assert max(windows) > 100
    assert windows[-1] == 0
    assert column(world.network.ports, "dropped").sum() > 0
    assert column(world.network.ports, "trimmed").sum() > 0
    assert column(world.network.wires, "lost").sum() > 0


def _to_nics(world: World) -> np.ndarray:
    return column(world.network.ports, "last_hop") == 1


def on_the_way(world: World) -> int:
    """Count the packets in all lists by walking them."""
    network = world.network
    heads = np.concatenate([column(network.channels, "head"), column(network.outgoing, "head")])
    following = column(network.hops, "next")
    count = 0
    for head in heads[heads >= 0]:
        hop = int(head)
        while hop >= 0:
            count += 1
            hop = int(following[hop])
    return count


def test_one_thread_and_two_and_three_give_the_same_bits() -> None:
    topology = leaf_spine(hosts=32, down=4, planes=2, gbps=100)
    runs = [run(topology, shifted(32, 200_000, by=7), MrcTransport(evs=16), seed=5, threads=n) for n in (1, 2, 3)]
    for other in runs[1:]:
        assert np.array_equal(runs[0].finished, other.finished)
        assert runs[0].counters == other.counters
        for name, values in runs[0].links.items():
            assert np.array_equal(values, other.links[name]), name


def test_compiled_and_interpreted_windows_leave_the_same_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = leaf_spine(hosts=8, down=4)
    settings = NetworkSettings(buffer_bdp=0.1, last_hop_buffer_bdp=0.1, ecn_low_bdp=0.02, ecn_high_bdp=0.08)

    def final() -> World:
        world = prepare(topology, incast(5, 60_000), MrcTransport(evs=8, network=settings), seed=2)
        world.run(NEVER, lambda: None)
        return world

    compiled = final()
    for name in ("run_window", "deliver_signals", "level"):
        interpreted: Callable[..., object] = getattr(window, name).py_func
        monkeypatch.setattr(window, name, interpreted)
    other = final()
    assert column(compiled.network.ports, "trimmed").sum() > 0
    for name in compiled.network._fields:
        assert same(getattr(compiled.network, name), getattr(other.network, name)), name
    for name in compiled.state.engine._fields:
        assert same(getattr(compiled.state.engine, name), getattr(other.state.engine, name)), name


def test_a_dying_link_loses_exactly_what_was_queued_and_in_flight() -> None:
    topology = leaf_spine()
    down = topology.planes[0].host_down + 9  # the last link to the receiver
    dies = int(20.5 * PS_PER_US)
    alive = run(topology, traffic([0, 4], 9, 500_000), Blast())
    broken = run(topology, traffic([0, 4], 9, 500_000), Blast(), broken=faults([dies], FaultKind.LINK_DOWN, [down], 1))
    packet = wire_ps(4096 + HEADER, 400)
    first = 4 * packet + 4 * PS_PER_US  # when the first packet is in
    arrived = 1 + (dies - first) // packet  # two senders keep the link busy from then on
    assert broken.links["arrived"][down] == arrived
    assert broken.links["lost"][down] == alive.links["arrived"][down] - arrived
    assert broken.links["lost"].sum() == broken.links["lost"][down]


def test_a_link_that_comes_back_carries_what_is_sent_afterwards() -> None:
    topology = leaf_spine()
    down = topology.planes[0].host_down + 9
    flaps = faults([10 * PS_PER_US, 12 * PS_PER_US], FaultKind.LINK_DOWN, down, [1, 0])
    results = run(topology, traffic(0, 9, 1_000_000), Blast(), broken=flaps)
    packet = wire_ps(4096 + HEADER, 400)
    # Lost: what the port sent from one propagation delay before the link died until it came back.
    assert abs(results.links["lost"][down] - 3 * PS_PER_US // packet) <= 1
    assert results.links["arrived"][down] + results.links["lost"][down] == 245


def test_a_slower_link_slows_the_flow() -> None:
    topology = leaf_spine()
    down = topology.planes[0].host_down + 9
    slow = faults([0], FaultKind.LINK_RATE, [down], 100 * 10**9)
    results = run(topology, traffic(0, 9, 409_600), Blast(), broken=slow)
    packet = wire_ps(4096 + HEADER, 400)
    assert results.received[0] == 3 * packet + 100 * 4 * packet + 4 * PS_PER_US


def test_littles_law_holds_on_a_busy_queue() -> None:
    """Mean backlog = arrival rate x mean time in the queue: one seen by the clock, the other by the packets."""
    topology = leaf_spine(hosts=8, down=4, latency_ns=100)
    generator = np.random.default_rng(4)
    count, span = 6_000, 600 * PS_PER_US
    start = np.sort(generator.integers(0, span, count))
    source = generator.integers(1, 4, count)  # all below the receiver's own switch: one queue where they meet
    world = prepare(topology, traffic(source, 0, 4096, start), Blast(), seed=1)
    packet, link = wire_ps(4160, 400), topology.planes[0].host_down
    port, seen, step = world.network.ports[link], list[int](), 250_000
    for now in range(step, span + 100 * PS_PER_US, step):
        world.run(now, lambda: None)
        seen.append(max(0, port.busy_until - now))
    received = column(world.network.flows, "received_at")
    entered = _entered(start, source, packet)
    left = received - 100_000
    assert received.max() < now
    # Unfinished work in the queue counts half of the packet in service: L - rho / 2.
    mean_packets, busy = (left - entered).sum() / now, count * packet / now
    assert np.mean(seen) / packet == pytest.approx(mean_packets - busy / 2, rel=0.05)


def test_littles_law_holds_on_every_queue_of_a_long_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packets at a port, counted in the lists at fixed times, against arrivals x time, as each packet has it."""
    topology = leaf_spine(hosts=8, down=4, gbps=100, latency_ns=200)
    generator = np.random.default_rng(7)
    count, span, step = 2_000, 90 * PS_PER_US, 100_000
    source = generator.integers(0, 8, count)
    work = traffic(source, (source + generator.integers(1, 8, count)) % 8, 4096, generator.integers(0, span, count))
    stays, packets = np.zeros(topology.links), np.zeros(topology.links, np.int64)
    forward = egress.send

    def send(network: Network, shard: int, now: int, link: int, hop: int, departs: int) -> None:
        stays[link] += departs - now
        packets[link] += 1
        forward(network, shard, now, link, hop, departs)

    monkeypatch.setattr(egress, "send", send)
    monkeypatch.setattr(window, "run_window", window.run_window.py_func)
    world = prepare(topology, work, Blast(), seed=1)
    present, now = np.zeros(topology.links), 0
    while now < span or on_the_way(world):
        now += step
        world.run(now, lambda: None)
        present += at_ports(world, now)
    assert packets.min() > 50  # no link was idle
    seen, summary = present * step / now, stays / now
    assert seen == pytest.approx(summary, rel=0.05, abs=0.005)
    assert summary.max() > 1


def at_ports(world: World, now: int) -> np.ndarray:
    """Count, by link, the packets that wait at its port or are leaving it."""
    network = world.network
    counts = np.zeros(len(network.ports))
    hops, delay = network.hops, column(network.ports, "delay")
    lists = [(column(network.channels, "head"), 2), (column(network.outgoing, "head"), 4)]
    for heads, per_link in lists:
        for place in np.flatnonzero(heads >= 0):
            hop, link = int(heads[place]), int(place) // per_link
            while hop >= 0:
                counts[link] += hops[hop].enqueued <= now < hops[hop].arrives - delay[link]
                hop = hops[hop].next
    return counts


def _entered(start: np.ndarray, source: np.ndarray, packet: int) -> np.ndarray:
    """Return when each packet came to the switch: its NIC sends its packets one after the other."""
    entered = np.empty_like(start)
    for nic in np.unique(source):
        free = 0
        for row in np.flatnonzero(source == nic):
            free = max(free, int(start[row])) + packet
            entered[row] = free + 100_000
    return entered
