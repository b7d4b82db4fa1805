"""What NetBox would import: its columns, and every reference to something that an earlier file brings.

Columns and choices: github.com/netbox-community/netbox, netbox/dcim/forms/bulk_import.py and netbox/dcim/choices.py.
"""

import csv
import io

import pytest
import yaml

from openmrc.fabric.cabling import netbox
from openmrc.fabric.cabling.cables import list_cables
from openmrc.fabric.cabling.netbox import NetboxNaming, files
from openmrc.fabric.model.build import build
from tests.fabric.small_fabrics import SMALL, fabric

FIELDS = {
    "1-sites.csv": {"name", "slug", "status"},
    "2-manufacturers.csv": {"name", "slug", "description", "tags"},
    "3-device-roles.csv": {"name", "slug", "color", "vm_role", "config_template", "description", "tags"},
    "5-racks.csv": {"site", "location", "name", "status", "role", "form_factor", "width", "u_height", "desc_units"},
    "6-devices.csv": {
        "name", "role", "manufacturer", "device_type", "status", "site", "location", "rack", "position", "face",
    },
    "7-interfaces.csv": {"device", "name", "label", "type", "speed", "duplex", "enabled", "mtu", "description"},
    "8-cables.csv": {
        "side_a_site", "side_a_device", "side_a_type", "side_a_name", "side_b_site", "side_b_device", "side_b_type",
        "side_b_name", "type", "status",
        "label", "color", "length", "length_unit", "description",
    },
}  # fmt: skip
REQUIRED = {
    "5-racks.csv": {"site", "name", "status", "width", "u_height"},
    "6-devices.csv": {"role", "manufacturer", "device_type", "status", "site"},
    "7-interfaces.csv": {"device", "name", "type"},
    "8-cables.csv": {"side_a_device", "side_a_type", "side_a_name", "side_b_device", "side_b_type", "side_b_name"},
}
INTERFACE_TYPES = {
    "10gbase-x-sfpp", "25gbase-x-sfp28", "40gbase-x-qsfpp", "50gbase-x-sfp56", "100gbase-x-qsfp28",
    "200gbase-x-qsfp56", "400gbase-x-osfp", "800gbase-x-osfp", "other",
}  # fmt: skip
LAB_ONE = NetboxNaming("lab one")
Rows = list[dict[str, str]]


def written(name: str, naming: NetboxNaming = LAB_ONE) -> tuple[dict[str, Rows], list[dict[str, object]]]:
    texts = {file: "".join(blocks) for file, blocks in files(list_cables(build(fabric(name))), naming)}
    types = list(yaml.safe_load_all(texts.pop("4-device-types.yaml")))
    return {file: list(csv.DictReader(io.StringIO(text))) for file, text in texts.items()}, types


@pytest.mark.parametrize("name", sorted(SMALL))
def test_columns_are_those_of_the_importers(name: str) -> None:
    tables, types = written(name)
    for file, rows in tables.items():
        assert set(rows[0]) <= FIELDS[file]
        assert REQUIRED.get(file, set()) <= set(rows[0])
        assert all(value for row in rows for value in row.values())
    assert all({"manufacturer", "model", "slug", "u_height"} <= set(each) for each in types)


@pytest.mark.parametrize("name", sorted(SMALL))
def test_everything_named_is_brought_by_an_earlier_file(name: str) -> None:
    tables, types = written(name)
    sites = {row["name"] for row in tables["1-sites.csv"]}
    racks = {(row["site"], row["name"]) for row in tables["5-racks.csv"]}
    assert {site for site, _ in racks} == sites
    devices = {row["name"]: row for row in tables["6-devices.csv"]}
    for row in devices.values():
        assert (row["site"], row["rack"]) in racks
        assert row["role"] in {role["name"] for role in tables["3-device-roles.csv"]}
        assert row["device_type"] in {each["model"] for each in types}
    interfaces = [(row["device"], row["name"]) for row in tables["7-interfaces.csv"]]
    assert len(set(interfaces)) == len(interfaces)
    assert {device for device, _ in interfaces} == set(devices)
    for row in tables["8-cables.csv"]:
        assert row["side_a_site"] == devices[row["side_a_device"]]["site"]
        assert row["side_b_site"] == devices[row["side_b_device"]]["site"]
    ends = [(row[f"side_{end}_device"], row[f"side_{end}_name"]) for row in tables["8-cables.csv"] for end in "ab"]
    assert sorted(ends) == sorted(interfaces)  # one cable at each


def test_values_are_among_the_choices() -> None:
    tables, _ = written("two-tier")
    assert {row["type"] for row in tables["7-interfaces.csv"]} == {"100gbase-x-qsfp28"} <= INTERFACE_TYPES
    assert {row["speed"] for row in tables["7-interfaces.csv"]} == {"100000000"}  # kb/s
    assert {row["side_a_type"] for row in tables["8-cables.csv"]} == {"dcim.interface"}
    assert {(row["type"], row["status"], row["length_unit"]) for row in tables["8-cables.csv"]} == {
        ("smf-os2", "planned", "m")
    }
    assert {row["face"] for row in tables["6-devices.csv"]} == {"front"}
    assert tables["1-sites.csv"] == [{"name": "lab one", "slug": "lab-one", "status": "planned"}]


def test_two_fabrics_share_no_device_when_each_has_its_prefix() -> None:
    tables, _ = written("two-tier", NetboxNaming(prefix="hall2-", cable_sites=False))
    named = {row["name"] for row in tables["6-devices.csv"]}
    assert all(name.startswith("hall2-") for name in named)
    assert {row["device"] for row in tables["7-interfaces.csv"]} == named
    assert {row[f"side_{end}_device"] for row in tables["8-cables.csv"] for end in "ab"} == named
    assert not any("site" in column for column in tables["8-cables.csv"][0])


def test_long_tables_come_in_parts_that_a_form_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = written("three-tier")
    monkeypatch.setattr(netbox, "PART", 1000)
    parts, _ = written("three-tier")
    texts = {file: "".join(blocks) for file, blocks in files(list_cables(build(fabric("three-tier"))), NetboxNaming())}
    assert all(len(text) <= 1000 for file, text in texts.items() if file.count(".") == 2)
    for table in ("7-interfaces", "8-cables"):
        rows = [row for file in sorted(parts) if file.startswith(table) for row in parts[file]]
        assert rows == whole[f"{table}.csv"]
        assert f"{table}.002.csv" in parts


def test_no_two_devices_share_a_unit_of_a_rack() -> None:
    tables, types = written("two-tier")
    height = {each["model"]: int(str(each["u_height"])) for each in types}
    used = [
        (row["rack"], unit)
        for row in tables["6-devices.csv"]
        for unit in range(int(row["position"]), int(row["position"]) + height[row["device_type"]])
    ]
    assert len(set(used)) == len(used)
