"""What every fault word does to packets, on one direction of a link as well as on all."""

from __future__ import annotations

import numpy as np
import pytest

from harness.simulated_runs import run
from openmrc.base.faults import OVERTAKEN, WORDS, Schedule
from openmrc.fabric.model.topology import Topology
from openmrc.sim.loop.fault_events import Faults
from openmrc.sim.loop.run import LoopTransport, Results, World
from openmrc.sim.network.build import NetworkSettings
from openmrc.sim.network.network_tables import Trimming
from openmrc.sim.scenario.timeline import columns
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.sim.transports.roce.tables import Recovery
from openmrc.sim.transports.roce.transport import RoceTransport, adaptive
from openmrc.sim.transports.uet.transport import UetTransport
from openmrc.sim.workloads.traffic import traffic
from openmrc.units import NEVER, PS_PER_MS, PS_PER_US
from tests.sim.small import Blast, leaf_spine, shifted

PACKETS = 50
SIZE = PACKETS * 4096


def broken(topology: Topology, text: str, seed: int = 1) -> Faults:
    return columns(topology, Schedule.parse(text), seed)


def one_way(text: str = "", on: str = "h0>p0-t0-00", at: str = "0s", transport: LoopTransport | None = None) -> Results:
    """One message from h0 to h1, under the same T0, with a fault on one direction of h0's cable."""
    topology = leaf_spine(hosts=4, down=2)
    faults = broken(topology, f"at: {at}, {text}, on: {on}") if text else None
    return run(topology, traffic([0], [1], SIZE), transport or Blast(), broken=faults, until=40 * PS_PER_MS)


def test_delay_moves_every_packet_by_as_much() -> None:
    plain, late = one_way(), one_way("delay: 30us")
    assert late.received[0] == plain.received[0] + 30 * PS_PER_US
    assert late.links["lost"].sum() == 0


def test_delay_on_one_direction_leaves_the_other_alone() -> None:
    plain, other = one_way(), one_way("delay: 30us", on="p0-t0-00>h0")
    assert other.received[0] == plain.received[0]


def test_delay_that_ends_lets_later_packets_overtake() -> None:
    """Packets of the first 2 us wait 500 us, the rest does not: all arrive, the message is whole when the last has."""
    late = one_way("for: 2us, delay: 500us")
    assert 500 * PS_PER_US < late.received[0] < 520 * PS_PER_US
    assert late.links["arrived"][0] == PACKETS


def test_jitter_spreads_arrivals_between_nothing_and_its_length() -> None:
    plain, jittered = one_way(), one_way("jitter: 100us")
    added = (jittered.received[0] - plain.received[0]) / PS_PER_US
    assert 50 < added <= 100


def test_delay_and_jitter_add_up() -> None:
    plain, both = one_way(), one_way("delay: 200us, jitter: 100us")
    added = (both.received[0] - plain.received[0]) / PS_PER_US
    assert 250 < added <= 300


def test_reordered_packets_are_late_by_a_millisecond() -> None:
    plain, reordered = one_way(), one_way("reorder: 100%")
    assert reordered.received[0] == plain.received[0] + OVERTAKEN
    some = one_way("reorder: 20%")
    assert plain.received[0] + OVERTAKEN // 2 < some.received[0] <= plain.received[0] + OVERTAKEN


def test_duplicated_packets_arrive_twice_and_fill_queues_like_others() -> None:
    doubled = one_way("duplicate: 100%")
    topology = leaf_spine(hosts=4, down=2)
    down = int(topology.planes[0].host_down + 1)
    assert doubled.links["arrived"][down] == 2 * PACKETS
    assert doubled.links["data_packets"][down] == 2 * PACKETS
    some = one_way("duplicate: 30%")
    assert PACKETS < some.links["arrived"][down] < 2 * PACKETS


def test_trimmed_packets_are_headers_and_those_that_may_not_be_trimmed_are_lost() -> None:
    topology = leaf_spine(hosts=4, down=2)
    up = int(topology.planes[0].host_up)
    cut = one_way("trim: 100%")
    assert cut.received[0] == NEVER
    assert cut.links["lost"].sum() == 0
    assert cut.links["control_packets"].sum() == PACKETS, "headers go on by the control queue"
    rigid = one_way("trim: 100%", transport=RoceTransport(timeout_us=20, retries=1))
    assert rigid.links["lost"][up] > 0
    assert rigid.failed[0] < NEVER


def test_loss_and_bit_errors_strike_one_direction() -> None:
    topology = leaf_spine(hosts=4, down=2)
    for text in ("loss: 40%", "corruption: 40%", "bit_errors: 1e-5"):
        lossy = one_way(text)
        up = int(topology.planes[0].host_up)
        assert 0.2 * PACKETS < lossy.links["lost"][up] < 0.6 * PACKETS, text
        assert lossy.links["lost"].sum() == lossy.links["lost"][up]
        assert one_way(text, on="p0-t0-00>h0").links["lost"].sum() == 0


def test_bit_errors_strike_short_packets_less() -> None:
    """1e-5 a bit: 33 % of packets of 4,160 bytes, 0.5 % of 64: acknowledgements hardly suffer."""
    topology = leaf_spine(hosts=4, down=2)
    both = one_way("bit_errors: 1e-5", on="h0<>p0-t0-00", transport=MrcTransport(evs=4))
    data, control = topology.planes[0].host_up, topology.planes[0].host_down
    assert both.links["lost"][data] > 10
    assert both.links["lost"][control] <= 2
    assert both.finished[0] < NEVER


@pytest.mark.parametrize("text", ["mtu: 1000", "data_loss: 100%"])
def test_what_only_data_meets_lets_control_packets_pass(text: str) -> None:
    topology = leaf_spine(hosts=4, down=2)
    up, down = int(topology.planes[0].host_up), int(topology.planes[0].host_down)
    stuck = one_way(text, transport=MrcTransport(evs=4))
    assert stuck.links["lost"][up] > 10
    assert stuck.received[0] == NEVER
    back = one_way(text, on="p0-t0-00>h0", transport=MrcTransport(evs=4))
    assert back.links["lost"][down] == 0, "only acknowledgements come back"
    assert back.finished[0] < NEVER


def test_an_mtu_lets_shorter_packets_pass() -> None:
    assert one_way("mtu: 4159").received[0] == NEVER
    assert one_way("mtu: 4160").received[0] < NEVER


def test_a_slow_direction_takes_as_long_as_its_rate_says() -> None:
    plain, slow = one_way(), one_way("rate: 100Gbps")
    bits = PACKETS * (4096 + 64) * 8
    assert (slow.received[0] - plain.received[0]) / 1e12 == pytest.approx(bits / 100e9 - bits / 400e9, rel=0.03)
    assert one_way("rate: 100Gbps", on="p0-t0-00>h0").received[0] == plain.received[0]


def test_a_rate_takes_effect_when_it_is_set_and_ends() -> None:
    plain, slow = one_way(), one_way("for: 2us, rate: 40Gbps")
    assert plain.received[0] < slow.received[0] < one_way("rate: 40Gbps").received[0]


def test_a_link_that_goes_down_takes_what_is_late_with_it() -> None:
    topology = leaf_spine(hosts=4, down=2)
    text = "delay: 300us, on: h0>p0-t0-00; at: 100us, for: 50us, down: h0>p0-t0-00"
    results = run(topology, traffic([0], [1], SIZE), Blast(), broken=broken(topology, text), until=5 * PS_PER_MS)
    assert results.links["lost"].sum() == PACKETS
    assert results.received[0] == NEVER


EVERY_WORD = {
    "delay": "3us",
    "jitter": "3us",
    "loss": "1%",
    "corruption": "1%",
    "duplicate": "2%",
    "reorder": "1%",
    "trim": "2%",
    "rate": "200Gbps",
    "bit_errors": "3e-7",
    "data_loss": "1%",
    "mtu": "9KB",
}
TRANSPORTS = [
    pytest.param(MrcTransport(evs=16), id="mrc"),
    pytest.param(UetTransport(), id="uet"),
    pytest.param(RoceTransport(timeout_us=100), id="roce-go-back-n"),
    pytest.param(RoceTransport(timeout_us=100, recovery=Recovery.SELECTIVE, qps=4), id="roce-selective"),
    pytest.param(adaptive(), id="roce-adaptive"),
]


def test_every_word_is_known_here() -> None:
    assert set(EVERY_WORD) == set(WORDS)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_every_transport_gets_through_every_word_at_once(transport: LoopTransport) -> None:
    topology = leaf_spine(hosts=8, down=4)
    text = ", ".join(f"{word}: {value}" for word, value in EVERY_WORD.items())
    results = run(topology, shifted(8, 200_000, by=5), transport, broken=broken(topology, text), until=400 * PS_PER_MS)
    assert (results.finished < NEVER).all()
    assert results.links["lost"].sum() > 0


@pytest.mark.parametrize("word", sorted(EVERY_WORD))
def test_the_same_seed_gives_the_same_run_under_every_word(word: str) -> None:
    topology = leaf_spine(hosts=8, down=4)

    def once(threads: int) -> tuple[bytes, int]:
        summary = broken(topology, f"{word}: {EVERY_WORD[word]}")
        results = run(
            topology, shifted(8, 60_000, by=5), Blast(), broken=summary, threads=threads, until=10 * PS_PER_MS
        )
        return results.received.tobytes(), int(results.links["arrived"].sum())

    assert once(1) == once(2)


def test_no_packet_row_is_lost_whatever_happens() -> None:
    """Rows given out and taken back are equal in the end: nothing is forgotten in a list of late packets."""
    topology = leaf_spine(hosts=8, down=4)
    text = "duplicate: 50%, reorder: 20%, jitter: 50us, delay: 10us, trim: 10%, loss: 10%"
    settings = NetworkSettings(buffer_bdp=1, trimming=Trimming.EITHER)
    last: list[tuple[int, int]] = []

    def look(world: World) -> None:
        shards = world.network.shards
        last[:] = [tuple(int(np.asarray(shards)[name].sum()) for name in ("allocated", "released"))]  # type: ignore[list-item]

    transport = Blast(settings)
    run(topology, shifted(8, 300_000, by=3), transport, broken=broken(topology, text), observe=look)
    assert last[0][0] == last[0][1] > 0
