"""Words become faults of links and ports, each exactly once."""

import numpy as np
import pytest

from openmrc.base.faults import Schedule
from openmrc.errors import ConfigError
from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import Fabric, Hosts, Plane, Tier
from openmrc.fabric.model.naming import links_at
from openmrc.fabric.model.topology import Topology
from openmrc.sim.loop.fault_events import FaultKind, Faults
from openmrc.sim.scenario.matrix_line import FailureLine
from openmrc.sim.scenario.timeline import columns, events
from openmrc.units import PS_PER_US


@pytest.fixture(scope="module")
def topology() -> Topology:
    plane = Plane(count=2, host_gbps=100, t0=Tier(down=4, up=4), t1=Tier(down=4))
    return build(Fabric(name="sixteen", hosts=Hosts(count=16), planes=(plane,)))


def faults_of(topology: Topology, terms: str, seed: int = 1) -> Faults:
    return columns(topology, Schedule.parse(terms), seed)


def of_kind(faults: Faults, kind: FaultKind, value: int = 1) -> list[tuple[int, int]]:
    mine = (faults.kind == kind) & (faults.value == value)
    return list(zip(faults.at[mine].tolist(), faults.subject[mine].tolist(), strict=True))


def names(topology: Topology, where: str, seed: int = 0) -> list[str]:
    return [topology.link_name(int(link)) for link in links_at(topology, where, seed)]


def test_places_are_links(topology: Topology) -> None:
    assert len(links_at(topology, "all")) == topology.links == 128
    assert len(links_at(topology, "plane 1")) == 64
    assert names(topology, "h3 port 1") == ["h3>p1-t0-00", "p1-t0-00>h3"]
    assert names(topology, "p0-t0-00>p0-t1-01") == ["p0-t0-00>p0-t1-01"]
    assert names(topology, "p0-t0-00<>p0-t1-01") == ["p0-t0-00>p0-t1-01", "p0-t1-01>p0-t0-00"]
    assert names(topology, "2 links of p0-t0-01")[:2] == ["p0-t0-01>p0-t1-00", "p0-t0-01>p0-t1-01"]
    assert names(topology, "1 host links of plane 1") == ["h0>p1-t0-00", "p1-t0-00>h0"]
    assert len(links_at(topology, "p1-t1-02")) == 8


def test_drawn_links_are_distinct_and_the_seed_s(topology: Topology) -> None:
    drawn = names(topology, "5 random links of plane 1", 3)
    assert len(set(drawn)) == 10
    assert drawn == names(topology, "5 random links of plane 1", 3) != names(topology, "5 random links of plane 1", 4)


@pytest.mark.parametrize(
    ("terms", "says"),
    [
        ("down: plane 2", "planes are 0..1"),
        ("down: h99", "NICs are h0 to h15"),
        ("down: h1 port 7", "one of its ports, 0..1"),
        ("down: p0-t0-00>p1-t1-00", "no link joins"),
        ("down: 17 links of plane 0", "1..16"),
        ("delay: often", "a time such as"),
        ("loss: 130%", "not between"),
        ("bit_errors: often", "not a ratio"),
        ("down: plane 0, every: 3s", "stand together"),
        ("down: plane 0, for: 3s, every: 2s, times: 4", "not longer than"),
    ],
)
def test_wrong_words_are_refused_with_the_step(topology: Topology, terms: str, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        faults_of(topology, terms)
    assert says in str(raised.value)
    assert "step 1" in str(raised.value)


def test_a_plane_takes_all_its_links_and_ports_down_and_up(topology: Topology) -> None:
    faults = faults_of(topology, "at: 2us, for: 3us, down: plane 1")
    assert len(of_kind(faults, FaultKind.LINK_DOWN)) == len(of_kind(faults, FaultKind.LINK_DOWN, 0)) == 64
    assert of_kind(faults, FaultKind.PORT_DOWN) == [(2_000_000, nic * 64 + 1) for nic in range(16)]
    assert of_kind(faults, FaultKind.PORT_DOWN, 0) == [(5_000_000, nic * 64 + 1) for nic in range(16)]


def test_a_dead_t0_takes_the_ports_of_its_nics_with_it(topology: Topology) -> None:
    faults = faults_of(topology, "down: p0-t0-01")
    assert [subject for _, subject in of_kind(faults, FaultKind.PORT_DOWN)] == [nic * 64 for nic in range(4, 8)]


def test_a_t1_reboot_tells_no_nic(topology: Topology) -> None:
    faults = faults_of(topology, "at: 1us, for: 1us, down: p0-t1-01")
    assert len(of_kind(faults, FaultKind.LINK_DOWN)) == 8
    assert not of_kind(faults, FaultKind.PORT_DOWN)


def test_one_direction_down_tells_nobody_until_the_other_follows(topology: Topology) -> None:
    assert not of_kind(faults_of(topology, "down: h3>p0-t0-00"), FaultKind.PORT_DOWN)
    both = faults_of(topology, "down: h3>p0-t0-00; at: 1us, down: p0-t0-00>h3")
    assert of_kind(both, FaultKind.PORT_DOWN) == [(1_000_000, 3 * 64)]


def test_what_is_down_already_is_not_taken_down_again(topology: Topology) -> None:
    faults = faults_of(topology, "down: h3 port 0; at: 1us, down: plane 0; at: 2us, up: plane 0")
    downs, ups = of_kind(faults, FaultKind.LINK_DOWN), of_kind(faults, FaultKind.LINK_DOWN, 0)
    assert len({link for _, link in downs}) == len(downs) == len(ups) == 64
    assert len(of_kind(faults, FaultKind.PORT_DOWN)) == 16


def test_a_flap_repeats(topology: Topology) -> None:
    faults = faults_of(topology, "at: 1us, for: 1us, every: 3us, times: 3, down: p0-t0-00<>p0-t1-01")
    downs = [at for at, _ in of_kind(faults, FaultKind.LINK_DOWN)]
    assert downs == [1_000_000] * 2 + [4_000_000] * 2 + [7_000_000] * 2


def test_loss_and_corruption_add_up_to_one_loss(topology: Topology) -> None:
    faults = faults_of(topology, "loss: 10%, corruption: 50%, on: h3>p0-t0-00")
    lossy = faults.kind == FaultKind.LINK_LOSS
    assert faults.value[lossy][-1] == 550_000_000


def test_a_rate_comes_back_and_one_above_the_links_own_is_refused(topology: Topology) -> None:
    faults = faults_of(topology, "rate: 25Gbps, on: h3 port 0, for: 2us")
    assert faults.value.tolist() == [25 * 10**9] * 2 + [100 * 10**9] * 2
    with pytest.raises(ConfigError, match="these links have 100 Gb/s"):
        faults_of(topology, "rate: 900Gbps, on: h4 port 0")


def test_a_flap_does_not_revive_what_another_fault_put_down_for_good(topology: Topology) -> None:
    flaps = "at: 1us, for: 2us, every: 10us, times: 3, down: plane 0"
    faults = faults_of(topology, f"at: 5us, down: h3 port 0; {flaps}")
    cable = set(links_at(topology, "h3 port 0").tolist())
    ups = [(at, link) for at, link in of_kind(faults, FaultKind.LINK_DOWN, 0) if link in cable]
    assert {at for at, _ in ups} == {3 * PS_PER_US}, "after the first flap only, which was before"
    assert of_kind(faults, FaultKind.PORT_DOWN, 0).count((13 * PS_PER_US, 3 * 64)) == 0


def test_overlapping_spells_uncover_each_other_and_a_lasting_word_ends_them(topology: Topology) -> None:
    terms = "loss: 1%, on: h3>p0-t0-00, for: 10us; at: 2us, loss: 5%, on: h3>p0-t0-00, for: 3us"
    faults = faults_of(topology, terms)
    assert (faults.at // PS_PER_US).tolist() == [0, 2, 5, 10]
    assert faults.value.tolist() == [10**7, 5 * 10**7, 10**7, 0]
    faults = faults_of(topology, f"{terms}; at: 4us, clear: h3>p0-t0-00")
    assert (faults.at // PS_PER_US).tolist() == [0, 2, 4], "nothing comes back after it was cleared"


def test_a_share_of_a_bare_one_is_refused_as_ambiguous(topology: Topology) -> None:
    with pytest.raises(ConfigError, match="100%, or 1%"):
        faults_of(topology, "loss: 1, on: plane 0")


def test_bit_errors_are_counted_in_parts_of_10_to_the_18(topology: Topology) -> None:
    faults = faults_of(topology, "bit_errors: 1e-12, on: h3>p0-t0-00")
    assert (faults.kind[0], faults.value[0]) == (FaultKind.LINK_BIT_ERRORS, 1_000_000)


def test_a_matrix_failure_is_an_up_link_dead_from_the_beginning(topology: Topology) -> None:
    faults = columns(topology, Schedule(), 1, [FailureLine(0, 2, 3, 17)], "x.cm")
    dead = {topology.link_name(link) for _, link in of_kind(faults, FaultKind.LINK_DOWN)}
    assert dead == {"p0-t0-02>p0-t1-03", "p0-t1-03>p0-t0-02"}
    with pytest.raises(ConfigError, match=r"x\.cm:17: link_id: '4'"):
        columns(topology, Schedule(), 1, [FailureLine(0, 2, 4, 17)], "x.cm")


def test_faults_are_in_order_of_time(topology: Topology) -> None:
    faults = faults_of(topology, "at: 9us, down: plane 0; at: 1us, for: 20us, loss: 1%; at: 3us, rate: 1Gbps")
    assert (np.diff(faults.at) >= 0).all()


def test_a_report_gets_the_words() -> None:
    schedule = Schedule.parse("at: 1us, down: plane 1; at: 2us, up: plane 1; at: 3us, loss: 1%, delay: 1.5us, on: h3")
    assert [event.text for event in events(schedule)] == ["down plane 1", "up plane 1", "delay 1.5us, loss 1% h3"]
