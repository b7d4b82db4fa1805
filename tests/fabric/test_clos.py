"""What is planned is what is built: every network of the planner against the arrays made from its description."""

import numpy as np
import pytest

from openmrc.errors import ConfigError
from openmrc.fabric.addressing.usid import usid_plan
from openmrc.fabric.model.build import build
from openmrc.fabric.model.clos import ClosSize, capacity, t0_split
from openmrc.fabric.model.parts import Switch, load_parts
from openmrc.fabric.model.topology import LinkTier
from openmrc.fabric.proof.verify import verify
from openmrc.planner.design import design

PARTS = load_parts()


def model(tbps: float) -> Switch:
    return Switch(name=f"{tbps}T", tbps=tbps, ports=1024, watts=1, cost=1, source="test")


def built(nics: int, nic_gbps: float, switch: Switch, planes: int, tiers: int, over: float = 1) -> ClosSize:
    """Plan, build the fabric that the plan describes, and check that both have the same parts."""
    planned = design("x", nics, nic_gbps, switch, PARTS, planes=planes, tiers=tiers, oversubscription=over)
    topology = build(planned.fabric("x"))
    one = planned.network
    for tier, count in enumerate(one.switches):
        assert int(np.count_nonzero(topology.node_tier == tier)) == planes * count
    for tier, count in enumerate(one.links):
        assert int(np.count_nonzero(topology.link_tier == LinkTier(tier))) == 2 * planes * count
    assert topology.nodes == nics + planned.total_switches
    return one


@pytest.mark.parametrize("radix", [4, 8, 16, 36, 64, 128])
@pytest.mark.parametrize("tiers", [1, 2, 3])
@pytest.mark.parametrize("over", [1, 1.5, 3])
def test_every_plan_is_built_as_planned(radix: int, tiers: int, over: float) -> None:
    most = min(capacity(radix, tiers, over), 20_000)
    for nics in {2, radix, most // 3 + 1, most}:
        if nics <= most:
            one = built(nics, 100, model(radix / 10), 1, tiers, over)
            assert one.oversubscription <= over


def test_16384_gpus_on_4_planes_have_256_t1_in_the_plan_and_in_the_file() -> None:
    one = built(16_384, 800, PARTS.switch(51.2), 4, 2)
    assert (4 * one.switches[0], 4 * one.switches[1]) == (512, 256)
    assert one.plane is not None
    assert one.plane.t0.bundle == 2


def test_1000_gpus_at_radix_36_fill_their_pods_evenly() -> None:
    one = built(1000, 800, model(28.8), 1, 3)
    assert one.radix == 36
    assert one.switches[0] == 56
    assert one.links[2] == one.links[1]  # as many links up as down, none to spare in a last pod that is part full


@pytest.mark.parametrize(("nics", "tiers"), [(100, 2), (300, 3), (1000, 3)])
def test_a_planned_fabric_is_proven(nics: int, tiers: int) -> None:
    planned = design("x", nics, 800, model(28.8), PARTS, tiers=tiers)
    assert verify(usid_plan(build(planned.fabric("x")))).proven


def test_down_to_up_never_exceeds_what_was_asked() -> None:
    assert [t0_split(64, over) for over in (1, 2, 3)] == [(32, 32), (42, 22), (48, 16)]


def test_four_tiers_are_counted_but_not_built() -> None:
    four = design("four", 131_072, 800, PARTS.switch(51.2), PARTS, tiers=4)
    assert four.network.switches == (4096, 4096, 4096, 2048)
    with pytest.raises(ConfigError, match="a fabric file has at most 3 tiers, this has 4"):
        four.fabric("x")


def test_networks_that_are_not_joined_are_no_fabric() -> None:
    islands = design("three", 131_072, 800, PARTS.switch(51.2), PARTS, tiers=3)
    with pytest.raises(ConfigError, match=r"its 2 networks are not joined.*plan one with --gpus 65536"):
        islands.fabric("x")


def test_ranges_of_usids_are_moved_where_the_plan_needs_more_room() -> None:
    planned = design("x", 16_384, 400, model(51.2), PARTS, tiers=3)
    fabric = planned.fabric("x")
    assert fabric.usid.t2 == 0x4000
    assert usid_plan(build(fabric)).depth == 6


def test_machines_must_come_out_whole() -> None:
    many = design("x", 1000, 800, PARTS.switch(51.2), PARTS, planes=8)
    with pytest.raises(ConfigError, match="1000 NICs do not fill machines of 16; 992 would"):
        many.fabric("x", 16)
