"""Verdicts of the published page follow from the rules that it prints."""

from __future__ import annotations

import pytest

from bench.sim.published import Row, Rule, table


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
