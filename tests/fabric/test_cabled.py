import pytest

from openmrc.errors import ConfigError
from openmrc.fabric.cables.cabled import CablingReport, check_cabling
from openmrc.fabric.cables.lldp import Neighbour, read_neighbours
from openmrc.fabric.model.build import build
from openmrc.fabric.model.topology import Topology
from tests.fabric.lldp_dumps import End, Heard, as_lldpctl, as_nvue, as_sonic, exchange, heard, move, plugged, pull
from tests.fabric.small_fabrics import SMALL, fabric

TOPOLOGY = build(fabric("two-tier"))  # 12 machines, 2 planes of 3 T0 and 4 T1
T0, T1 = TOPOLOGY.node_named("p0-t0-00"), TOPOLOGY.node_named("p0-t1-01")


def checked(
    topology: Topology, cables: dict[End, End], only: tuple[str, ...] = (), scheme: str = "sonic"
) -> CablingReport:
    """Check what all switches hear, or only some."""
    dumps = heard(topology, cables, scheme)
    return check_cabling(topology, {name: read(lines) for name, lines in dumps.items() if not only or name in only})


def read(lines: Heard) -> list[Neighbour]:
    return read_neighbours(as_lldpctl(lines), "dump")


@pytest.mark.parametrize("name", sorted(SMALL))
@pytest.mark.parametrize("scheme", ["linux", "sonic", "cumulus", "eos"])
def test_cables_as_planned_are_right(name: str, scheme: str) -> None:
    topology = build(fabric(name))
    report = checked(topology, plugged(topology), scheme=scheme)
    assert (report.right, report.unchecked, report.findings) == (topology.links // 2, 0, [])


@pytest.mark.parametrize("only", [(), ("p0-t0-00",), ("p0-t1-01", "p0-t1-02")])
def test_two_plugs_in_each_others_ports_are_swapped(only: tuple[str, ...]) -> None:
    cables = plugged(TOPOLOGY)
    exchange(cables, (T0, 5), (T0, 6))
    report = checked(TOPOLOGY, cables, only)
    (found,) = report.findings
    assert found.kind == "swapped"
    assert {"p0-t0-00:5", "p0-t0-00:6"} <= set(f"{found.port} {found.expected}".split())
    assert "exchange the plugs at" in found.remedy


def test_plugs_of_two_switches_can_be_swapped() -> None:
    cables = plugged(TOPOLOGY)
    exchange(cables, (TOPOLOGY.node_named("p0-t0-00"), 5), (TOPOLOGY.node_named("p1-t0-02"), 7))
    assert [each.kind for each in checked(TOPOLOGY, cables).findings] == ["swapped"]


def test_a_plug_in_another_port_is_wrong_and_the_cable_it_drove_out_missing() -> None:
    cables = plugged(TOPOLOGY)
    pull(cables, (T1, 1))
    move(cables, (T1, 0), (T1, 1))
    report = checked(TOPOLOGY, cables)
    assert sorted(each.kind for each in report.findings) == ["missing", "wrong"]
    wrong = next(each for each in report.findings if each.kind == "wrong")
    assert (wrong.port, wrong.expected, wrong.found) == ("p0-t0-00:5", "p0-t1-01:0", "p0-t1-01:1")
    assert wrong.remedy == "move the plug at p0-t1-01:1 to p0-t1-01:0"


def test_three_plugs_that_went_round_are_wrong_each() -> None:
    cables = plugged(TOPOLOGY)
    exchange(cables, (T0, 4), (T0, 5))
    exchange(cables, (T0, 5), (T0, 6))
    report = checked(TOPOLOGY, cables)
    assert [each.kind for each in report.findings] == ["wrong"] * 3
    assert report.right == report.cables - 3


def test_a_cable_that_is_out_is_missing_once() -> None:
    cables = plugged(TOPOLOGY)
    pull(cables, (T0, 6))
    report = checked(TOPOLOGY, cables)
    assert [(each.kind, each.port, each.expected) for each in report.findings] == [
        ("missing", "p0-t0-00:6", "p0-t1-02:0")
    ]
    assert report.right == report.cables - 1


def test_a_cable_heard_at_one_end_only_is_told() -> None:
    dumps = {name: read(lines) for name, lines in heard(TOPOLOGY, plugged(TOPOLOGY)).items()}
    dumps["p0-t1-01"] = [each for each in dumps["p0-t1-01"] if each.system != "p0-t0-00"]
    (found,) = check_cabling(TOPOLOGY, dumps).findings
    assert (found.kind, found.found) == ("missing", "nothing, though p0-t0-00:5 hears it")


def test_what_no_dump_covers_is_unchecked() -> None:
    report = checked(TOPOLOGY, plugged(TOPOLOGY), ("p0-t0-00",))
    assert (report.right, report.unchecked) == (8, TOPOLOGY.links // 2 - 8)
    assert report.is_clean


def test_strangers_are_told_and_the_management_port_is_not() -> None:
    lines = heard(TOPOLOGY, plugged(TOPOLOGY))["p0-t0-00"]
    lines[2] = ("Ethernet2", "toaster", "eth0")
    lines += [("eth0", "oob-switch", "swp7"), ("Ethernet63", "p0-t1-00", "Ethernet5")]
    report = check_cabling(TOPOLOGY, {"p0-t0-00": read(lines)})
    assert [(each.kind, each.port, each.expected, each.found) for each in report.findings] == [
        ("unknown", "p0-t0-00:2", "h2:0", "toaster eth0"),
        ("unknown", "p0-t0-00:Ethernet63", "no cable", "p0-t1-00 Ethernet5"),
    ]


def test_systems_may_have_a_domain_and_capitals() -> None:
    planned = heard(TOPOLOGY, plugged(TOPOLOGY))["p0-t0-00"]
    lines = [(name, f"{system.upper()}.dc1.example", port) for name, system, port in planned]
    for form in (as_lldpctl, as_sonic, as_nvue):
        report = check_cabling(TOPOLOGY, {"p0-t0-00.dc1.example": read_neighbours(form(lines), "dump")})
        assert (report.right, report.findings) == (8, [])


def test_machines_of_several_nics_are_one_system() -> None:
    topology = build(fabric("unlike-planes"))
    report = checked(topology, plugged(topology))
    assert (report.right, report.findings) == (topology.links // 2, [])


def test_a_dump_of_another_fabric_is_refused() -> None:
    with pytest.raises(ConfigError, match="dump of 'spine9': no such switch or machine; switches are p0-t0-00 to p1-"):
        check_cabling(TOPOLOGY, {"spine9": []})


@pytest.mark.parametrize("where", ["before", "behind", "alone"])
def test_a_sub_interface_is_on_the_cable_of_its_port_in_any_order(where: str) -> None:
    dumps = {}
    for name, lines in heard(TOPOLOGY, plugged(TOPOLOGY), "sonic").items():
        sub = [(here, system, f"{port}.665") for here, system, port in lines]
        dumps[name] = read({"before": [*sub, *lines], "behind": [*lines, *sub], "alone": sub}[where])
    report = check_cabling(TOPOLOGY, dumps)
    assert (report.right, report.unchecked, report.findings) == (TOPOLOGY.links // 2, 0, [])
