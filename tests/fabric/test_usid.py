import ipaddress
import re
from pathlib import Path

import pytest

from openmrc.base.yaml_file import decode_text
from openmrc.errors import ConfigError
from openmrc.fabric.addressing.paths import Choice, EvNumbers, choices, path
from openmrc.fabric.addressing.sid_tables import Action, build_tables, switch_tables
from openmrc.fabric.addressing.usid import UsidPlan, address_text, identity, parse_block, usid_plan
from openmrc.fabric.model.build import build, load_placed
from openmrc.fabric.model.description import Fabric
from tests.fabric.small_fabrics import SMALL, plan


def planned(text: str) -> UsidPlan:
    return usid_plan(build(decode_text(text, Fabric, "f.yaml")))


def test_an_address_reads_plane_t0_t1_t0_and_port() -> None:
    made = plan("two-tier")
    way = path(made, 1, 11, Choice(plane=1, uplink=2))
    assert way.address == "fcbb:bb01:1000:2002:1002:e003:1002:0"
    assert [made.topology.name(node) for node in way.nodes] == ["h1", "p1-t0-00", "p1-t1-02", "p1-t0-02", "h11"]
    assert way.ports == (1, 6, 2, 3)
    assert made.nic_address(1, 11) == "fcbb:bb01:e003:1002::"


def test_planes_that_share_a_block_have_their_number_in_every_usid() -> None:
    made = plan("one-block")
    way = path(made, 1, 11, Choice(plane=1, uplink=2))
    assert way.address == "fcbb:bb00:1800:2802:1802:e803:1802:0"  # of two planes: one bit
    assert made.nic_address(1, 11) == "fcbb:bb00:e803:1802::"
    every = [
        sid for plane in made.planes for name, first, count in plane.ranges() for sid in range(first, first + count)
    ]
    assert len(set(every)) == len(every)


def test_neighbours_under_one_t0_need_no_t1() -> None:
    made = plan("two-tier")
    assert path(made, 0, 1, Choice(plane=0)).address == "fcbb:bb00:1000:e001:1000::"


@pytest.mark.parametrize(
    ("name", "depth"),
    [("two-tier", 5), ("three-tier", 6), ("two-sites", 6), ("one-switch-a-site", 4), ("shifting-downlinks", 6)],
)
def test_the_depth_is_that_of_the_longest_path(name: str, depth: int) -> None:
    made = plan(name)
    assert made.depth == depth
    assert len(path(made, 0, made.topology.nics - 1, Choice(plane=0)).sids) == depth


@pytest.mark.parametrize("name", SMALL)
def test_no_switch_is_told_the_same_usid_twice_and_no_two_own_one(name: str) -> None:
    made = plan(name)
    tables = build_tables(made)
    keys = list(zip(tables.switch.tolist(), tables.block.tolist(), tables.usid.tolist(), strict=True))
    assert len(set(keys)) == len(keys)
    own = [key[1:] for key, action in zip(keys, tables.action.tolist(), strict=True) if action == Action.UN]
    assert len(set(own)) == len(own)


@pytest.mark.parametrize("name", SMALL)
def test_one_switch_alone_gets_the_entries_it_has_among_all(name: str) -> None:
    made = plan(name)
    tables = build_tables(made)
    for switch in set(tables.switch.tolist()):
        alone, among = switch_tables(made, switch), tables.of(switch)
        assert all((a == b).all() for a, b in zip(alone.columns(), among.columns(), strict=True))


@pytest.mark.parametrize("name", SMALL)
def test_ev_numbers_lead_back_to_their_choice(name: str) -> None:
    numbers = EvNumbers(plan(name))
    valid = 0
    for ev in range(1 << numbers.bits):
        try:
            choice = numbers.choice(ev)
        except ConfigError:
            continue
        assert numbers.number(choice) == ev
        valid += 1
    assert valid == sum(shape.paths for shape in numbers.shapes)


@pytest.mark.parametrize("ev", [8, 100, -1])
def test_an_ev_out_of_range_is_refused(ev: int) -> None:
    with pytest.raises(ConfigError, match=f"EV {ev} is out of range; EVs of this fabric are 0 to 7"):
        EvNumbers(plan("bundles")).choice(ev)


def test_an_ev_of_a_spine_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="EV 7 names uplink 7 of plane 0; there are 6"):
        EvNumbers(plan("bundles")).choice(7)


def test_a_path_to_oneself_is_refused() -> None:
    with pytest.raises(ConfigError, match="h3 to itself"):
        path(plan("two-tier"), 3, 3, Choice(plane=0))


FLAT = "name: x\nhosts: {{count: {count}}}\nplanes: [{{host_gbps: 1, t0: {{down: 4, up: 4}}, t1: {{}}}}]\n"
LINKS = "name: x\nnodes: [{name: a, kind: nic}, {name: b, kind: nic}]\nlinks: [{a: a, b: b, gbps: 1}]\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SMALL["three-tier"] + "sites: {gbps: 1, link_us: 1}", "7 uSIDs; an F3216 address holds 6; two tiers a site"),
        (SMALL["three-tier"] + "usid: {downlink: ua}", "7 uSIDs; .*`usid.downlink: route` needs one less"),
        (
            SMALL["two-tier"] + "usid: {t1: 0x1001}",
            "0x1000 needs 3 values.*would work: t0: 0x1000, t1: 0x2000",
        ),
        (SMALL["two-tier"] + "usid: {t1: 0x1002}", "duplicate uSIDs"),
        (SMALL["two-tier"] + "usid: {host: 0xfffe}", "runs into the end of 16 bits"),
        (
            SMALL["two-tier"] + "usid: {blocks: ['fcbb:bb00', 'fcbb:bb00']}",
            "0 and 1 overlap .*fcbb:bb01::/32 is free",
        ),
        (SMALL["two-tier"] + "usid: {blocks: ['fcbb:bb00']}", "has 1 for 2 planes"),
        (SMALL["two-tier"] + "usid: {shared: true, blocks: ['fcbb:bb00', 'fcbb:bb01']}", "exclude each other"),
        (
            FLAT.format(count=12_000).replace("{host", "{count: 2, host") + "usid: {shared: true}",
            "usid.t0 needs 3000 values, .* leave 2048",
        ),
        (SMALL["two-tier"] + "usid: {block: '10.0.0.0'}", "expected 32 bits such as fcbb:bb00"),
        (SMALL["two-tier"] + "usid: {block: 'ff02:0'}", "neither in fc00::/7 nor in 2000::/3"),
        (LINKS, "such as a dragonfly, is not a Clos of planes"),
        (FLAT.format(count=20_000), "t0 = 0x1000 needs 5000 values.*t1: 0x3000"),
        (FLAT.format(count=300_000), "too many for one plane's uSIDs"),
    ],
)
def test_a_plan_that_cannot_work_is_refused_with_one_that_can(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        planned(text)


def test_a_complaint_names_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "fabric.yaml"
    for what, line in (("block: ff02:0", 5), ("t1: 0x1001", 5)):
        file.write_text(FLAT.format(count=8) + "usid:\n  " + what)
        fabric, where = load_placed(file)
        with pytest.raises(ConfigError, match=f"^{re.escape(str(file))}:{line}: "):
            usid_plan(build(fabric), where)


def test_the_suggested_ranges_do_work() -> None:
    assert planned(FLAT.format(count=20_000) + "usid: {t0: 0x1000, t1: 0x3000, host: 0x4000}\n").depth == 5


def test_blocks_may_be_chosen_one_by_one() -> None:
    made = planned(SMALL["two-tier"] + "usid: {blocks: ['fd00:a', '2001:db8::/32']}\n")
    assert made.nic_address(1, 1) == "2001:db8:e001:1000::"


def test_a_block_is_read_in_any_usual_form() -> None:
    assert {parse_block(text) for text in ("fcbb:bb00", "fcbb:bb00::", "fcbb:bb00::/32")} == {0xFCBBBB00}


def test_seven_usids_do_not_fit() -> None:
    assert ipaddress.IPv6Address(address_text(0xFCBBBB00, [1, 2, 3, 4, 5, 6]))
    with pytest.raises(ConfigError, match="7 uSIDs do not fit"):
        address_text(0xFCBBBB00, [1] * 7)


@pytest.mark.parametrize(
    "sids", [[], [0xE003], [1, 0], [0, 0x1003], [1, 2, 3, 4, 5], [1, 0, 0, 4, 5], [1, 2, 3, 4, 5, 6]]
)
@pytest.mark.parametrize("block", [0xFCBBBB00, 0x20010000])
def test_an_address_is_written_as_the_standard_library_writes_it(block: int, sids: list[int]) -> None:
    value = block << 96 | sum(sid << (80 - 16 * index) for index, sid in enumerate(sids))
    assert address_text(block, sids) == str(ipaddress.IPv6Address(value))


def test_a_nic_has_an_address_of_its_own_in_every_plane() -> None:
    own = {identity(plane, nic) for plane in range(2) for nic in range(12)}
    assert len(own) == 24
    assert not any(ipaddress.IPv6Address(each) in ipaddress.IPv6Network("fcbb:bb00::/31") for each in own)


ROOMY = ["two-tier", "bundles", "two-sites", "one-switch-a-site", "unlike-planes", "shifting-downlinks"]


@pytest.mark.parametrize("name", ROOMY)
def test_every_nic_has_an_address_of_its_own_and_every_path_ends_as_it(name: str) -> None:
    made = plan(name)
    for sids in made.planes:
        plane, shape = sids.shape.plane, sids.shape
        assert sids.is_unique
        own = [made.nic_address(plane, nic) for nic in range(shape.nics)]
        assert len(set(own)) == shape.nics
        for source, destination in ((0, shape.nics - 1), (shape.nics - 1, 0), (0, 1)):
            for choice in choices(shape, source, destination):
                way = path(made, source, destination, choice)
                shifted = way.sids[len(way.nodes) - 2 + bool(sids.nic) :]  # a switch each, and a uA shifts once more
                assert made.address(plane, list(shifted)) == own[destination]


@pytest.mark.parametrize(
    ("text", "depth"),
    [(SMALL["three-tier"], 6), (SMALL["two-sites"] + "usid: {downlink: ua}\n", 6)],
    ids=["three tiers", "two sites, shifting downlinks"],
)
def test_nics_share_an_address_where_six_usids_have_no_room(text: str, depth: int) -> None:
    made = planned(text)
    assert made.depth == depth
    assert not made.planes[0].is_unique
    own = {made.nic_address(0, nic) for nic in range(made.topology.nics)}
    assert len(own) < made.topology.nics
