import csv
import io
import math
from collections import Counter

import pytest

from openmrc.fabric.cables.listing import list_cables
from openmrc.fabric.cables.materials import Item, bill, csv_text
from openmrc.fabric.model.build import build
from openmrc.fabric.model.parts import load_parts
from openmrc.planner.design import design
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


@pytest.mark.parametrize(("nics", "planes", "tiers"), [(4096, 8, None), (16_384, 4, None), (4096, 1, 3)])
def test_the_bill_costs_and_draws_what_the_plan_says(nics: int, planes: int, tiers: int | None) -> None:
    plan = design("x", nics, 800, PARTS.switch(51.2), PARTS, planes=planes, tiers=tiers)
    items, _, _ = planned(nics, planes, tiers)
    assert math.fsum((item.cost_each or 0) * item.count for item in items) == pytest.approx(plan.cost)
    assert math.fsum((item.watts_each or 0) * item.count for item in items) == pytest.approx(plan.watts)


def test_every_cable_of_the_list_is_on_the_bill_at_its_length() -> None:
    cables = list_cables(build(fabric("two-sites")))
    lines = [item for item in bill(cables, PARTS) if item.part == "cable"]
    assert sum(item.count for item in lines) == len(cables)
    counted: Counter[float] = Counter()
    for item in lines:
        counted[item.length_m or 0] += item.count
    assert counted == Counter((cables.length_mm / 1000).tolist())
    assert {item.where for item in lines if item.cost_each is None} == {"site - site"}


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
