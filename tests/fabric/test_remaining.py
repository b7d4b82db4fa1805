"""What remains without some cables, against every path of every pair, one by one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from openmrc.fabric.addressing.paths import choices, path
from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.fabric.model.naming import links_at
from openmrc.fabric.proof.remaining import remaining
from tests.fabric.small_fabrics import SMALL, plan


def counted(made: UsidPlan, gone: set[int]) -> dict[tuple[int, int], tuple[int, int]]:
    """Return (paths left, paths) of every ordered pair, by looking at the cables of each path."""
    topology = made.topology
    first, out = topology.outgoing
    link_of = {(int(topology.link_source[link]), int(topology.link_port[link])): int(link) for link in out[: first[-1]]}
    found = {}
    for a in range(topology.nics):
        for b in range(topology.nics):
            if a != b:
                ways = [path(made, a, b, each) for sids in made.planes for each in choices(sids.shape, a, b)]
                left = sum(not {link_of[hop] for hop in zip(way.nodes, way.ports, strict=False)} & gone for way in ways)
                found[a, b] = left, len(ways)
    return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", SMALL)
def test_what_remains_is_what_every_path_says(name: str, seed: int) -> None:
    made = plan(name)
    draw = random.Random(f"{name} {seed}")
    cables = draw.sample(range(made.topology.links), draw.choice((0, 1, 2, 5, made.topology.links // 4)))
    links = np.array(sorted({*cables, *(made.topology.link_reverse[cable] for cable in cables if draw.random() < 0.8)}))
    paths = counted(made, set(links.tolist()))
    found = remaining(made, links.astype(np.int64))
    assert found.pairs == len(paths)
    assert found.pairs_cut == sum(left == 0 for left, _ in paths.values())
    assert found.pairs_reduced == sum(left < of for left, of in paths.values())
    assert found.fewest / found.of == pytest.approx(min(left / of for left, of in paths.values()))
    names = {made.topology.name(nic): nic for nic in range(made.topology.nics)}
    source, destination = found.worst_pair
    assert paths[names[source], names[destination]] == (found.fewest, found.of)
    assert found.proven == (found.pairs_cut == 0)


def without(name: str, *where: str) -> tuple[int, int, int, int]:
    made = plan(name)
    found = remaining(made, np.concatenate([links_at(made.topology, each) for each in where]))
    return found.pairs_cut, found.fewest, found.of, found.planes_left


def test_a_switch_a_cable_and_a_plane_are_taken_out_by_name() -> None:
    assert without("two-tier", "p0-t1-00") == (0, 7, 8, 2)  # one of four spines on one of two planes
    assert without("two-tier", "h0 port 1") == (0, 1, 2, 1)  # beside the NIC under the same T0
    assert without("two-tier", "plane 0") == (0, 1, 2, 1)
    assert without("two-tier", "plane 0", "h3 port 1")[0] == 2 * 11  # h3 has no plane left
