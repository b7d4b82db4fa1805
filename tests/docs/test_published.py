"""Verdicts of the published page follow from the rules that it prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.sim.published import PAGE, Row, Rule, table


@pytest.mark.parametrize(
    ("rule", "text", "holds"),
    [
        (Rule("ratio", [0.99, 1.01], 0.98, 1.02), "ratio 0.98 to 1.02", True),
        (Rule("each size", [-20, 29], low=0), "each size at least 0", False),
        (Rule("packets", [5], high=5), "packets at most 5", True),
    ],
)
def test_a_rule_says_its_limits_and_judges_every_value(rule: Rule, text: str, holds: bool) -> None:
    assert (str(rule), rule.holds) == (text, holds)


def test_a_row_is_within_only_if_all_its_rules_hold() -> None:
    row = Row("1", "rate", "fast", "slow", (Rule("a", [1], low=0), Rule("b", [1], high=0)))
    assert "| a at least 0; b at most 0 | **no** |" in list(table([row]))[-1]


@pytest.mark.parametrize("line", [line for line in Path(PAGE).read_text().splitlines() if " each size " in line])
def test_verdicts_about_each_size_agree_with_the_figures_beside_them(line: str) -> None:
    _, simulated, _, rule, holds = [cell.strip() for cell in line.strip("|").split("|")][2:7]
    first = re.search(r"from (\d+) KiB on", rule)
    found = re.findall(r"(-?[\d.]+) at (\d+)", simulated)
    values = [float(value) for value, size in found if first is None or int(size) >= int(first.group(1))]
    bounds = re.match(r"each size (?:from \d+ KiB on )?(?:at least )?(-?\d+)(?: to (-?\d+))?", rule)
    assert bounds is not None, rule
    low, high = bounds.groups()
    assert (holds == "yes") == all(float(low) <= value <= float(high or "inf") for value in values)
