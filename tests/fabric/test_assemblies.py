"""Cables as they are ordered: every cable is in one assembly, every cage has one plug, and what sends is received."""

import csv
import io
import re

import numpy as np
import pytest

from openmrc.fabric.cabling.assemblies import Assemblies, Kind, assemble, connector, csv_blocks
from openmrc.fabric.cabling.cables import Cables, list_cables
from openmrc.fabric.cabling.cables import csv_blocks as cable_blocks
from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import Fabric, Hosts, Plane, Plant, Reach, Tier
from openmrc.fabric.model.topology import LinkTier
from tests.fabric.small_fabrics import SMALL, fabric

Rows = list[dict[str, str]]


def pod(hosts: int = 16, planes: int = 8, down: int = 16, up: int = 16, **plant: object) -> Fabric:
    """Return a fabric of switches with eight 100G ports a cage."""
    return Fabric(
        name="pod",
        hosts=Hosts(count=hosts),
        planes=(Plane(count=planes, host_gbps=100, t0=Tier(down=down, up=up), t1=Tier()),),
        plant=Plant(**plant),  # type: ignore[arg-type]
    )


def assembled(made: Fabric) -> tuple[Cables, Assemblies, Rows]:
    cables = list_cables(build(made))
    found = assemble(cables)
    return cables, found, list(csv.DictReader(io.StringIO("".join(csv_blocks(found)))))


def of_kind(found: Assemblies, kind: Kind) -> list[int]:
    return [each for each in range(len(found)) if found.kind[each] == kind]


def reached(cables: Cables) -> list[set[tuple[int, int]]]:
    """Return the groups of joined cages (node, cage), merged one cable at a time."""
    (a, _), (b, _) = cables.ends()
    cage = cables.ports.column("cage")
    a_slot, b_slot = cables.slots()
    groups: list[set[tuple[int, int]]] = []
    for row in range(len(cables)):
        if cables.topology.link_tier[cables.link[row]] != LinkTier.LONG:
            ends = {(int(a[row]), int(cage[a_slot[row]])), (int(b[row]), int(cage[b_slot[row]]))}
            touched = [group for group in groups if group & ends]
            groups = [group for group in groups if not group & ends] + [ends.union(*touched)]
    return groups


@pytest.mark.parametrize("name", sorted(SMALL))
def test_groups_are_the_cages_that_cables_join(name: str) -> None:
    cables, found, _ = assembled(fabric(name))
    made = [{(found.node[row], found.cage[row]) for row in found.ends(assembly)} for assembly in range(len(found))]
    assert sorted(map(sorted, made)) == sorted(map(sorted, reached(cables)))


@pytest.mark.parametrize("name", sorted(SMALL))
def test_every_port_is_in_one_plug_and_every_cable_names_its_assembly(name: str) -> None:
    cables, found, rows = assembled(fabric(name))
    long = cables.topology.link_tier[cables.link] == LinkTier.LONG
    assert sum(int(row["ports"]) for row in rows if row["node"]) == 2 * int((~long).sum())
    names = found.names_by_cable()
    listed = list(csv.DictReader(io.StringIO("".join(cable_blocks(cables, "sonic", names)))))
    assert [each["assembly"] for each in listed] == list(names)
    assert {each == "" for each in names[long]} <= {True}
    assert set(names[~long]) == {row["assembly"] for row in rows}
    assert len({(row["node"], row["cage"]) for row in rows if row["node"]}) == sum(bool(row["node"]) for row in rows)


def test_eight_nics_and_eight_planes_meet_in_one_box_with_a_trunk_each() -> None:
    _, found, rows = assembled(pod())
    hosts = [row for row in rows if row["assembly"] == "h0.1"]
    assert [row["end"] for row in hosts] == ["trunk"] * 16 + ["box 8 x 8"]
    assert {(row["connector"], row["ports"], row["fibres"], row["gbps"]) for row in hosts[:16]} == {
        ("MPO-16 APC", "8", "16", "800")
    }
    assert hosts[-1]["fibres"] == "128"
    assert found.counts() == {"shuffle": 2, "fan-out": 16}  # a T0 a plane: each of its T1s has one port


def test_a_module_of_one_port_takes_a_trunk_and_one_that_is_split_among_such_a_fan_out() -> None:
    _, _, rows = assembled(Fabric(name="x", hosts=Hosts(count=4), planes=(Plane(host_gbps=800, t0=Tier(down=4)),)))
    assert {(row["kind"], row["connector"], row["polarity"]) for row in rows} == {("trunk", "MPO-16 APC", "type B")}
    _, _, rows = assembled(pod(hosts=8, planes=1, down=8, up=1))
    near = [row for row in rows if row["assembly"] == "h0.1"]
    assert {row["kind"] for row in near} == {"fan-out"}
    assert sorted((row["end"], row["ports"]) for row in near) == [("leg", "1")] * 8 + [("trunk", "8")]


@pytest.mark.parametrize("name", sorted(SMALL))
def test_what_sends_meets_what_receives_through_every_assembly(name: str) -> None:
    _, found, rows = assembled(fabric(name))
    by_assembly: dict[str, Rows] = {}
    for row in rows:
        by_assembly.setdefault(row["assembly"], []).append(row)
    for assembly in range(len(found)):
        own = by_assembly[found.names[assembly]]
        plugs = {row["polarity"] for row in own if row["node"]}
        assert plugs <= {"type B", "A to B"}
        trunks_in_a_row = 2 if found.kind[assembly] == Kind.SHUFFLE else 1
        reversals = trunks_in_a_row + sum(row["polarity"] == "reversed" for row in own)
        assert reversals % 2 == 1


def test_lanes_on_one_pair_of_fibres_take_lc() -> None:
    made = Fabric(
        name="x",
        hosts=Hosts(count=4),
        planes=(Plane(host_gbps=400, t0=Tier(down=4)),),
        plant=Plant(optics=(Reach(name="FR", up_to_m=2000, duplex=True),), lanes=4),
    )
    _, _, rows = assembled(made)
    assert {(row["connector"], row["fibres"], row["polarity"]) for row in rows} == {("LC duplex", "2", "A to B")}


@pytest.mark.parametrize(
    ("pairs", "name"),
    [
        (1, "LC duplex"),
        (2, "MPO-12 APC"),
        (4, "MPO-12 APC"),
        (8, "MPO-16 APC"),
        (12, "MPO-24 APC"),
        (16, "2 x MPO-16 APC"),
    ],
)
def test_connectors_by_pairs_of_fibres(pairs: int, name: str) -> None:
    assert connector(pairs) == name


def test_copper_that_would_be_shuffled_is_named_as_what_nobody_makes() -> None:
    _, found, rows = assembled(
        pod(hosts=8, planes=2, down=8, up=1, copper_m=10, hosts_per_rack=4, rack_units=24, switches_per_rack=8)
    )
    assert found.counts() == {"trunk": 2, "single copper legs": 1}
    assert all(not row["fibres"] and not row["polarity"] for row in rows if row["connector"] == "DAC")


def test_a_trunk_is_as_long_as_its_way_to_the_box() -> None:
    cables, found, _ = assembled(pod())
    for assembly in of_kind(found, Kind.SHUFFLE):
        rows = found.ends(assembly)
        box = found.node[rows[0]]
        for row in rows:
            way = float(cables.placement.length_m(np.array([box]), np.array([found.node[row]]))[0])
            assert found.length_mm[row] / 1000 == min(each for each in Plant().lengths_m if each >= way)
            assert found.node[row] >= box


def test_names_do_not_change_when_machines_are_added() -> None:
    _, _, before = assembled(pod(hosts=16))
    _, _, after = assembled(pod(hosts=32))
    kept = {(row["assembly"], row["node"], row["cage"]) for row in before if row["node"].startswith("h")}
    assert kept <= {(row["assembly"], row["node"], row["cage"]) for row in after}
    assert all(re.fullmatch(r"[hp][\w-]+\.\d+", row["assembly"]) for row in after)
