import numpy as np
import pytest

from openmrc.errors import ConfigError
from openmrc.fabric.addressing.usid import usid_plan
from openmrc.fabric.cables.ports import check_scheme, place_ports
from openmrc.fabric.export.view import view
from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import Fabric, Hosts, IrregularLink, IrregularNode, Plane, Plant, Tier
from openmrc.fabric.model.port_settings import check_interface
from openmrc.fabric.model.shape import check
from openmrc.fabric.model.topology import Topology


def topology(hosts: int, plant: Plant | None = None, up_gbps: float | None = None) -> Topology:
    plane = Plane(count=8, host_gbps=100, t0=Tier(down=16, up=4, up_gbps=up_gbps), t1=Tier())
    return build(Fabric(name="x", hosts=Hosts(count=hosts), planes=(plane,), plant=plant or Plant()))


def test_eight_planes_of_a_nic_share_one_cage() -> None:
    ports = place_ports(topology(16))
    slots = [ports.slots[int(ports.index(np.array([0]), np.array([plane]))[0])] for plane in range(8)]
    assert {slot.cage for slot in slots} == {0}
    assert [slot.part for slot in slots] == list(range(8))


def test_a_port_without_cable_keeps_its_place() -> None:
    full, part = (place_ports(topology(hosts)) for hosts in (16, 3))
    uplink = np.array([16])
    found = []
    for ports in (full, part):
        t0 = np.array([ports.topology.planes[0].first_t0])
        found.append(ports.slots[int(ports.index(t0, uplink)[0])])
    assert found[0] == found[1]
    assert found[0].cage == 2


def test_faster_uplinks_begin_a_new_cage() -> None:
    ports = place_ports(topology(16, up_gbps=400))
    t0 = np.array([ports.topology.planes[0].first_t0])
    slots = [ports.slots[int(ports.index(t0, np.array([port]))[0])] for port in range(20)]
    assert [slot.cage for slot in slots[14:]] == [1, 1, 2, 2, 3, 3]
    assert [slot.speed for slot in slots[15:17]] == [100, 400]


def test_more_ports_than_cages_are_refused() -> None:
    with pytest.raises(ConfigError, match="need 3 cages"):
        place_ports(topology(16, Plant(cages=2)))


def test_names_are_those_of_the_system() -> None:
    ports = place_ports(topology(16))
    begin = int(ports.first[ports.model[ports.topology.planes[0].first_t0]])
    names = {scheme: ports.names(scheme)[begin + 9] for scheme in ("linux", "sonic", "cumulus", "eos")}
    assert names == {"linux": "p9", "sonic": "Ethernet9", "cumulus": "swp2s1", "eos": "Ethernet2/2"}
    assert ports.names("sonic")[0] == "mrc0p0"
    with pytest.raises(ConfigError, match="--names 'junos'; linux, sonic, cumulus, eos are known"):
        check_scheme("junos")


def test_a_machine_s_ports_are_called_as_the_file_says() -> None:
    ports = place_ports(topology(16, Plant(interface="enp{nic}s0f{plane}np0")))
    assert ports.nic_interface(3, 5) == "enp0s0f5np0"
    assert ports.names("linux")[:2] == ["enp0s0f0np0", "enp0s0f1np0"]


@pytest.mark.parametrize(
    ("name", "why"), [("eth{nic}", "names several ports"), ("a-longer-name-{plane}p", "allows 15")]
)
def test_interface_names_that_cannot_be_are_refused(name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        check(topology(16, Plant(interface=name)).fabric)


def test_a_machine_as_large_as_a_file_may_say_is_checked_at_once() -> None:
    check_interface("p{plane}n{nic}", 1 << 22, 64, "f.yaml:1")
    with pytest.raises(ConfigError, match="not side by side"):
        check_interface("{nic}{plane}", 12, 12, "f.yaml:1")  # 1 and 11, 11 and 1
    check_interface("{nic}{plane}", 8, 8, "f.yaml:1")
    with pytest.raises(ConfigError, match=r"'eth\{nic': expected"):
        check_interface("eth{nic", 2, 2, "f.yaml:1")


def test_a_nic_without_links_has_no_interface_to_check() -> None:
    nodes = (
        IrregularNode(name="a", kind="nic"),
        IrregularNode(name="s", kind="switch"),
        IrregularNode(name="t", kind="switch"),
    )
    check(Fabric(name="x", nodes=nodes, links=(IrregularLink(a="s", b="t", gbps=1, count=1 << 22),)))


@pytest.mark.parametrize("hosts", [19, 35])
@pytest.mark.parametrize("up_gbps", [None, 400])
def test_exports_and_cable_list_put_a_port_into_the_same_cage(hosts: int, up_gbps: float | None) -> None:
    built = topology(hosts, up_gbps=up_gbps)  # the last T0 has ports without a cable before its uplinks
    plan, ports = usid_plan(built), place_ports(built)
    for switch in range(built.nics, built.nodes):
        for port in view(plan, switch).layout.ports:
            slot = ports.slots[int(ports.index(np.array([switch]), np.array([port.number]))[0])]
            assert port.slot == slot, f"{built.name(switch)} port {port.number}"
