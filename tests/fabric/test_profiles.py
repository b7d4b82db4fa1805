import itertools
from collections import Counter
from typing import Any

import pytest

from openmrc.errors import ConfigError
from openmrc.fabric.addressing.paths import choices, path
from openmrc.fabric.addressing.profiles import extract, profile, spread
from openmrc.fabric.addressing.usid import UsidPlan, address_text
from tests.fabric.small_fabrics import SMALL, plan


def deposit(value: int, mask: int) -> int:
    """Put the bits of a number under a mask, the lowest lowest."""
    placed, bit = 0, 0
    while mask >> bit:
        if mask >> bit & 1:
            placed |= (value & 1) << bit
            value >>= 1
        bit += 1
    assert value == 0
    return placed


def address(fields: list[dict[str, int]], numbers: list[int]) -> str:
    text = [field["init_val"] | deposit(number, field["mask"]) for field, number in zip(fields, numbers, strict=True)]
    return address_text(text[0], text[1:])


def expanded(body: dict[str, Any]) -> list[str]:
    """Expand a profile as an endpoint does: EV bits, most significant first, into the masks in field order."""
    fields = body["fields"]
    if body["mode"] == "generated":
        ranges = [range(field["min_val"], field["max_val"] + 1) for field in fields]
        return [address(fields, list(numbers)) for numbers in itertools.product(*ranges)]
    found = []
    for ev in body["evs"]:
        bits, numbers = bin(int("1" + ev, 16))[3:], []
        for field in fields:
            width = field["mask"].bit_count()
            numbers.append(int(bits[:width] or "0", 2))
            bits = bits[width:]
        assert "1" not in bits
        found.append(address(fields, numbers))
    return found


def all_paths(made: UsidPlan, source: int, destination: int) -> list[str]:
    ways = [way for sids in made.planes for way in choices(sids.shape, source, destination)]
    return [path(made, source, destination, way).address for way in ways]


@pytest.mark.parametrize("name", SMALL)
def test_an_explicit_profile_expands_to_paths_and_only_these(name: str) -> None:
    made = plan(name)
    last = made.topology.nics - 1
    for source, destination in ((0, last), (last, 0), (0, 1)):
        made_of = profile(made, source, destination, "explicit", 1024)
        assert sorted(set(expanded(made_of["profile"]))) == sorted(all_paths(made, source, destination))
        assert made_of["format"]["widths"] == [field["width"] for field in made_of["profile"]["fields"]]


@pytest.mark.parametrize("name", ["two-tier", "two-sites", "one-switch-a-site", "shifting-downlinks"])
def test_a_generated_profile_names_no_path_that_is_not_there(name: str) -> None:
    made = plan(name)
    last = made.topology.nics - 1
    for source, destination in ((0, last), (last, 0), (0, 1), (1, 2)):
        got = expanded(profile(made, source, destination, "generated")["profile"])
        assert len(set(got)) == len(got)
        assert set(got) <= set(all_paths(made, source, destination))
        assert {each[:9] for each in got} == {f"fcbb:bb0{plane}" for plane in range(len(made.planes))}


def test_a_generated_profile_of_two_tiers_has_every_path() -> None:
    made = plan("two-tier")
    assert sorted(expanded(profile(made, 0, 11, "generated")["profile"])) == sorted(all_paths(made, 0, 11))


def test_planes_that_differ_cannot_be_generated() -> None:
    with pytest.raises(ConfigError, match="use mode explicit"):
        profile(plan("unlike-planes"), 0, 15, "generated")


def test_every_plane_has_an_equal_share() -> None:
    made = plan("two-tier")
    for count in (2, 4, 8):
        assert set(Counter(way.plane for way in spread(made, 0, 11, count)).values()) == {count // 2}


def test_a_small_profile_is_spread_over_the_uplinks_and_differs_between_hosts() -> None:
    made = plan("two-tier")
    assert {way.uplink for way in spread(made, 0, 11, 4)} == {0, 2}
    assert {way.uplink for way in spread(made, 1, 11, 4)} == {1, 3}


def test_extracting_undoes_depositing() -> None:
    for mask in (0, 1, 0b1010, 0x0F0F, 0xFFFF):
        for number in range(min(1 << mask.bit_count(), 300)):
            assert extract(deposit(number, mask) | 0x10000, mask) == number
