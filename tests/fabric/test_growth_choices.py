"""Ways to grow: what moves nothing first, every count that of a comparison in full."""

import pytest

from openmrc.errors import ConfigError
from openmrc.fabric.addressing.usid import usid_plan
from openmrc.fabric.cabling.grow import grow
from openmrc.fabric.cabling.growth_choices import GrowthChoice, GrowthStep, growth_choices
from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import Fabric, Hosts, Plane, Plant, Tier


def fabric(machines: int, bundle: int = 2, t1_radix: int | None = 16, t0_radix: int = 16, **plant: int) -> Fabric:
    t0, t1 = Tier(down=8, up=8, bundle=bundle, radix=t0_radix), Tier(radix=t1_radix)
    planes = (Plane(count=2, host_gbps=100, t0=t0, t1=t1),)
    return Fabric(name="x", hosts=Hosts(count=machines), planes=planes, plant=Plant(**plant))  # type: ignore[arg-type]


def moved(choices: list[GrowthChoice]) -> list[int]:
    return [each.growth.cables_to_move for each in choices if each.growth is not None]


def test_machines_that_fit_on_free_ports_leave_no_choice() -> None:
    (only,) = growth_choices(fabric(64, t1_radix=32), 128)
    assert only.step == GrowthStep()
    assert only.growth is not None
    assert only.growth.is_pure


def test_where_t1s_are_full_every_way_is_compared_and_the_fewest_moves_are_first() -> None:
    old = fabric(64, t0_radix=32)
    choices = growth_choices(old, 128)
    assert moved(choices) == sorted(moved(choices))
    made = [each.fabric for each in choices if each.fabric is not None]
    assert {each.hosts for each in made} == {Hosts(count=128)}
    compared = [grow(usid_plan(build(old)), usid_plan(build(each))) for each in made]
    assert moved(choices) == [each.cables_to_move for each in compared]
    assert choices[0].step == GrowthStep(bundle_over=2)
    assert "a T1 needs 32 ports, t1.radix has 16" in next(each.refused for each in choices if each.step == GrowthStep())


def test_a_third_tier_on_free_ports_of_t1s_moves_no_cable() -> None:
    choices = growth_choices(fabric(64, t1_radix=32), 256)
    assert choices[0].step == GrowthStep(third_tier=True)
    assert moved(choices)[0] == 0 < moved(choices)[1]
    assert choices[0].oversubscription == {"T0": 1.0, "T1": 1.0}


def test_no_way_is_listed_twice() -> None:
    made = [each.fabric for each in growth_choices(fabric(64, t1_radix=32), 256) if each.fabric is not None]
    assert len(made) == len(set(made)) == 3


def test_ports_are_those_of_the_cages_where_no_radix_is_stated() -> None:
    choices = growth_choices(fabric(64, t1_radix=None, cages=4), 256)
    assert choices[0].step == GrowthStep(third_tier=True)
    refused = next(each.refused for each in choices if each.step == GrowthStep())
    assert "cages" in refused


def test_fewer_machines_are_no_growth() -> None:
    with pytest.raises(ConfigError, match="--machines 64: the fabric has 64 already"):
        growth_choices(fabric(64), 64)
