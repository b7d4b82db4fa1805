import pytest

from openmrc.base.amounts import gbps_of as gbps
from openmrc.errors import ConfigError
from openmrc.fabric.model.clos import capacity
from openmrc.fabric.model.parts import load_parts
from openmrc.planner.design import Design, design

PARTS = load_parts()
SWITCH = PARTS.switch(51.2)


def eight_planes() -> Design:
    return design("8-plane", 131_072, 800, SWITCH, PARTS, planes=8)


def single_plane() -> Design:
    return design("single", 131_072, 800, SWITCH, PARTS, tiers=3)


def test_eight_planes_hold_131072_nics_in_two_tiers() -> None:
    many = eight_planes()
    counts = many.as_dict(PARTS)["switches"]
    assert (many.tiers, many.max_hops, many.islands) == (2, 3, 1)
    assert (counts["t0"], counts["t1"], counts["t2"], counts["total"]) == (4_096, 2_048, 0, 6_144)
    assert many.links == 2 * 8 * 131_072
    assert many.planes * many.network.paths == 2_048


def test_the_published_savings_come_out() -> None:
    many, one = eight_planes(), single_plane()
    assert many.optics / one.optics == pytest.approx(2 / 3)
    assert many.total_switches / one.total_switches == pytest.approx(3 / 5)


def test_three_tiers_of_radix_64_hold_65536_nics() -> None:
    assert capacity(64, 3) == 65_536
    assert single_plane().islands == 2
    assert capacity(512, 2) == 131_072


def test_the_published_losses_come_out() -> None:
    many, one = eight_planes().loss_percent(), single_plane().loss_percent()
    assert many["nic_link"] == 12.5
    assert many["t0_t1_link"] == pytest.approx(0.39, abs=0.01)
    assert one["t0_t1_link"] == pytest.approx(3.1, abs=0.05)
    assert one["nic_link"] == one["t0"] == one["plane"] == 100
    assert design("4", 1024, 800, SWITCH, PARTS, planes=4).loss_percent()["nic_link"] == 25


def test_losses_of_the_fabric_add_up_to_all_of_it() -> None:
    many = eight_planes()
    lost = many.fabric_loss_percent(800)
    assert lost["nic_link"] * 8 * 131_072 == pytest.approx(100)
    assert lost["t0"] * 4_096 == pytest.approx(100)
    assert lost["t1"] * 2_048 == pytest.approx(100)
    assert lost["t0_optic"] == pytest.approx(8 * lost["nic_link"])


def test_oversubscription_buys_room_with_bisection() -> None:
    half = design("2:1", 131_072, 800, SWITCH, PARTS, planes=8, oversubscription=2)
    assert half.total_switches < eight_planes().total_switches
    assert half.oversubscription == pytest.approx(2, rel=0.01)
    assert half.bisection_tbps == pytest.approx(eight_planes().bisection_tbps / half.oversubscription)


def test_rails_shrink_the_networks() -> None:
    rail = design("rail", 131_072, 800, SWITCH, PARTS, rails=8)
    assert (rail.networks, rail.network.ports, rail.tiers) == (8, 16_384, 3)


def test_power_and_cost_are_the_sum_of_the_parts() -> None:
    many = eight_planes()
    assert many.watts == 6_144 * SWITCH.watts + 524_288 * PARTS.optic.watts
    pairs = 2 * 131_072
    assert many.cost == 6_144 * SWITCH.cost + 524_288 * PARTS.optic.cost + pairs * PARTS.fibre.cost


@pytest.mark.parametrize(
    ("planes", "nics", "said"),
    [
        (7, 1024, "800G does not divide into 7 planes; planes that work: 1, 2, 4, 8, 16"),
        (1, 10**9, "need more than 4 tiers of radix 64"),
    ],
)
def test_a_design_that_cannot_be_is_refused_with_what_would_work(planes: int, nics: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        design("x", nics, 800, SWITCH, PARTS, planes=planes)


def test_an_odd_radix_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"odd radix, 51 ports of 1000G.*planes that work"):
        design("x", 64, 1000, SWITCH, PARTS)


def test_rates_are_read_as_written() -> None:
    assert [gbps(text) for text in ("800G", "51.2T", "400Gbps", "100 gbit/s", "500M")] == [800, 51_200, 400, 100, 0.5]


@pytest.mark.parametrize("text", ["800", "-1G", "0G", "fast", "1.2.3T", ""])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="such as 800G"):
        gbps(text)
