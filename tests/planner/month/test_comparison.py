"""Where the answer turns, and what changes it: the lead of a network moves in ways that can be explained."""

from __future__ import annotations

from dataclasses import replace

import pytest

from openmrc.errors import ConfigError
from openmrc.fabric.model.parts import load_parts
from openmrc.planner.month.comparison import (
    JobQuestion,
    answer,
    best_policy,
    break_even,
    lead,
    scaled,
    sensitivity,
    turning_point,
)
from openmrc.planner.month.policy import Policy

PARTS = load_parts()
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
    assert lead(replace(SMALL, policy=policy), PAIR, PARTS) > 0


def test_faster_restarts_shrink_the_lead_of_the_network_that_stops_less() -> None:
    slow, fast = (replace(SMALL, policy=Policy(restart_s=seconds)) for seconds in (1800.0, 10.0))
    assert lead(slow, PAIR, PARTS) > lead(fast, PAIR, PARTS)


def test_host_failures_do_not_count_as_the_networks() -> None:
    worse = scaled(PARTS, ("host",), 3.0)
    one, other = (answer(SMALL, "mrc", parts) for parts in (PARTS, worse))
    assert other.goodput.mean() < one.goodput.mean()
    assert other.network_loss <= one.network_loss * 1.1


def test_break_even_names_what_turns_and_what_does_not() -> None:
    found = break_even(replace(SMALL, jobs=4), PAIR, PARTS)
    assert found["lead_percent"] > 0
    assert set(found) >= {"restart_s", "nic_flap_mtbf_hours", "remap_s", "gpu_hour_price"}
    assert found["gpu_hour_price"] is None or found["gpu_hour_price"] >= 0


def test_sensitivity_is_sorted_by_its_swing() -> None:
    rows = sensitivity(replace(SMALL, jobs=2), PAIR, PARTS, most=5)
    swings = [max(abs(row[f"{network}_{way}"]) for network in PAIR for way in ("half", "double")) for row in rows]
    assert len(rows) == 5
    assert swings == sorted(swings, reverse=True)
    assert {row["input"] for row in rows} & {"host failures", "checkpoint interval"}


def test_the_best_policy_is_no_worse_than_the_given_one() -> None:
    few = replace(SMALL, jobs=4)
    assert best_policy(few, "mrc", PARTS)["goodput_percent"] >= 100 * answer(few, "mrc", PARTS).goodput.mean()


def test_questions_that_make_no_job_are_refused() -> None:
    with pytest.raises(ConfigError, match="gpus = 1; 2 to"):
        lead(replace(SMALL, gpus=1), PAIR, PARTS)
    with pytest.raises(ConfigError, match="seed = 4294967296; 0 to 4294967295"):
        lead(replace(SMALL, seed=1 << 32), PAIR, PARTS)
    with pytest.raises(ConfigError, match="planes = 3; 2, 4, 8 or 16"):
        lead(replace(SMALL, planes=3), PAIR, PARTS)
