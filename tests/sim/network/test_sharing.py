"""Two classes of data share a port by weight, and no bit of its rate is lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from harness.simulated_runs import run
from openmrc.core.rows import column
from openmrc.errors import ConfigError
from openmrc.sim.loop.run import Results
from openmrc.sim.network import sharing
from openmrc.sim.network.build import NetworkSettings, build
from openmrc.sim.network.network_tables import Network, Service, Trimming
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.sim.transports.roce.transport import RoceTransport
from openmrc.sim.transports.uet.transport import UetTransport
from openmrc.sim.workloads.traffic import traffic
from openmrc.units import PS_PER_US
from tests.sim.small import Blast, leaf_spine

PACKET = 1_000  # ps on the line
EACH = 4_000_000  # bytes of a flow: 80 us alone at 400 Gb/s


def port(share: float) -> Network:
    network = build(leaf_spine(hosts=4, down=4), NetworkSettings(second_class_share=share), hops=8, services=3)
    column(network.class_shares, "share")[:] = share
    return network


def departures(network: Network, now: int, service: int, count: int) -> list[int]:
    times = []
    for _ in range(count):
        sharing.waiting(network, 0, now, service)
        times.append(sharing.add(network, 0, now, service, PACKET))
    return times


@pytest.mark.parametrize("service", [Service.DATA, Service.SECOND])
def test_a_class_alone_has_the_whole_line(service: int) -> None:
    assert departures(port(0.25), 0, service, 4) == [1000, 2000, 3000, 4000]


def test_while_both_wait_each_has_its_share() -> None:
    network = port(0.25)
    departures(network, 0, Service.DATA, 100)
    assert departures(network, 0, Service.SECOND, 3) == [4000, 8000, 12000]
    assert sharing.waiting(network, 0, 8000, Service.DATA) == 94_000
    assert sharing.waiting(network, 0, 8000, Service.SECOND) == 1000


def test_a_share_of_0_goes_last() -> None:
    network = port(0.0)
    departures(network, 0, Service.DATA, 2)
    assert departures(network, 0, Service.SECOND, 1) == [3000]
    assert departures(network, 500, Service.DATA, 1) == [3000]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_the_line_is_never_idle_while_something_waits(share: float) -> None:
    """Random arrivals of both classes: the work that is left is that of one queue at the full rate."""
    network, draw = port(share), np.random.default_rng(3)
    now, left, last = 0, 0, {Service.DATA: 0, Service.SECOND: 0}
    for _ in range(400):
        step, service = int(draw.integers(0, 2500)), Service(int(draw.integers(1, 3)))
        now, left = now + step, max(0, left - step)
        sharing.waiting(network, 0, now, service)
        departs = sharing.add(network, 0, now, service, PACKET)
        left += PACKET
        assert network.ports[0].busy_until - now == pytest.approx(left, abs=4)
        assert now + PACKET <= departs <= now + left + 4
        assert departs >= last[service], "in order"
        last[service] = departs


def test_what_a_control_packet_takes_is_served_later() -> None:
    network = port(0.25)
    departures(network, 0, Service.DATA, 2)
    sharing.hold(network, 0, 500)
    assert departures(network, 0, Service.DATA, 1) == [3500]


def both_to_one(transport: MrcTransport | UetTransport, share: float, second: bool) -> tuple[float, float]:
    """Return when a flow of the job and four storage flows to the same NIC have finished (us)."""
    flows = traffic(
        [1, 2, 3, 5, 6], 0, EACH, connection=[0, 1, 1, 1, 1], second_class=np.array([0, 1, 1, 1, 1]) * second
    )
    chosen = replace(transport, network=replace(transport.network, second_class_share=share))
    done: Results = run(leaf_spine(hosts=8, down=4), flows, chosen)
    times = done.finished / PS_PER_US
    return float(times[0]), float(times[1:].max())


@pytest.mark.parametrize("transport", [MrcTransport(evs=16), UetTransport()], ids=["mrc", "uet"])
def test_a_job_beside_storage_keeps_its_share_of_the_last_link(transport: MrcTransport | UetTransport) -> None:
    alone = EACH * 8 / 400e3
    mixed, _ = both_to_one(transport, 0.2, second=False)
    job, storage = both_to_one(transport, 0.2, second=True)
    assert mixed > 2.5 * alone, "one class: five flows share the link"
    assert job < 1.5 * alone, "four fifths of it"
    assert storage < 5.5 * alone, "what the job leaves is not lost"


def test_the_second_class_is_refused_on_lossless_ports() -> None:
    flows = traffic([0, 1], [2, 3], 1000, second_class=[0, 1])
    with pytest.raises(ConfigError, match="second_class: the ports of this transport are lossless"):
        run(leaf_spine(hosts=4, down=4), flows, RoceTransport())


def test_packets_are_accounted_for_and_two_threads_give_the_same_bits() -> None:
    nic = np.arange(16)
    flows = traffic(np.tile(nic, 2), np.concatenate([(nic + 4) % 16, (nic + 5) % 16]), 200_000,
                    connection=np.repeat([0, 1], 16), second_class=np.repeat([0, 1], 16))  # fmt: skip
    one, two = (run(leaf_spine(hosts=16), flows, MrcTransport(evs=16), threads=threads) for threads in (1, 2))
    assert (one.finished == two.finished).all()
    blast = Blast(NetworkSettings(trimming=Trimming.NEVER, buffer_bdp=0))
    assert run(leaf_spine(hosts=16), flows, blast).counters["bytes_arrived"] == 32 * 200_000
