"""The page of a comparison: scenarios side by side, with their faults and without them."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np

from openmrc.core.arrays import Floats
from openmrc.report import svg
from openmrc.report.page import card, page, rows, tile
from openmrc.report.simulation import number
from openmrc.report.svg import Chart, Curve
from openmrc.report.terminal import compared, errors

Summary = dict[str, Any]
FEW_STEPS = 50  # steps; fewer are drawn as dots


def comparison_page(result: Summary) -> str:
    """Return the page of a comparison."""
    names = [row["name"] for row in result["scenarios"]]
    return page(" and ".join(names), _body(result, names))


def _body(result: Summary, names: list[str]) -> Iterator[str]:
    scenarios = result["scenarios"]
    yield f"<h1>{escape(' and '.join(names))}</h1>"
    yield '<p class="lead">Each scenario with its faults and without them.</p>'
    yield f'<div class="tiles">{"".join(_tile(row) for row in scenarios)}</div>'
    for difference in result["differences"]:
        yield f'<p class="bad">differs: {escape(difference)}</p>'
    yield f'<div class="charts">{"".join(_charts(scenarios))}</div>'
    cells = [(name, *values) for name, values in compared(scenarios)]
    yield "<h2>Side by side</h2>" + rows(("", *names), cells, range(1, 1 + len(names)))
    for row in scenarios:
        for problem in errors(row):
            yield f'<p class="bad">{escape(row["name"])}: {escape(problem)}</p>'


def _tile(row: Summary) -> str:
    lost = row["gpu_time_lost_percent"]
    value = f"{lost:.2f} %" if lost is not None else "job not finished"
    note = f"{row['transport']}, {row['planes']} plane{'s' * (row['planes'] != 1)}, {row['hosts']:,} NICs"
    return tile(f"GPU time lost: {row['name']}", value, note, "" if lost is not None else "bad")


def _charts(scenarios: list[Summary]) -> Iterator[str]:
    each = [np.array(row["steps"]["each"], np.float64) for row in scenarios]
    lines = [
        Curve(row["name"], np.arange(1.0, len(times) + 1), times) for row, times in zip(scenarios, each, strict=True)
    ]
    few = all(len(times) <= FEW_STEPS for times in each)
    chart = Chart("Step times", "step number", "step time with faults, us", lines, legend=True, dots=few)
    yield card("Step times with faults", svg.draw(chart), "A step ends with its slowest host.")
    spread = [_spread(row["name"], times) for row, times in zip(scenarios, each, strict=True) if len(times)]
    drawn = svg.draw(Chart("Spread", "step time, us", "share of steps", spread, steps=True, legend=True))
    yield card("Distribution of step times", drawn, "Share of steps that took at most this time.")
    means = [(f"{row['name']}{way}", float(values["mean"])) for row in scenarios
             for way, values in ((", faults", row["steps"]), (", none", row["without_faults"]))
             if values["mean"] is not None]  # fmt: skip
    yield card("Mean step time", svg.bars("Mean step time", "us", means, "us"), _shares(scenarios))


def _spread(name: str, times: Floats) -> Curve:
    ordered = np.sort(times)
    return Curve(name, np.concatenate([ordered[:1], ordered]), np.arange(len(ordered) + 1) / len(ordered))


def _shares(scenarios: list[Summary]) -> str:
    return "; ".join(
        f"{row['name']}: {number(row['steps']['mean'])} us with faults, {number(row['without_faults']['mean'])} without"
        for row in scenarios
    )
