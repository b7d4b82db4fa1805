"""The page of the paper's figures: each in the table has its picture, its scenario, and a verdict that follows."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.paper.drawings import rows
from bench.paper.figures import ALLOWED, IMAGES, PAGE, SCENARIOS, Compared, described, mean_within, whole_ring_us
from bench.sim import published

FIGURES = dict(described())
DRAWN = {"9c", "18a", "18b", "18c", "19a", "19b", "20a", "20b", "20c", "21a", "21b", "21c"}  # on the other page


@pytest.mark.parametrize("number", FIGURES)
def test_a_figure_has_its_curve_its_scenario_its_picture_and_its_row(number: str) -> None:
    about = FIGURES[number]
    assert rows(about["curve"])[1]
    for each in about.get("lines", [about]) if about["kind"] != "flaps" else ():  # drawn from the parts' rates alone
        assert (SCENARIOS / f"{each['scenario']}.yaml").is_file()
    page = PAGE.read_text("utf-8")
    row = re.search(rf"(?m)^\| {re.escape(number)} \| .* \| ([\d.]+)% \| (yes|\*\*no\*\*) \|", page)
    assert row is not None
    assert (float(row[1]) <= 100 * ALLOWED) == (row[2] == "yes")
    (picture,) = re.findall(rf"## Figure {re.escape(number)}\n\n!\[[^\]]*\]\(images/figures/([^)]*)\)", page)
    assert (IMAGES / picture).is_file()


def test_levels_are_means_over_time_and_differences_are_shares_of_theirs() -> None:
    assert mean_within([0.0, 1.0, 2.0], [0.0, 2.0, 2.0], 0.0, 2.0) == pytest.approx(1.5, abs=0.01)
    assert Compared("", theirs=100, ours=90).difference == pytest.approx(-0.1)


def test_sixteen_main_curves_are_within_a_tenth() -> None:
    """A figure counts once, whichever page it is on: of the drawings, with the rule of its row."""
    within = set(re.findall(r"(?m)^\| (\d+[a-d]?) \| .* \| yes \|", PAGE.read_text("utf-8")))
    rows = (line.split(" | ") for line in published.PAGE.read_text("utf-8").splitlines())
    within |= {row[0].strip("| ") for row in rows if len(row) == 8 and row[6] == "yes"} & DRAWN
    assert len(within) >= 16


def test_the_rest_of_a_ring_takes_as_long_as_the_second_half_of_its_first_steps() -> None:
    us = 1_000_000
    work = SimpleNamespace(moving=np.arange(8), traffic=SimpleNamespace(source=np.tile([0, 1], 4)))
    finished = np.array([30, 29, 40, 41, 50, 51, 61, 60]) * us  # two ranks, four steps
    run: Any = SimpleNamespace(work=work, results=SimpleNamespace(finished=finished))
    assert whole_ring_us(run, steps=10) == pytest.approx(61 + 6 * (61 - 41) / 2)
