"""Where the answer turns, and what changes it: the lead of a network moves in ways that can be explained."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from openmrc.errors import ConfigError
from openmrc.fabric.model.parts import Basis, load_parts
from openmrc.planner.causes import failure_kinds
from openmrc.planner.comparison import JobQuestion, answer, best_policy, situation_of
from openmrc.planner.policy import KNOWN, Policy
from openmrc.planner.response_table import responses
from openmrc.planner.sensitivity import (
    SPREAD,
    Case,
    break_even,
    case_of,
    inputs,
    lead,
    sensitivity,
    turning_point,
    turns_of,
)

PARTS = load_parts()
TABLE = responses()
SMALL = JobQuestion(gpus=16384, jobs=10, days=20)
PAIR = ("mrc", "roce_adaptive")


def test_a_turning_point_is_found_between_two_signs_only() -> None:
    assert turning_point(lambda value: value - 30, 1, 1000) == pytest.approx(30, rel=0.03)
    assert turning_point(lambda value: value, 1, 1000) is None


@pytest.mark.parametrize(("checkpoint_s", "restart_s"), [(1800.0, 900.0), (900.0, 300.0), (300.0, 180.0), (60.0, 60.0)])
def test_no_checkpoint_or_restart_turns_lost_planes_into_a_loss_against_stops(
    checkpoint_s: float, restart_s: float
) -> None:
    """Degraded hosts are swapped at stops that happen anyway, so they never cost more than the stop they avoid."""
    policy = Policy(checkpoint_s=checkpoint_s, restart_s=restart_s, lag_s=30.0)
    assert lead((replace(SMALL, policy=policy), PARTS, TABLE), PAIR) > 0


def test_faster_restarts_shrink_the_lead_of_the_network_that_stops_less() -> None:
    slow, fast = ((replace(SMALL, policy=Policy(restart_s=seconds)), PARTS, TABLE) for seconds in (1800.0, 10.0))
    assert lead(slow, PAIR) > lead(fast, PAIR)


def test_host_failures_do_not_count_as_the_networks() -> None:
    _, worse, _ = changed("GPU, time between failures", PARTS.host.gpu.mtbf_hours / 6)
    one, other = (answer(SMALL, "mrc", parts) for parts in (PARTS, worse))
    assert other.goodput.mean() < one.goodput.mean()
    assert other.network_loss <= one.network_loss * 1.1


def test_break_even_names_what_turns_and_what_does_not() -> None:
    found = break_even(replace(SMALL, jobs=4), PAIR, PARTS, TABLE)
    assert found["lead_percent"] > 0
    assert set(found) >= {"restart_s", "nic_flap_mtbf_hours", "remap_s", "gpu_hour_price"}
    assert found["gpu_hour_price"] is None or found["gpu_hour_price"] >= 0


def changed(name: str, value: float) -> Case:
    """Return the small job with one input changed."""
    (put,) = (each.put for each in inputs(SMALL, PARTS) if each.name == name)
    return put(case_of(SMALL, PARTS, TABLE), value)


def test_every_number_of_a_policy_of_the_parts_and_of_the_groups_is_an_input() -> None:
    """A field that is added is varied, too, or this fails."""
    found = inputs(SMALL, PARTS)
    assert {field.name for field in fields(Policy)} == set(KNOWN)
    rates = len(PARTS.failures.__struct_fields__) + len(PARTS.host.__struct_fields__)
    assert len(found) == len({each.name for each in found}) == len(KNOWN) + 2 * rates + 3 * 2 + 3 + 1
    assert all(each.low <= each.given <= each.high for each in found)
    assert not [each.name for each in found if each.basis == Basis.GIVEN]  # what ships says what it rests on


def test_what_the_user_gave_is_tagged_so_and_the_less_is_known_the_wider_is_the_range() -> None:
    found = {each.name: each for each in inputs(replace(SMALL, policy=Policy(isolate_s=36_000.0)), PARTS)}
    assert found["time until a bad link is shut"].basis == Basis.GIVEN
    assert found["restart time"].basis == Basis.OURS
    wide, narrow = found["NIC flap, time between failures"], found["NIC link, time between failures"]
    assert (wide.basis, wide.given / wide.low) == (Basis.OURS, SPREAD[Basis.OURS])
    assert (narrow.basis, narrow.high / narrow.given) == (Basis.PUBLISHED, SPREAD[Basis.PUBLISHED])


@pytest.mark.parametrize("policy", [Policy(), Policy(checkpoint_s=4.0), Policy(pause_s=500.0), Policy(evict=False)])
def test_both_ends_of_every_range_make_a_job(policy: Policy) -> None:
    question = replace(SMALL, policy=policy)
    for each in inputs(question, PARTS):
        for value in (each.low, each.high):
            changed_question, parts, table = each.put(case_of(question, PARTS, TABLE), value)
            failure_kinds(situation_of(changed_question, "roce", parts, table))


def test_half_of_what_was_measured_is_half_of_what_it_adds() -> None:
    _, _, table = changed("congestion without failures", 0.5)
    before, after = (each.congestion("roce", "all_reduce") for each in (TABLE, table))
    assert after - 1 == pytest.approx((before - 1) / 2)
    _, _, table = changed("slower collectives during failures", 2.0)
    before, after = (each.slow("roce", "all_reduce", "nic_grey_1e-2") for each in (TABLE, table))
    assert after - 1 == pytest.approx(2 * (before - 1))


def test_sensitivity_has_the_largest_swing_first_and_the_order_of_the_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [each for each in inputs(SMALL, PARTS) if each.name.startswith(("T0 m", "congestion", "restart", "GPU"))]
    monkeypatch.setattr("openmrc.planner.sensitivity.inputs", lambda *_: few)
    found = sensitivity(replace(SMALL, jobs=2, days=5, gpus=2048), ("mrc", "uet", "roce"), PARTS, TABLE)
    swings = [max(abs(moved) for end in row["ends"] for moved in end["moves"].values()) for row in found["inputs"]]
    assert swings == sorted(swings, reverse=True)
    assert found["order"] == ["mrc", "uet", "roce"]
    moves = {row["name"]: row["ends"] for row in found["inputs"]}
    assert all(value == 0 for end in moves["T0 maintenance, repair time"] for value in end["moves"].values())
    assert moves["congestion without failures"][1]["moves"]["roce"] < -1


def test_a_network_passes_another_where_both_places_are_certain() -> None:
    """Goodput of three jobs; the second network overtakes, the third is within its noise of the first."""
    before = np.array([[90.0, 91.0, 92.0], [80.0, 81.0, 82.0], [89.0, 92.0, 92.0]])
    after = np.array([[70.0, 71.0, 72.0], [80.0, 81.0, 82.0], [71.0, 70.0, 72.5]])
    assert turns_of(("a", "b", "c"), before, after) == [("b", "a"), ("b", "c")]
    assert turns_of(("a", "b", "c"), before, before) == []


def test_the_best_policy_is_no_worse_than_the_given_one() -> None:
    few = replace(SMALL, jobs=4)
    assert best_policy(few, "mrc", PARTS)["goodput_percent"] >= 100 * answer(few, "mrc", PARTS).goodput.mean()


def test_questions_that_make_no_job_are_refused() -> None:
    with pytest.raises(ConfigError, match="gpus = 1; 2 to"):
        answer(replace(SMALL, gpus=1), "mrc", PARTS)
    with pytest.raises(ConfigError, match="seed = 4294967296; 0 to 4294967295"):
        answer(replace(SMALL, seed=1 << 32), "mrc", PARTS)
    with pytest.raises(ConfigError, match="planes = 3; 2, 4, 8 or 16"):
        answer(replace(SMALL, planes=3), "mrc", PARTS)
