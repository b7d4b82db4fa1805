import msgspec
import pytest

from openmrc.errors import ConfigError
from openmrc.fabric.addressing.sid_tables import build_tables
from openmrc.fabric.addressing.usid import UsidPlan, usid_plan
from openmrc.fabric.cabling.grow import MOST_LISTED, Growth, grow
from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import Fabric, Hosts, Plane, ScaleUp, Tier, Usid

BASE = Fabric(
    name="x",
    hosts=Hosts(count=12),
    planes=(Plane(count=2, host_gbps=100, t0=Tier(down=4, up=4, radix=32), t1=Tier(radix=32)),),
)


def plan(fabric: Fabric) -> UsidPlan:
    return usid_plan(build(fabric))


def changed(old: Fabric = BASE, hosts: int = 0, **planes: object) -> Fabric:
    """Return a fabric with other numbers."""
    assert old.hosts is not None
    count = hosts or old.hosts.count
    plane = msgspec.structs.replace(old.planes[0], **planes)
    return msgspec.structs.replace(old, hosts=msgspec.structs.replace(old.hosts, count=count), planes=(plane,))


def grown(new: Fabric, old: Fabric = BASE) -> Growth:
    return grow(plan(old), plan(new))


def test_a_fabric_beside_itself_adds_and_changes_nothing() -> None:
    found = grown(BASE)
    assert found.is_pure
    assert (found.nics, found.switches, found.cables) == (0, {}, {})
    assert (found.entries_on_new, found.entries_on_existing) == (0, 0)


@pytest.mark.parametrize("hosts", [13, 16, 17, 40])
def test_more_machines_change_nothing_and_everything_added_is_counted(hosts: int) -> None:
    old, new = plan(BASE), plan(changed(hosts=hosts))
    found = grow(old, new)
    assert found.is_pure, found.listed
    assert found.nics == found.machines == hosts - 12
    assert sum(found.cables.values()) == (new.topology.links - old.topology.links) // 2 == len(found.links)
    assert sum(found.switches.values()) == new.topology.nodes - old.topology.nodes - found.nics
    assert found.entries_on_new + found.entries_on_existing == len(build_tables(new)) - len(build_tables(old))


def test_added_cables_are_those_that_were_not_there() -> None:
    old, new = plan(BASE), plan(changed(hosts=14))
    names = {new.topology.link_name(int(link)) for link in grow(old, new).links}
    before = {old.topology.link_name(link) for link in range(old.topology.links)}
    assert not names & before
    assert "h12>p0-t0-03" in names


def test_a_plane_behind_the_last_changes_nothing() -> None:
    found = grown(changed(count=3))
    assert found.is_pure, found.listed
    assert found.switches == {"plane 2 T0": 3, "plane 2 T1": 4}


def test_free_uplinks_take_new_t1s() -> None:
    found = grown(changed(t0=Tier(down=4, up=8, radix=32)))
    assert found.is_pure, found.listed
    assert found.switches == {"plane 0 T1": 4, "plane 1 T1": 4}


def test_names_that_get_another_digit_are_changes() -> None:
    wide = changed(hosts=400, t1=Tier())
    found = grown(changed(wide, hosts=404), wide)
    assert found.changes == {"renamed": 200}
    assert "renamed: p0-t0-00 would be p0-t0-000" in found.listed


def test_fewer_links_to_each_t1_move_cables() -> None:
    bundled = changed(t0=Tier(down=4, up=4, bundle=2))
    found = grown(changed(t0=Tier(down=4, up=4, bundle=1)), bundled)
    assert found.changes["cable"] > 0
    assert found.changes["table entry"] > 0
    assert any(text.startswith("cable: p0-t0-00:5 to ") for text in found.listed)


def test_cables_to_move_are_those_that_somebody_must_unplug() -> None:
    assert grown(BASE).cables_to_move == 0
    assert grown(changed(host_gbps=200)).cables_to_move == 0  # another rate and cage, the same two ports
    bundled = changed(t0=Tier(down=4, up=4, bundle=2))
    before = changed(t0=Tier(down=4, up=4, bundle=1))
    found = grown(before, bundled)
    ends = {frozenset([(link[0], link[1]), (link[2], link[3])]) for link in joined(bundled)}
    gone = [link for link in joined(before) if frozenset([(link[0], link[1]), (link[2], link[3])]) not in ends]
    assert found.cables_to_move == len(gone) > 0


def joined(fabric: Fabric) -> list[tuple[str, int, str, int]]:
    """Return each cable as two named ports."""
    made = build(fabric)
    name, back = made.name, made.link_reverse
    return [
        (name(int(made.link_source[link])), int(made.link_port[link]),
         name(int(made.link_destination[link])), int(made.link_port[back[link]]))
        for link in range(made.links) if link < back[link]
    ]  # fmt: skip


def test_larger_t0s_move_machines() -> None:
    found = grown(changed(t0=Tier(down=6, up=4)))
    assert {"cable", "address on plane 0", "table entry"} <= set(found.changes)
    assert any(text.startswith("address on plane 0: h4 is fcbb:bb00:e000:1001::, would be") for text in found.listed)


def test_faster_links_other_blocks_and_ranges_are_changes() -> None:
    assert set(grown(changed(host_gbps=200)).changes) == {"cable"}
    moved = grown(msgspec.structs.replace(BASE, usid=Usid(block="fcbb:cc00")))
    assert set(moved.changes) == {"address on plane 0", "address on plane 1", "table entry"}
    ranges = grown(msgspec.structs.replace(BASE, usid=Usid(t1=0x5000)))
    assert set(ranges.changes) == {"table entry"}


def test_what_is_taken_away_is_a_change() -> None:
    found = grown(BASE, changed(hosts=16))
    assert found.changes["removed"] == 4 + 2  # machines, and a T0 on either plane
    assert "removed: h12" in found.listed


def test_other_machines_are_another_fabric() -> None:
    other = msgspec.structs.replace(BASE, hosts=Hosts(count=6, nics=2))
    with pytest.raises(ConfigError, match="machines of 1 NICs became machines of 2"):
        grown(other)


def test_racks_that_hold_something_else_are_changes() -> None:
    plant = msgspec.structs.replace(BASE.plant, hosts_per_rack=4)
    assert set(grown(msgspec.structs.replace(BASE, plant=plant)).changes) == {"place"}


def test_what_no_switch_is_told_is_no_change() -> None:
    assert grown(msgspec.structs.replace(BASE, name="y", scale_up=ScaleUp(gpus=4, gbps=100))).is_pure


def test_every_kind_of_change_is_counted_in_full_and_listed_in_part() -> None:
    big = changed(hosts=400, t1=Tier())
    found = grown(changed(big, host_gbps=400), big)
    assert found.changes["cable"] == build(big).links // 2
    assert len(found.listed) == MOST_LISTED
