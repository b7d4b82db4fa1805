"""A fabric with the names, uSIDs, interfaces and addresses that it has: exported, read back and proven in them."""

from pathlib import Path

import msgspec
import pytest

from harness.every_path import check_all
from openmrc.errors import ConfigError
from openmrc.fabric.addressing.sid_tables import build_tables
from openmrc.fabric.addressing.usid import UsidPlan, usid_plan
from openmrc.fabric.export.options import ExportOptions
from openmrc.fabric.export.targets import TARGETS, write_all
from openmrc.fabric.export.view import view
from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import FoundDevice
from openmrc.fabric.model.shape import check
from openmrc.fabric.proof.diff import read_folder, tables_of
from openmrc.fabric.proof.verify import verify
from tests.fabric.renamed_fabrics import renamed
from tests.fabric.small_fabrics import SMALL, fabric


def renamed_plan(name: str, seed: int = 1) -> UsidPlan:
    described = renamed(fabric(name), seed)
    check(described)
    return usid_plan(build(described))


@pytest.mark.parametrize("name", SMALL)
def test_every_packet_arrives_by_usids_in_no_order(name: str) -> None:
    plan = renamed_plan(name)
    assert verify(plan).proven
    tried = check_all(plan, build_tables(plan))
    assert tried.delivered == tried.paths > 0


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SMALL)
def test_what_was_exported_in_its_names_is_read_back_and_proven(name: str, target: str, tmp_path: Path) -> None:
    plan = renamed_plan(name)
    try:
        list(write_all(plan, target, ExportOptions(), tmp_path))
    except ConfigError:
        assert (name, target) in (("shifting-downlinks", "cumulus"), ("shifting-downlinks", "eos"))
        return
    assert {file.name.partition(".")[0] for file in tmp_path.iterdir()} == set(
        plan.topology.names[plan.topology.nics :]
    )
    for file in tmp_path.iterdir():
        file.write_text(file.read_text() + "\n")  # not the same bytes, so it is read
    found = list(read_folder(plan, tmp_path, ExportOptions()))
    assert all(each.difference.clean for each in found)
    assert not any(each.dead or each.silent for each in found)
    assert verify(plan, tables_of(plan.topology, found)).proven


def changed(node: int, **values: object) -> UsidPlan:
    described = renamed(fabric("two-tier"), 1)
    devices = list(described.found)
    devices[node] = msgspec.structs.replace(devices[node], **values)
    described = msgspec.structs.replace(described, found=tuple(devices))
    check(described)
    return usid_plan(build(described))


def test_what_cannot_be_is_refused_with_the_device() -> None:
    described = renamed(fabric("two-tier"), 1)
    first_t0, second_t0 = 12, 13
    with pytest.raises(ConfigError, match="has 2 uSIDs for the links that lead to it; 1 would work"):
        changed(first_t0, usids=(1, 2))
    with pytest.raises(ConfigError, match=r"uSID 0x[0-9a-f]+ twice"):
        changed(second_t0, usids=described.found[first_t0].usids)
    with pytest.raises(ConfigError, match="has 2 MACs in `found`; give one, or one for each port to"):
        dict(view(changed(first_t0, macs=("0a:00:00:00:00:01", "0a:00:00:00:00:02")), first_t0).port_macs)
    with pytest.raises(ConfigError, match="two devices are called"):
        changed(second_t0, name=described.found[first_t0].name)
    with pytest.raises(ConfigError, match="1 devices for 26 NICs and switches"):
        check(msgspec.structs.replace(described, found=(FoundDevice(name="a"),)))
