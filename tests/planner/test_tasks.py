"""Forecasts on a Ray cluster: the same numbers as here, and a refusal or a lost worker in one line."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from openmrc.errors import ConfigError, MrcError
from openmrc.fabric.model.parts import load_parts
from openmrc.planner.comparison import JobQuestion
from openmrc.planner.outcome import outcome
from openmrc.planner.sensitivity import inputs
from openmrc.planner.tasks import on_ray, one_by_one
from tests.ray_in_process import Ray, RayError

PARTS = load_parts()
SMALL = JobQuestion(gpus=4096, jobs=2, days=3)
BROKEN_EVEN = ("restart time", "NIC flap, time between failures", "remap time of MRC")


class RayTaskError(RayError):
    """What Ray raises for an error within a task."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Ray:
    made = Ray("ray")
    monkeypatch.setitem(sys.modules, "ray", made)
    return made


def test_a_cluster_gives_the_numbers_of_one_process(ray: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    few = [each for each in inputs(SMALL, PARTS) if each.name in BROKEN_EVEN]
    monkeypatch.setattr("openmrc.planner.sensitivity.inputs", lambda *_: few)
    here, there = (outcome(SMALL, ("mrc", "roce_adaptive"), PARTS, deep=True, run=run) for run in (one_by_one, on_ray))
    assert ray.tasks > 2 + len(few) * 4  # networks, and what sensitivity varies
    assert here == there


def test_results_come_in_the_order_of_the_tasks(ray: Ray) -> None:
    assert on_ray([partial(pow, 2, exponent) for exponent in range(5)]) == [1, 2, 4, 8, 16]


def test_a_refusal_within_a_task_is_the_one_of_this_process(ray: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    def get(one: Any) -> Any:
        try:
            return one()
        except ConfigError as error:
            raise RayTaskError(error) from error

    monkeypatch.setattr(ray, "get", get)
    with pytest.raises(ConfigError, match="gpus = 1; 2 to"):
        outcome(replace(SMALL, gpus=1), ("mrc",), PARTS, run=on_ray)


def test_a_worker_that_is_lost_for_good_is_named(ray: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(_: Any) -> Any:
        raise RayError

    monkeypatch.setattr(ray, "get", lost)
    with pytest.raises(MrcError, match=r"--on ray: a worker failed repeatedly .*nothing was written"):
        on_ray([partial(pow, 2, 2)])


def test_without_ray_the_answer_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match="ray is not installed"):
        on_ray([])
