import csv
import io
import math

import pytest

from openmrc.errors import ConfigError
from openmrc.fabric.cabling.cables import list_cables
from openmrc.fabric.cabling.materials import Item, bill, csv_text, spare_shares
from openmrc.fabric.model.build import build
from openmrc.fabric.model.parts import load_parts
from openmrc.fabric.planning.design import design
from tests.fabric.small_fabrics import fabric

PARTS = load_parts()


def planned(nics: int, planes: int, tiers: int | None = None) -> tuple[list[Item], int, int]:
    """Return the bill of a planned fabric, and the optics and switches of its plan."""
    plan = design("x", nics, 800, PARTS.switch(51.2), PARTS, planes=planes, tiers=tiers)
    items = bill(list_cables(build(plan.fabric("x"))), PARTS)
    return items, plan.optics, plan.total_switches


def total(items: list[Item], part: str) -> int:
    return sum(item.count for item in items if item.part == part)


@pytest.mark.parametrize(("nics", "planes", "tiers"), [(4096, 8, None), (16_384, 4, None), (4096, 1, 3), (1024, 2, 2)])
def test_the_bill_has_the_switches_and_transceivers_of_the_plan(nics: int, planes: int, tiers: int | None) -> None:
    items, optics, switches = planned(nics, planes, tiers)
    assert total(items, "transceiver") == optics
    assert total(items, "switch") == switches
    assert total(items, "NIC") == nics


def test_unsplit_cages_take_trunks_and_split_ones_shuffle_boxes() -> None:
    items, _, _ = planned(4096, 1, 3)
    trunk = "800G trunk, MPO-16 APC to MPO-16 APC, 16 fibres OS2, type B"
    assert {item.description for item in items if item.part == "cable"} == {trunk}
    items, _, _ = planned(4096, 8)
    to_box = [item for item in items if item.part == "cable" and "trunk to box" in item.description]
    boxes = [item for item in items if item.part == "shuffle box"]
    assert [item.description for item in boxes] == ["8 x 8, 16 MPO-16 APC, 64 pairs, reversed"]
    assert sum(item.count for item in to_box) == 16 * boxes[0].count >= 16 * 4096 // 8


def test_a_bundle_that_fills_two_cages_is_one_cable() -> None:
    items, _, _ = planned(1024, 8)  # T0 and T1 joined by bundles of 128 of 100G: 16 whole cages
    trunks = [item for item in items if item.part == "cable" and item.description.startswith("800G trunk, MPO")]
    assert sum(item.count for item in trunks) == 8 * 4 * 256 // 8


def test_spares_are_a_share_of_each_line_rounded_up_and_cost() -> None:
    cables = list_cables(build(fabric("two-tier")))
    shares = spare_shares(["2%", "transceiver = 12.5%"])
    items = bill(cables, PARTS, shares)
    assert {item.spares for item in bill(cables, PARTS)} == {0}
    for item in items:
        share = {"transceiver": 0.125, "machine": 0, "NIC": 0, "rack": 0}.get(item.part, 0.02)
        assert item.spares == math.ceil(item.count * share)
    switch = next(item for item in items if item.part == "switch")
    row = next(row for row in csv.DictReader(io.StringIO(csv_text(items))) if row["part"] == "switch")
    assert (int(row["spares"]), float(row["cost"])) == (1, (switch.count + 1) * PARTS.switch(51.2).cost)
    assert float(row["watts"]) == switch.count * PARTS.switch(51.2).watts


@pytest.mark.parametrize("text", ["2", "x%", "-1%", "racks=2%", "2%=cable"])
def test_a_share_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="write a share such as 2%, or PART=3%"):
        spare_shares([text])


def test_prices_are_those_of_the_parts_where_there_are_any() -> None:
    items, _, _ = planned(4096, 8)
    switch = next(item for item in items if item.part == "switch")
    assert (switch.watts_each, switch.cost_each) == (PARTS.switch(51.2).watts, PARTS.switch(51.2).cost)
    other = bill(list_cables(build(fabric("two-sites"))), PARTS)
    assert next(item for item in other if item.description == "800G-FR8").cost_each is None


def test_the_csv_has_sums() -> None:
    items, _, _ = planned(4096, 8)
    rows = list(csv.DictReader(io.StringIO(csv_text(items))))
    assert len(rows) == len(items)
    for row in rows:
        if row["cost_each"]:
            assert float(row["cost"]) == pytest.approx(float(row["cost_each"]) * int(row["count"]))
