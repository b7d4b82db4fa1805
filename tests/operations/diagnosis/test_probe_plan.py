"""The probe plan: every link crossed, carriers that the tables deliver, faults told apart."""

from __future__ import annotations

import dataclasses
import itertools
import time

import numpy as np
import pytest

from openmrc.base.shipped import find
from openmrc.errors import ConfigError
from openmrc.fabric.addressing.sid_tables import build_tables
from openmrc.fabric.addressing.usid import usid_plan
from openmrc.fabric.addressing.walk import Cabling, Fate, Lookup, walk
from openmrc.fabric.model.build import build, load
from openmrc.fabric.model.description import Fabric, Hosts, Plane, Tier
from openmrc.fabric.model.topology import Topology
from openmrc.operations.diagnosis.certificate import certify, masked_links
from openmrc.operations.diagnosis.elements import PlaneParts
from openmrc.operations.diagnosis.plan_facts import plan_facts, probes_of
from openmrc.operations.diagnosis.probe_plan import (
    PERIOD_PS,
    ProbeKind,
    ProbeSet,
    plan_fabric,
    plan_plane,
    probe_path,
)

FABRICS = ("lab", "gpus-1024", "fat-tree", "rails", "two-sites")


def shipped(name: str) -> Topology:
    return build(load(find(name)))


def two_tiers(nics: int, down: int, planes: int = 1) -> Topology:
    plane = Plane(count=planes, host_gbps=100, t0=Tier(down=down, up=down), t1=Tier())
    return build(Fabric(name="square", hosts=Hosts(count=nics), planes=(plane,)))


def outcomes(probes: ProbeSet, broken: tuple[int, ...]) -> bytes:
    return np.isin(probes.links, broken).any(axis=1).tobytes()


@pytest.mark.parametrize("name", FABRICS)
def test_every_link_is_crossed_and_every_single_fault_told_apart(name: str) -> None:
    topology = shipped(name)
    found = certify(PlaneParts(topology, topology.planes[0]), plan_plane(topology, 0))
    assert found.singles_proven, found


@pytest.mark.parametrize("name", ["lab", "two-sites", "rails"])
def test_the_tables_deliver_every_probe_over_the_links_of_its_row(name: str) -> None:
    topology = shipped(name)
    plan, plane = usid_plan(topology), len(topology.planes) - 1
    probes = plan_plane(topology, plane)
    rows = range(0, len(probes), max(1, len(probes) // 300))
    ways = [probe_path(plan, probes, row) for row in rows]
    stack = np.array([[*way.sids, *[0] * (6 - len(way.sids))] for way in ways])
    lookup = Lookup(topology, build_tables(plan), plan.planes[plane].block)
    walked = walk(topology, build_tables(plan), lookup, Cabling(topology), probes.source[rows], plane, stack)
    assert (walked.fate == Fate.ARRIVED).all()
    assert (walked.last == probes.destination[rows]).all()
    for row, way in zip(rows, ways, strict=True):
        links = probes.links[row][probes.links[row] >= 0] + probes.shape.host_up
        nodes = (*topology.link_source[links], topology.link_destination[links[-1]])
        assert nodes == way.nodes


def test_any_two_faulty_links_leave_a_pattern_of_their_own() -> None:
    topology = two_tiers(nics=24, down=6)
    probes = plan_plane(topology, 0)
    found = certify(PlaneParts(topology, topology.planes[0]), probes)
    assert found.pairs_proven
    sets = [(), *((link,) for link in range(found.links)), *itertools.combinations(range(found.links), 2)]
    assert len({outcomes(probes, each) for each in sets}) == len(sets)


def test_loops_alone_do_not_tell_the_directions_of_a_cable_apart() -> None:
    topology = two_tiers(nics=24, down=6)
    probes = plan_plane(topology, 0)
    loops = probes.kind != ProbeKind.ONE_WAY
    names = [field.name for field in dataclasses.fields(probes) if field.name != "shape"]
    alone = dataclasses.replace(probes, **{name: getattr(probes, name)[loops] for name in names})
    found = certify(PlaneParts(topology, topology.planes[0]), alone)
    assert not found.singles_proven
    assert found.groups_not_told_apart == found.links // 2
    assert all(len(group) == 3 and group[2] == group[0].replace(">", "<>") for group in found.examples)


def test_a_t0_with_two_nics_hides_pairs_and_the_certificate_says_which() -> None:
    topology = two_tiers(nics=8, down=2)
    probes = plan_plane(topology, 0)
    found = certify(PlaneParts(topology, topology.planes[0]), probes)
    links = range(found.links)
    crossed = [frozenset(np.flatnonzero((probes.links == link).any(axis=1))) for link in links]
    hidden = [
        link
        for link in links
        if any(
            crossed[link] <= crossed[one] | crossed[two]
            for one, two in itertools.combinations_with_replacement([each for each in links if each != link], 2)
        )
    ]
    assert masked_links(probes.links, found.links).tolist() == hidden
    assert found.links_two_others_can_hide == len(hidden) > 0


def test_planes_of_equal_shape_share_their_probes() -> None:
    topology = two_tiers(nics=24, down=6, planes=3)
    first, second, _ = plan_fabric(topology)
    assert first.links is second.links
    assert (plan_plane(topology, 1).links == second.links).all()
    assert second.shape.plane == 1


def test_the_probes_of_a_nic_are_spread_over_the_period() -> None:
    probes = plan_plane(shipped("gpus-1024"), 0)
    assert ((probes.phase >= 0) & (probes.phase < probes.period)).all()
    counts = np.histogram(probes.phase[probes.kind == ProbeKind.LOOP_T1], bins=20)[0]
    assert counts.max() < 1.2 * counts.mean()


def test_a_cable_is_crossed_by_about_one_loop_a_period() -> None:
    probes = plan_plane(shipped("gpus-1024"), 0)
    loops = probes.kind == ProbeKind.LOOP_T1
    up = probes.links[loops, 1]
    assert np.bincount(up, PERIOD_PS / probes.period[loops])[np.unique(up)] == pytest.approx(1.0)


def test_131072_nics_are_planned_within_30_seconds() -> None:
    plane = Plane(count=8, host_gbps=100, t0=Tier(down=256, up=256, radix=512), t1=Tier(radix=512))
    topology = build(Fabric(name="published", hosts=Hosts(count=32768, nics=4), planes=(plane,)))
    start = time.perf_counter()
    facts = plan_facts(topology)
    assert time.perf_counter() - start < 30  # 2.4 s alone
    assert facts["probes"] == 8 * 5 * 131072
    assert facts["certificate"]["single faults"]
    assert facts["certificate"]["pairs of directed links"]


def test_the_probes_of_a_nic_begin_and_loops_end_there() -> None:
    rows = probes_of(shipped("lab"), 3)
    assert len(rows) == 5 * len(shipped("lab").planes)
    for row in rows:
        assert row["path"][0] == "h3"
        assert (row["path"][-1] == "h3") == (row["kind"] != "one_way")


def test_an_irregular_fabric_is_refused() -> None:
    with pytest.raises(ConfigError, match="not a Clos of planes: it has no probes"):
        plan_fabric(shipped("irregular"))
