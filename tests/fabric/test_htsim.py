import pytest

from openmrc.errors import ConfigError
from openmrc.fabric.model.build import build
from openmrc.fabric.model.htsim import parse_topo

LEAF_SPINE = """# comment
Nodes 128
Tiers 2
Podsize 128

Tier 0
Oversubscribed 1
DOWNLINK_speed_Gbps 400
Radix_Down 16
Radix_Up 16
Downlink_Latency_ns 1000
Switch_Latency_ns 250
Tier 1
Downlink_speed_Gbps 400
Radix_Down 8
Downlink_Latency_ns 500
"""
THREE_TIERS = """Nodes 128
Tiers 3
Podsize 16
Tier 0
Downlink_speed_Gbps 400
Radix_Down 4
Radix_Up 4
Tier 1
Downlink_speed_Gbps 400
Radix_Down 4
Radix_Up 4
Tier 2
Downlink_speed_Gbps 400
Radix_Down 8
"""


def test_a_leaf_spine_file_becomes_the_same_leaf_spine() -> None:
    t = build(parse_topo(LEAF_SPINE, "ls.topo"))
    (s,) = t.planes
    assert (t.nics, s.t0_count, s.t1_count, s.t0_up) == (128, 8, 16, 16)
    assert t.link_delay[s.host_up] == 1_000_000
    assert t.link_delay[s.fabric_up] == 500_000
    assert t.node_delay[s.first_t0] == 250_000


def test_core_links_are_striped_as_htsim_stripes_them() -> None:
    t = build(parse_topo(THREE_TIERS, "ft.topo"))
    (s,) = t.planes
    assert (s.t0_count, s.t1_count, s.t2_count) == (32, 32, 16)
    for t1 in range(s.t1_count):
        cores = [int(t.link_destination[s.core_up + t1 * s.t1_up + v]) - s.first_t2 for v in range(s.t1_up)]
        assert cores == [t1 % 4 + 4 * v for v in range(4)]


def test_bundles_thicken_the_links_to_fewer_spines() -> None:
    text = LEAF_SPINE.replace("Tier 1\n", "Tier 1\nBundle 2\n").replace("Radix_Down 8", "Radix_Down 16")
    (s,) = build(parse_topo(text, "ls.topo")).planes
    assert (s.t1_count, s.t0_bundle) == (8, 2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("Nodes 128", "Nodes many"), r"x.topo:2: Nodes 'many'; expected a whole number"),
        (("Nodes 128\n", ""), r"header `Nodes` is missing"),
        (("Tiers 2", "Tiers 4"), r"x.topo:3: Tiers 4; 2 or 3"),
        (("Podsize 128", "Podsize 64"), r"Podsize 64; with two tiers"),
        (("Oversubscribed 1", "Oversubscribed 1\nOversubscribed 1"), r"x.topo:8: 'oversubscribed' is given twice"),
        (("Oversubscribed 1", "Colour 1"), r"x.topo:7: unknown key 'colour'"),
        (("Oversubscribed 1", "Oversubscribed"), r"x.topo:7: .*expected KEY NUMBER"),
        (("Oversubscribed 1", "Oversubscribed 2"), r"x.topo:10: .*oversubscribed says 2"),
        (("Tier 1\n", "Tier 0\n"), r"x.topo:13: Tier 0 is given twice"),
        (("Tier 1\n", "Tier 2\n"), r"`Tier 1` is missing"),
        (("Radix_Down 8", "Radix_Down 7"), r"x.topo:15: .*not a positive multiple"),
        (("Radix_Down 16", "Radix_Down 0"), r"x.topo:9: radix_down 0; a positive"),
        (("Radix_Down 16\n", ""), r"tier 0 has no radix_down"),
        (("Downlink_speed_Gbps 400\nRadix_Down 8", "Downlink_speed_Gbps 1600\nRadix_Down 8"), r"aggregation switches"),
        (("Radix_Down 8", "Radix_Down 8\nRadix_Up 4"), r"x.topo:16: radix_up on the top tier"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(change: tuple[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_topo(LEAF_SPINE.replace(*change), "x.topo")
