from collections.abc import Sequence

import pytest

from openmrc.errors import ConfigError
from openmrc.fabric.export.cages import Cages, cumulus_port, eos_port, slots, sonic_port, speed_of


def named(gbps: Sequence[float], cages: Cages) -> list[tuple[str, str, str]]:
    return [(sonic_port(slot), cumulus_port(slot), eos_port(slot)) for slot in slots(gbps, cages)]


def test_ports_share_a_cage_by_their_speed() -> None:
    assert named([100.0] * 2 + [400.0] * 2 + [800.0], Cages()) == [
        ("Ethernet0", "swp1s0", "Ethernet1/1"),
        ("Ethernet1", "swp1s1", "Ethernet1/2"),
        ("Ethernet8", "swp2s0", "Ethernet2/1"),
        ("Ethernet12", "swp2s1", "Ethernet2/5"),
        ("Ethernet16", "swp3", "Ethernet3/1"),
    ]


def test_lanes_are_never_given_twice() -> None:
    placed = slots([100] * 5 + [400] * 3 + [200] * 7 + [800] * 2, Cages())
    lanes = [lane for slot in placed for lane in range(slot.first_lane, slot.first_lane + slot.lanes)]
    assert len(lanes) == len(set(lanes))


@pytest.mark.parametrize(
    ("gbps", "cages", "said"),
    [
        ([100.0] * 513, Cages(), "513 ports need 65 cages of 8 x 100G; the switch has 64"),
        ([1600.0], Cages(), "1600G is more than a cage of 8 x 100G; lanes of 200G would work"),
        ([400.0], Cages(breakout=8), "breakout 8 leaves 1 lanes of 100G for a port of 400G; 2 would work"),
        ([3000.0], Cages(), "Ethernet has 10, 25"),
    ],
)
def test_what_a_switch_has_no_cage_for_is_refused(gbps: list[float], cages: Cages, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        slots(gbps, cages)


@pytest.mark.parametrize("cages", [Cages(lanes=3), Cages(breakout=3), Cages(count=0), Cages(lane_gbps=0)])
def test_numbers_that_describe_no_cage_are_refused(cages: Cages) -> None:
    with pytest.raises(ConfigError):
        cages.check()


def test_a_rate_takes_the_next_speed_of_ethernet() -> None:
    assert [speed_of(gbps) for gbps in (1, 10, 26, 400, 900)] == [10, 10, 40, 400, 1600]


def test_only_slow_lanes_go_without_fec() -> None:
    assert [slots([gbps], Cages())[0].fec for gbps in (10, 25, 100, 800)] == [False, True, True, True]
