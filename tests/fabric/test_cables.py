import csv
import io
from collections import Counter

import numpy as np
import pytest

from openmrc.errors import ConfigError
from openmrc.fabric.cables.listing import COLUMNS, Cables, csv_blocks, list_cables
from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import Fabric, Hosts, Plane, Plant, Reach, Tier
from openmrc.fabric.model.topology import LinkTier
from tests.fabric.renamed_fabrics import renamed
from tests.fabric.small_fabrics import SMALL, fabric


def rows(cables: Cables, scheme: str = "sonic") -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO("".join(csv_blocks(cables, scheme)))))


def cables_of(plant: Plant, gbps: float = 100, hosts: int = 32) -> Cables:
    plane = Plane(count=2, host_gbps=gbps, t0=Tier(down=8, up=8), t1=Tier())
    return list_cables(build(Fabric(name="x", hosts=Hosts(count=hosts, nics=2), planes=(plane,), plant=plant)))


@pytest.mark.parametrize("name", sorted(SMALL))
def test_every_cable_is_listed_once_with_the_ports_that_show_tells(name: str) -> None:
    topology = build(fabric(name))
    listed = rows(list_cables(topology))
    assert len(listed) == topology.links // 2
    assert tuple(listed[0]) == COLUMNS
    ends = {(row["a_node"], int(row["a_port"]), row["b_node"], int(row["b_port"])) for row in listed}
    for link in range(topology.links):
        back = int(topology.link_reverse[link])
        end = [(topology.name(int(topology.link_source[each])), int(topology.link_port[each])) for each in (link, back)]
        assert (*end[0], *end[1]) in ends or (*end[1], *end[0]) in ends


@pytest.mark.parametrize("name", sorted(SMALL))
def test_no_two_cables_share_a_lane_or_an_interface_or_a_label(name: str) -> None:
    listed = rows(list_cables(build(fabric(name))), "cumulus")
    lanes = [(row[f"{end}_node"], row[f"{end}_cage"], row[f"{end}_lane"]) for row in listed for end in "ab"]
    interfaces = [(row[f"{end}_device"], row[f"{end}_interface"]) for row in listed for end in "ab"]
    assert len(set(lanes)) == len(lanes)
    assert len(set(interfaces)) == len(interfaces)
    assert len({row["label"] for row in listed}) == len(listed)


def test_a_row_says_where_both_ends_are() -> None:
    row = next(row for row in rows(cables_of(Plant())) if row["a_node"] == "h9-n1" and row["plane"] == "1")
    assert row["label"] == "h9-n1:1=p1-t0-02:3"
    assert (row["a_device"], row["a_rack"], row["a_unit"], row["a_interface"]) == ("h9", "h-0002", "5", "mrc1p1")
    assert (row["b_rack"], row["b_unit"], row["b_cage"], row["b_lane"]) == ("p1-t0-r01", "5", "1", "4")
    assert (row["kind"], row["gbps"], row["a_module"], row["b_module"]) == ("host", "100", "800G-DR8", "800G-DR8")


def test_a_length_is_the_next_class_above_the_way() -> None:
    cables = cables_of(Plant(lengths_m=(4, 8, 100)))
    (a, _), (b, _) = cables.ends()
    way = cables.placement.length_m(a, b)
    metres = cables.length_mm / 1000
    assert set(metres.tolist()) <= {4, 8, 100}
    assert (metres >= way).all()
    assert (way[metres == 8] > 4).all()
    assert (way[metres == 100] > 8).all()


def test_beyond_the_last_class_lengths_are_whole_hundreds() -> None:
    assert set((cables_of(Plant(lengths_m=(1,))).length_mm / 1000).tolist()) == {100}


def test_a_cage_has_the_transceiver_of_its_longest_cable() -> None:
    reaches = (Reach(name="SR", up_to_m=7), Reach(name="DR", up_to_m=500))
    cables = cables_of(Plant(optics=reaches, row_pitch_m=2))
    assert set(cables.medium.tolist()) == {1, 2}
    for (node, _), slot, reach in zip(cables.ends(), cables.slots(), (cables.a_reach, cables.b_reach), strict=True):
        longest: Counter[tuple[int, int]] = Counter()
        for at in range(len(cables)):
            key = int(node[at]), cables.ports.slots[int(slot[at])].cage
            longest[key] = max(longest[key], int(cables.medium[at]))
        assert all(
            reach[at] >= longest[int(node[at]), cables.ports.slots[int(slot[at])].cage] for at in range(len(cables))
        )


def test_copper_is_taken_where_a_whole_cage_is_near_enough() -> None:
    near = rows(cables_of(Plant(copper_m=10, racks_per_row=8, row_pitch_m=1)))
    assert {row["a_module"] for row in near} == {"800G-DAC"}
    mixed = rows(cables_of(Plant(copper_m=5, racks_per_row=8)))
    for row in mixed:
        assert row["a_module"].endswith("DAC") == row["b_module"].endswith("DAC")


def test_a_cable_between_sites_is_as_long_as_its_delay() -> None:
    cables = list_cables(build(fabric("two-sites")))
    long = cables.topology.link_tier[cables.link] == LinkTier.LONG
    assert set(cables.length_mm[long].tolist()) == {1_000_000}  # 5 us
    assert {row["a_module"] for row in rows(cables) if row["kind"] == "long"} == {"800G-FR8"}


def test_a_cable_that_no_transceiver_reaches_is_refused() -> None:
    with pytest.raises(ConfigError, match="a cable of 100 m; the longest reach is 50 m; add one"):
        cables_of(Plant(optics=(Reach(name="SR", up_to_m=50),), lengths_m=(1,)))


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (Plant(lengths_m=()), "plant.lengths_m: give at least one length"),
        (Plant(optics=()), "plant.optics: give at least one reach"),
        (Plant(optics=(Reach(name="DR", up_to_m=500), Reach(name="SR", up_to_m=50))), "the shortest first"),
    ],
)
def test_a_plant_without_cables_to_order_is_refused(plant: Plant, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        cables_of(plant)


def test_some_cables_can_be_listed_alone() -> None:
    whole = cables_of(Plant())
    some = list_cables(whole.topology, whole.link[5:9])
    assert rows(some) == rows(whole)[5:9]


def test_an_irregular_fabric_has_cables_too() -> None:
    from pathlib import Path

    from openmrc.fabric.model.build import load

    topology = build(load(Path(__file__).parents[2] / "scenarios" / "fabrics" / "irregular.yaml"))
    listed = rows(list_cables(topology), "eos")
    assert len(listed) == topology.links // 2
    assert np.unique([row["label"] for row in listed]).size == len(listed)


def test_a_fabric_that_exists_is_listed_with_its_interfaces_and_no_cage_or_rack() -> None:
    described = renamed(fabric("bundles"), 1)
    names = {device.name: device.ports for device in described.found}
    for row in rows(list_cables(build(described))):
        for side in "ab":
            if ports := names[row[f"{side}_node"]]:
                interface = ports[int(row[f"{side}_port"])]
                assert (row[f"{side}_interface"], row[f"{side}_cage"]) == (interface, "")
                assert f"{row[f'{side}_node']}:{interface}" in row["label"].split("=")
            assert row[f"{side}_rack"] == row[f"{side}_unit"] == ""
