from pathlib import Path

import pytest

from openmrc.errors import ConfigError
from openmrc.fabric.cabling.elevations import csv_lines
from openmrc.fabric.cabling.placement import RackPlacement, place
from openmrc.fabric.cabling.places_file import read_places
from openmrc.fabric.model.build import build
from tests.fabric.small_fabrics import fabric

TOPOLOGY = build(fabric("two-tier"))


def placed(folder: Path, *lines: str, header: str = "device,rack,unit,row,position") -> RackPlacement:
    path = folder / "places.csv"
    path.write_text("\n".join([header, *lines, ""]))
    return place(TOPOLOGY, read_places(path))


def where(placement: RackPlacement, name: str) -> tuple[str, int]:
    node = placement.topology.node_named(name)
    return placement.racks[int(placement.rack[node])].name, int(placement.unit[node])


def test_devices_stand_where_the_file_says_and_others_where_they_did(tmp_path: Path) -> None:
    placement = placed(tmp_path, "p0-t0-01,cage-7,21,5,2", "h3,h-0001,40,,")
    assert where(placement, "p0-t0-01") == ("cage-7", 21)
    assert where(placement, "h3") == ("h-0001", 40)
    assert where(placement, "p0-t0-02") == where(place(TOPOLOGY), "p0-t0-02")
    rack = next(rack for rack in placement.racks if rack.name == "cage-7")
    assert (rack.row, rack.position) == (5, 2)


def test_the_list_of_racks_is_such_a_file(tmp_path: Path) -> None:
    path = tmp_path / "racks.csv"
    path.write_text("\n".join(csv_lines(place(TOPOLOGY))))
    again = place(TOPOLOGY, read_places(path))
    assert list(csv_lines(again)) == list(csv_lines(place(TOPOLOGY)))


def test_racks_that_are_left_empty_are_gone(tmp_path: Path) -> None:
    assert len(placed(tmp_path, *(f"p0-t0-0{index},new,{1 + 2 * index},0,9" for index in range(3))).racks) == len(
        place(TOPOLOGY).racks
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("h99,h-0001,1,,", r"places.csv:2: no device 'h99'; there are h0 to p1-t1-03"),
        ("h3,new,1,,", r"places.csv:2: rack 'new' is new; give its `row` and `position`"),
        ("h3,h-0001,one,,", r"places.csv:2: unit 'one'; expected a whole number"),
        ("h3,h-0001,1,,", r"places.csv:2: h3 and h0 are both at unit 1 of h-0001"),
        ("h3,h-0001,46,,", r"places.csv:2: h3 at units 46 to 49 of h-0001, which has 1 to 48"),
        ("h3,,1,,", r"places.csv:2: rack ''; expected a name"),
        ('h3,"a', r"not CSV"),
    ],
)
def test_what_cannot_be_is_refused_with_its_line(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        placed(tmp_path, line)


def test_a_device_has_one_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"places.csv:3: 'h3' has a place already, in .*places.csv:2"):
        placed(tmp_path, "h3,h-0001,40,,", "h3,h-0001,44,,")


def test_columns_that_are_missing_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no column 'unit'; expected device, rack, unit and row, position"):
        placed(tmp_path, "h3,h-0001", header="device,rack")
