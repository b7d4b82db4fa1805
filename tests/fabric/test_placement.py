from collections import defaultdict

import numpy as np
import pytest

from openmrc.errors import ConfigError
from openmrc.fabric.cables.placement import RackPlacement, device_name, place
from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import Fabric, Hosts, Plane, Plant, Tier
from tests.fabric.small_fabrics import SMALL, fabric


def placed(plant: Plant, hosts: int = 40, nics: int = 2) -> RackPlacement:
    plane = Plane(count=2, host_gbps=100, t0=Tier(down=8, up=8), t1=Tier())
    return place(build(Fabric(name="x", hosts=Hosts(count=hosts, nics=nics), planes=(plane,), plant=plant)))


@pytest.mark.parametrize("name", sorted(SMALL))
def test_no_two_devices_share_a_rack_unit(name: str) -> None:
    placement = place(build(fabric(name)))
    used: dict[tuple[int, int], str] = {}
    topology, plant = placement.topology, placement.plant
    for node in range(topology.nodes):
        height, device = plant.host_units if node < topology.nics else plant.switch_units, device_name(topology, node)
        for unit in range(int(placement.unit[node]), int(placement.unit[node]) + height):
            assert 1 <= unit <= plant.rack_units
            assert used.setdefault((int(placement.rack[node]), unit), device) == device


def test_nics_are_where_their_machine_is() -> None:
    placement = placed(Plant())
    rack, unit = placement.rack[:80].reshape(-1, 2), placement.unit[:80].reshape(-1, 2)
    assert (rack[:, 0] == rack[:, 1]).all()
    assert (unit[:, 0] == unit[:, 1]).all()


def test_a_rack_and_its_place_on_the_floor_are_for_one_kind_of_device() -> None:
    placement = placed(Plant(racks_per_row=3))
    kinds = defaultdict(set)
    for node in range(placement.topology.nodes):
        kinds[int(placement.rack[node])].add(
            (int(placement.topology.node_plane[node]), int(placement.topology.node_tier[node]))
        )
    assert all(len(each) == 1 for each in kinds.values())
    spots = [(rack.site, rack.row, rack.position) for rack in placement.racks]
    assert len(set(spots)) == len(spots)
    assert len({rack.name for rack in placement.racks}) == len(spots)


def test_network_racks_stand_in_the_middle_rows() -> None:
    placement = placed(Plant(racks_per_row=2, hosts_per_rack=2), hosts=64)
    rows = {
        is_host: {abs(rack.row) for rack in placement.racks if ("h-" in rack.name) == is_host}
        for is_host in (True, False)
    }
    assert max(rows[False]) < min(rows[True])


def test_lengths_follow_the_trays() -> None:
    plant = Plant(rack_units=10, hosts_per_rack=1, host_units=2, switches_per_rack=1, slack_m=1.5, row_pitch_m=4)
    placement = placed(plant, hosts=2)
    host, switch = np.array([0]), np.array([placement.topology.nics])
    rack = placement.racks[int(placement.rack[host[0]])]
    there = placement.racks[int(placement.rack[switch[0]])]
    way = abs(rack.row - there.row) * 4 + abs(rack.position - there.position) * 0.6
    assert placement.length_m(host, switch)[0] == pytest.approx(way + 2 * 1.5 + (2 * 10 - 1 - 1) * 0.04445)


def test_within_a_rack_a_cable_goes_straight() -> None:
    placement = placed(Plant(slack_m=1))
    assert placement.length_m(np.array([0]), np.array([2]))[0] == pytest.approx(2 + 4 * 0.04445)


def test_a_rack_that_is_too_low_is_refused() -> None:
    with pytest.raises(ConfigError, match="8 hosts of 8 units do not fit a rack of 48; 6 would"):
        placed(Plant(host_units=8))


def test_two_sites_have_racks_of_their_own() -> None:
    placement = place(build(fabric("two-sites")))
    shape = placement.topology.planes[0]
    sites = [placement.racks[int(placement.rack[shape.first_t1 + t1])].site for t1 in range(shape.t1_count)]
    assert sites == [0, 0, 1, 1]
    assert {rack.name[:3] for rack in placement.racks} == {"s0-", "s1-"}
