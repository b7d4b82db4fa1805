import dataclasses
import random
import time
from pathlib import Path

import numpy as np
import pytest

from harness.every_path import check_all
from openmrc.fabric.addressing.sid_tables import Action, Tables, build_tables, join
from openmrc.fabric.addressing.usid import UsidPlan, usid_plan
from openmrc.fabric.model.build import build, load
from openmrc.fabric.proof.verify import Verdict, verify
from tests.fabric.small_fabrics import SMALL, plan

FABRICS = Path(__file__).parents[2] / "scenarios" / "fabrics"


def agree(made: UsidPlan, tables: Tables) -> Verdict:
    """Return the verdict after holding it against every packet."""
    verdict, count = verify(made, tables), check_all(made, tables)
    assert (verdict.pairs, verdict.paths, verdict.delivered) == (count.pairs, count.paths, count.delivered)
    return verdict


def changed(tables: Tables, row: int, **values: int) -> Tables:
    copy = {name: getattr(tables, name).copy() for name in vars(tables)}
    for name, value in values.items():
        copy[name][row] = value
    return dataclasses.replace(tables, **copy)


def corrupted(made: UsidPlan, tables: Tables, draw: random.Random) -> tuple[Tables, int]:
    """Return tables with one entry wrong in one of the ways entries go wrong, and its switch."""
    row = draw.randrange(len(tables))
    switch, port, usid = int(tables.switch[row]), int(tables.port[row]), int(tables.usid[row])
    blocks = sorted({plane.block for plane in made.planes} | {0xFCBBBBFF})
    elsewhere = draw.choice([block for block in blocks if block != int(tables.block[row])])
    other = draw.choice([s for s in set(tables.switch.tolist()) if s != switch])
    how = draw.choice(["port", "usid", "action", "gone", "twice", "block", "switch"])
    match how:
        case "port":
            wrong = [p for p in range(-1, 20) if p != port]
            if tables.action[row] == Action.UN:
                return changed(tables, row, action=Action.ROUTE, port=draw.choice(wrong)), switch
            return changed(tables, row, port=draw.choice(wrong)), switch
        case "usid":
            return changed(tables, row, usid=draw.choice([usid ^ 1 << bit for bit in range(16)])), switch
        case "action":
            return changed(tables, row, action=draw.choice([a for a in Action if a != tables.action[row]])), switch
        case "gone":
            return tables.rows(np.delete(np.arange(len(tables)), row)), switch
        case "twice":
            again = changed(tables.rows(np.array([row])), 0, port=draw.randrange(-1, 8))
            return join([tables, again]), switch
        case "block":
            return changed(tables, row, block=elsewhere), switch
        case _:
            return changed(tables, row, switch=other), switch


@pytest.mark.parametrize("name", SMALL)
def test_a_planned_fabric_is_proven_and_every_packet_agrees(name: str) -> None:
    made = plan(name)
    verdict = agree(made, build_tables(made))
    assert verdict.proven
    assert verdict.delivered == verdict.paths > 0


@pytest.mark.needs("jit")  # no kernel is called: interpreted it would be the same again
@pytest.mark.parametrize("name", SMALL)
def test_every_corruption_is_found_and_every_packet_agrees(name: str) -> None:
    made = plan(name)
    tables = build_tables(made)
    draw = random.Random(name)
    for _ in range(40):
        wrong, switch = corrupted(made, tables, draw)
        verdict = agree(made, wrong)
        assert not verdict.proven
        assert verdict.delivered < verdict.paths
        assert made.topology.name(switch) in {each["switch"] for each in verdict.broken}


@pytest.mark.parametrize("name", SMALL)
def test_many_corruptions_at_once_are_counted_as_every_packet_counts_them(name: str) -> None:
    made = plan(name)
    draw = random.Random(f"many {name}")
    for size in (2, 3, 5, 9):
        wrong = build_tables(made)
        for _ in range(size):
            wrong, _ = corrupted(made, wrong, draw)
        agree(made, wrong)


@pytest.mark.parametrize("name", ["two-tier", "three-tier", "two-sites"])
def test_what_one_entry_costs_is_what_is_missing(name: str) -> None:
    made = plan(name)
    tables = build_tables(made)
    for row in range(0, len(tables), 7):
        less = tables.rows(np.delete(np.arange(len(tables)), row))
        (broken,), count = verify(made, less).broken, check_all(made, less)
        assert broken["paths"] == count.paths - count.delivered > 0
        assert broken["pairs"] == count.pairs - count.pairs_delivered > 0


@pytest.mark.parametrize("name", SMALL)
def test_a_broken_entry_comes_with_a_packet_that_shows_it(name: str) -> None:
    made = plan(name)
    tables = build_tables(made)
    draw = random.Random(f"example {name}")
    for _ in range(30):
        wrong, _ = corrupted(made, tables, draw)
        for broken in verify(made, wrong).broken:
            assert {"switch", "entry", "expected", "found", "pairs", "paths", "example"} <= set(broken)
            assert broken["example"]["source"] != broken["example"]["destination"]


@pytest.mark.needs("jit")  # the same
@pytest.mark.parametrize("name", SMALL)
def test_every_single_entry_has_an_example_when_it_is_gone(name: str) -> None:
    made = plan(name)
    tables = build_tables(made)
    for row in range(len(tables)):
        (broken,) = verify(made, tables.rows(np.delete(np.arange(len(tables)), row))).broken
        assert broken["example"]["becomes"].startswith("dropped, no entry (or two), at " + broken["switch"])


def test_a_broken_fabric_of_full_size_is_told_in_seconds() -> None:
    made = usid_plan(build(load(FABRICS / "paper-131072.yaml")))
    tables = build_tables(made)
    port = tables.port.copy()
    port[np.random.default_rng(1).choice(len(tables), 20, replace=False)] += 1
    start = time.process_time()
    verdict = verify(made, dataclasses.replace(tables, port=port))
    assert time.process_time() - start < 10
    assert verdict.broken_count == len(verdict.broken) == 20
    assert all(each["pairs"] > 0 and "example" in each for each in verdict.broken)


def test_a_wrong_port_names_switch_entry_and_pairs() -> None:
    made = plan("two-tier")
    tables = build_tables(made)
    row = int(np.flatnonzero((tables.usid == 0x2002) & (tables.port == 6) & (tables.block == 0xFCBBBB01))[1])
    verdict = verify(made, changed(tables, row, port=5))
    (broken,) = verdict.broken
    assert broken["switch"] == "p1-t0-01"
    assert broken["entry"] == "fcbb:bb01:2002::/48"
    assert (broken["expected"], broken["found"]) == ("route 6", "route 5")
    assert (broken["paths"], broken["pairs"]) == (4 * 8, 4 * 8)  # four senders under it, eight NICs elsewhere, one EV
    assert broken["example"]["becomes"] == "dropped, no entry (or two), at p1-t1-01"


def test_a_wrong_downlink_names_who_gets_the_packet() -> None:
    made = plan("two-tier")
    tables = build_tables(made)
    row = int(np.flatnonzero((tables.usid == 0xE001) & (tables.block == 0xFCBBBB00))[0])
    (broken,) = verify(made, changed(tables, row, port=2)).broken
    assert broken["example"]["destination"] == "h1"
    assert broken["example"]["becomes"] == "arrives at h2 instead"
    assert broken["pairs"] == 11


@pytest.mark.parametrize(
    ("usid", "change", "delivers", "becomes"),
    [
        (0x2001, {"action": int(Action.UA)}, True, "arrives on the named path all the same"),
        (0x2001, {"port": 6}, False, "dropped, no entry (or two), at p0-t1-02"),
        (0xE001, {"port": 2}, False, "arrives at h2 instead"),
    ],
)
def test_an_entry_that_differs_from_the_plan_but_delivers_is_told_apart(
    usid: int, change: dict[str, int], delivers: bool, becomes: str
) -> None:
    """End.X at an uplink consumes the T1's own uSID a switch early, and the T1 forwards the rest."""
    made = plan("two-tier")
    tables = build_tables(made)
    (row,) = np.flatnonzero((tables.switch == made.topology.node_named("p0-t0-00")) & (tables.usid == usid))
    (broken,) = verify(made, changed(tables, int(row), **change)).broken
    assert (broken["delivers"], broken["example"]["becomes"]) == (delivers, becomes)


def test_a_stranger_among_the_entries_is_reported() -> None:
    made = plan("two-tier")
    tables = build_tables(made)
    stranger = changed(tables.rows(np.array([0])), 0, usid=0x7777)
    verdict = verify(made, join([tables, stranger]))
    assert not verdict.proven
    assert verdict.delivered == verdict.paths
    assert verdict.unexpected == [{"switch": "p0-t0-00", "entry": "fcbb:bb00:7777::/48 un"}]


def test_the_largest_table_is_counted() -> None:
    assert verify(plan("two-tier")).largest_table == 9


def test_no_tables_deliver_nothing() -> None:
    made = plan("two-tier")
    empty = build_tables(made).rows(np.array([], dtype=np.int64))
    verdict = verify(made, empty)
    assert verdict.delivered == 0
    assert verdict.broken_count == len(verdict.broken) == len(build_tables(made))


def test_the_published_fabric_is_proven_in_seconds() -> None:
    start = time.process_time()
    verdict = verify(usid_plan(build(load(FABRICS / "paper-131072.yaml"))))
    assert time.process_time() - start < 10
    assert verdict.proven
    assert verdict.pairs == 131_072 * 131_071
    assert verdict.paths == 8 * 131_072 * (255 + (131_072 - 256) * 256)
