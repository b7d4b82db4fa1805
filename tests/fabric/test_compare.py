from pathlib import Path

import pytest

from openmrc.errors import ConfigError
from openmrc.fabric.model.parts import PARTS_FILE, load_parts
from openmrc.planner.compare import Wish, cheapest, compared, missed, ratios

PARTS = load_parts()
SWITCH = PARTS.switch(51.2)


def test_the_comparison_has_planes_tree_and_rails() -> None:
    designs = compared(Wish(131_072, 800), 8, SWITCH, PARTS, rails=8)
    assert [(each.tiers, each.islands) for each in designs] == [(2, 1), (3, 2), (4, 1), (3, 1)]
    assert ratios(designs)["single-plane-3-tier"]["switches"] == pytest.approx(0.6)


def test_a_small_fabric_is_compared_with_a_tree_no_higher_than_it_needs() -> None:
    names = [each.name for each in compared(Wish(1024, 800), 8, SWITCH, PARTS)]
    assert names == ["8-plane", "single-plane-2-tier", "single-plane-3-tier"]


def test_the_cheapest_design_is_no_dearer_than_any_other_that_fits() -> None:
    wish = Wish(131_072, 800, max_hops=3)
    found = cheapest(wish, PARTS)
    assert found[0].cost == min(each.cost for each in found)
    assert all(not missed(each, wish) for each in found)
    assert all(each.max_hops <= 3 and each.islands == 1 for each in found)
    assert found[0].planes > 1


def test_a_tighter_limit_changes_the_answer() -> None:
    free = cheapest(Wish(131_072, 800), PARTS)[0]
    tight = cheapest(Wish(131_072, 800, max_loss_percent=free.loss_percent()["nic_link"] / 2), PARTS)[0]
    assert tight.cost > free.cost
    assert tight.planes >= 2 * free.planes


def test_more_oversubscription_is_cheaper() -> None:
    full, thin = (cheapest(Wish(131_072, 800, max_oversubscription=over), PARTS)[0] for over in (1, 4))
    assert thin.cost < full.cost
    assert thin.oversubscription > 1


def test_a_wish_nobody_can_meet_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"nearest is .*exceeds max-watts 1 \(it has"):
        cheapest(Wish(131_072, 800, max_watts=1), PARTS)
    with pytest.raises(ConfigError, match="no design of up to 4 tiers holds"):
        cheapest(Wish(10**12, 800), PARTS)


def test_other_parts_change_the_answer(tmp_path: Path) -> None:
    path = tmp_path / "parts.yaml"
    path.write_text(PARTS_FILE.read_text().replace("cost: 35000", "cost: 3500000"))
    assert cheapest(Wish(131_072, 800), load_parts(path))[0].switch.name != "51.2T"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("tbps: 51.2", "tbps: -1"), r"p.yaml:\d+: .*> 0"),
        (("fibre:", "fiber:"), r"unknown field `fiber`"),
        (("host: ", "hostess: "), r"unknown field `hostess`"),
        (("    ports: 512\n", ""), r"missing required field `ports`"),
    ],
)
def test_a_bad_parts_file_is_refused(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(PARTS_FILE.read_text().replace(*change))
    with pytest.raises(ConfigError, match=said):
        load_parts(path)


def test_an_unknown_switch_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"50T.*25.6T, 51.2T, 102.4T"):
        PARTS.switch(50)
