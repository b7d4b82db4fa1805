import csv
import xml.etree.ElementTree as ElementTree

import pytest

from openmrc.errors import ConfigError
from openmrc.fabric.cabling.elevations import csv_lines, svg_rows, text
from openmrc.fabric.cabling.placement import place
from openmrc.fabric.model.build import build
from tests.fabric.small_fabrics import fabric

PLACED = place(build(fabric("two-tier")))


def test_every_device_is_in_the_list_once() -> None:
    rows = list(csv.DictReader(csv_lines(PLACED)))
    assert sorted(row["device"] for row in rows) == sorted(
        PLACED.topology.name(node) for node in range(PLACED.topology.nodes)
    )
    assert {row["kind"] for row in rows} == {"machine", "T0", "T1"}


def test_a_rack_is_drawn_from_the_top() -> None:
    lines = text(PLACED, "p0-t0-r01").splitlines()
    assert lines[0] == "p0-t0-r01"
    assert lines[2].split() == ["48", "|", "|"]
    assert lines[-2].split()[0] == "1"
    at = next(line for line in lines if "p0-t0-02" in line)
    assert at.split()[0] == "6"  # units 5 and 6


def test_drawings_show_every_device() -> None:
    drawn = dict(svg_rows(PLACED))
    texts = [
        each.text for svg in drawn.values() for each in ElementTree.fromstring(svg).iter() if each.tag.endswith("text")
    ]
    for node in range(PLACED.topology.nodes):
        assert texts.count(PLACED.device(node)) == 1
    assert all(texts.count(rack.name) == 1 for rack in PLACED.racks)


def test_a_rack_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="no rack is called 'x'; they are h-0001 to p1-t1-r01"):
        text(PLACED, "x")
