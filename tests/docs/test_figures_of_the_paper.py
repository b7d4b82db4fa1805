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


def test_the_page_counts_the_curves_within_a_tenth_and_gives_each_other_one_its_cause() -> None:
    """A figure counts once, whichever page it is on: of the drawings, in its first row. At least 16 are within."""
    page = PAGE.read_text("utf-8")
    verdicts = {
        row[1]: row[2] == "yes" for row in re.finditer(r"(?m)^\| (\d+[^|]*) \| .* \| (yes|\*\*no\*\*) \|", page)
    }
    for line in published.PAGE.read_text("utf-8").splitlines():
        cells = line.strip("| ").split(" | ")
        if len(cells) == 8 and cells[0] in DRAWN:
            verdicts.setdefault(cells[0], cells[6] == "yes")
    assert set(verdicts) == set(FIGURES) | DRAWN
    within = sum(verdicts.values())
    assert within >= 16
    assert f"{within} of {len(verdicts)} curves are within their rule" in page
    others = re.findall(r"(?m)^\| (\d+[^|]*) \| [^|]* \| [^|]* \|$", page.partition("## Outside a tenth")[2])
    assert sorted(others) == sorted(number for number, holds in verdicts.items() if not holds)


def test_the_rest_of_a_ring_takes_as_long_as_the_second_half_of_its_first_steps() -> None:
    us = 1_000_000
    work = SimpleNamespace(moving=np.arange(8), traffic=SimpleNamespace(source=np.tile([0, 1], 4)))
    finished = np.array([30, 29, 40, 41, 50, 51, 61, 60]) * us  # two ranks, four steps
    run: Any = SimpleNamespace(work=work, results=SimpleNamespace(finished=finished))
    assert whole_ring_us(run, steps=10) == pytest.approx(61 + 6 * (61 - 41) / 2)
