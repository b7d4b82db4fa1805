import time
from pathlib import Path

import numpy as np
import pytest

from openmrc.base.yaml_file import decode_text
from openmrc.errors import ConfigError
from openmrc.fabric.model.build import build, load
from openmrc.fabric.model.description import Fabric
from openmrc.fabric.model.shape import PlaneShape
from openmrc.fabric.model.topology import LinkTier, NodeKind, Topology

FABRICS = Path(__file__).parents[2] / "scenarios" / "fabrics"
REGULAR = ["lab", "gpus-1024", "fat-tree", "two-sites", "rails"]
BUNDLES = """
name: bundles
hosts: {count: 21, nics: 2}
planes:
  - host_gbps: 100
    t0: {down: 4, up: 4, bundle: 2, up_gbps: 200}
    t1: {down: 6, up: 4, bundle: 2}
    t2: {}
"""


def topology(name: str) -> Topology:
    fabric = decode_text(BUNDLES, Fabric, "bundles") if name == "bundles" else load(FABRICS / f"{name}.yaml")
    return build(fabric)


@pytest.mark.parametrize("name", [*REGULAR, "bundles", "irregular"])
def test_every_link_has_its_way_back(name: str) -> None:
    t = topology(name)
    back = t.link_reverse
    assert (back[back] == np.arange(t.links)).all()
    assert (t.link_source[back] == t.link_destination).all()
    assert (t.link_rate[back] == t.link_rate).all()
    assert (t.link_delay[back] == t.link_delay).all()


@pytest.mark.parametrize("name", [*REGULAR, "bundles", "irregular"])
def test_no_two_links_share_a_port(name: str) -> None:
    t = topology(name)
    ends = t.link_source.astype(np.int64) << 32 | t.link_port
    assert len(np.unique(ends)) == t.links
    assert (t.link_port >= 0).all()


@pytest.mark.parametrize("name", [*REGULAR, "bundles"])
def test_the_arithmetic_finds_the_links(name: str) -> None:
    t = topology(name)
    for s in t.planes:
        nic = np.arange(t.nics)
        assert (t.link_source[s.host_up + nic] == nic).all()
        assert (t.link_destination[s.host_up + nic] == s.first_t0 + s.t0_of(nic)).all()
        assert (t.link_port[s.host_down + nic] == s.t0_port_of(nic)).all()
        assert [s.nic_at(int(s.t0_of(n)), int(s.t0_port_of(n))) for n in range(0, t.nics, 7)] == list(
            range(0, t.nics, 7)
        )
        t0, up = np.divmod(np.arange(s.t0_count * s.t0_up), s.t0_up)
        assert (t.link_source[s.fabric_up + t0 * s.t0_up + up] == s.first_t0 + t0).all()
        assert (t.link_port[s.fabric_up + t0 * s.t0_up + up] == s.t0_down + up).all()
        assert (t.node_tier[t.link_destination[s.fabric_up + t0 * s.t0_up + up]] == 1).all()


@pytest.mark.parametrize("name", [*REGULAR, "bundles"])
def test_planes_share_no_switch(name: str) -> None:
    t = topology(name)
    for end in (t.link_source, t.link_destination):
        switch = t.node_kind[end] == NodeKind.SWITCH
        assert (t.node_plane[end][switch] == t.link_plane[switch]).all()


def degrees(t: Topology, s: PlaneShape, first: int, count: int) -> set[int]:
    return set(np.bincount(t.link_source, minlength=t.nodes)[first : first + count].tolist())


def test_the_published_fabric_has_the_published_counts() -> None:
    t = topology("paper-131072")
    assert t.nics == 131_072
    assert sum(s.t0_count for s in t.planes) == 4_096
    assert sum(s.t1_count for s in t.planes) == 2_048
    for s in t.planes:
        assert degrees(t, s, s.first_t0, s.t0_count + s.t1_count) == {512}
        assert s.paths == 256
    assert t.links == 2 * 2 * 131_072 * 8


def test_the_published_fabric_builds_in_seconds() -> None:
    fabric = load(FABRICS / "paper-131072.yaml")
    start = time.process_time()
    t = build(fabric)
    assert time.process_time() - start < 5
    held = sum(getattr(t, name).nbytes for name in vars(t) if name.startswith(("node_", "link_")))
    assert held < 300_000_000


def test_a_fat_tree_has_full_bisection_in_every_tier() -> None:
    t = topology("fat-tree")
    for tier in (LinkTier.HOST, LinkTier.FABRIC, LinkTier.CORE):
        assert t.link_rate[t.link_tier == tier].sum() == 2 * 4096 * 800_000_000_000


def test_bundles_and_a_half_empty_pod_are_wired_as_said() -> None:
    t = topology("bundles")
    (s,) = t.planes
    assert (s.t0_count, s.t1_count, s.t2_count, s.pods) == (11, 8, 4, 4)  # 42 NICs, 3 T0 a pod, the last pod has 2
    pairs = set(zip(t.link_source.tolist(), t.link_destination.tolist(), strict=True))
    assert (s.first_t0, s.first_t1) in pairs
    assert (s.first_t1 + 6, s.first_t2) in pairs
    assert (s.first_t1 + 7, s.first_t2) not in pairs  # odd positions meet odd T2s
    assert s.nic_at(10, 2) == -1  # 42 NICs fill ten T0s and a half


def test_rails_keep_the_nics_of_a_machine_apart() -> None:
    t = topology("rails")
    s = t.planes[0]
    assert [s.t0_of(nic) for nic in range(8)] == list(range(8))
    assert s.t0_of(8) == 0
    assert s.t0_port_of(8) == 1
    assert s.t0_of(16 * 8) == 8  # the seventeenth machine starts the next group


def test_planes_may_differ_in_speed() -> None:
    t = topology("rails")
    rates = [int(t.link_rate[s.host_up]) for s in t.planes]
    assert rates == [200_000_000_000, 200_000_000_000, 100_000_000_000]
    assert int(t.link_rate[t.planes[2].fabric_up]) == 400_000_000_000


def test_two_sites_meet_only_over_long_links() -> None:
    t = topology("two-sites")
    site = np.full(t.nodes, -1)
    for s in t.planes:
        nic = np.arange(t.nics)
        site[nic] = nic // s.nics_per_site
        site[s.first_t0 : s.first_t0 + s.t0_count] = np.arange(s.t0_count) // s.t0_per_site
        site[s.first_t1 : s.first_t1 + s.t1_count] = np.arange(s.t1_count) // s.t1_per_pod
    crosses = site[t.link_source] != site[t.link_destination]
    assert (crosses == (t.link_tier == LinkTier.LONG)).all()
    assert set(t.link_delay[crosses].tolist()) == {250_000_000}
    assert crosses.sum() == 4 * 2 * 16 * 2  # planes x ways x T1 a site x links


def test_scale_up_domains_count_gpus() -> None:
    t = topology("gpus-1024")
    assert t.scale_up_domain()[[0, 63, 64, 1023]].tolist() == [0, 0, 1, 15]
    assert set(topology("lab").scale_up_domain().tolist()) == {-1}


@pytest.mark.parametrize("name", ["lab", "gpus-1024", "irregular"])
def test_names_lead_back_to_their_nodes(name: str) -> None:
    t = topology(name)
    assert [t.node_named(t.name(node)) for node in range(t.nodes)] == list(range(t.nodes))


@pytest.mark.parametrize("name", ["h16", "p4-t0-00", "p0-t0-04", "p0-t2-00", "switch"])
def test_an_unknown_name_is_refused_with_the_names_there_are(name: str) -> None:
    with pytest.raises(ConfigError, match=r"NICs are h0 to h15, switches p0-t0-00 to p3-t1-03"):
        topology("lab").node_named(name)


def test_each_nodes_links_come_out_by_port() -> None:
    t = topology("lab")
    first, out = t.outgoing
    for node in range(t.nodes):
        mine = out[first[node] : first[node + 1]]
        assert (t.link_source[mine] == node).all()
        assert t.link_port[mine].tolist() == list(range(len(mine)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("b: left, gbps: 100}", "b: lost, gbps: 100}"), "'lost'"),
        (("a: left, b: right", "a: left, b: left"), "to itself"),
        (("{name: b,", "{name: a,"), "two nodes are called 'a'"),
    ],
)
def test_a_list_of_links_that_makes_no_sense_is_refused(change: tuple[str, str], said: str) -> None:
    text = (FABRICS / "irregular.yaml").read_text()
    with pytest.raises(ConfigError, match=said):
        build(decode_text(text.replace(*change), Fabric, "irregular"))
