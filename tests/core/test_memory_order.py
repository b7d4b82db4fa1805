"""The orders of docs/memory_order.md are needed, and are enough: each pattern by the model of AArch64, and by herd7."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.core.litmus import Litmus

TESTS = {path.stem: path.read_text(encoding="utf-8") for path in (Path(__file__).parent / "litmus").glob("*.litmus")}
NEEDED = [  # an order, and what would be left of it: each of these allows what must never be
    ("publish", "STLR", "STR"),
    ("publish", "LDAPR", "LDR"),
    ("place", "DMB ISH", ""),
    ("place", "LDAPR", "LDR"),
    ("reuse", "STLR", "STR"),
    ("sleep", "SWPA", "SWP"),
    ("sleep", "STLR", "STR"),
    ("overrun", "STLR", "STR"),
    ("overrun", "SWPAL", "SWP"),
]


def weakened(name: str, strong: str, weak: str) -> str:
    text, count = re.subn(rf"\b{strong}\b", weak, TESTS[name])
    assert count > 0
    return text


def herd(text: str, folder: Path) -> str:
    """Return how often herd7 observes the outcome: Never, Sometimes, Always."""
    path = folder / "test.litmus"
    path.write_text(text, encoding="utf-8")
    said = subprocess.run(["herd7", str(path)], capture_output=True, text=True, check=True).stdout
    found = re.search(r"^Observation \w+ (\w+)", said, re.MULTILINE)
    assert found is not None, said
    return found[1]


@pytest.mark.parametrize("name", TESTS)
def test_what_must_never_be_is_forbidden(name: str) -> None:
    assert not Litmus(TESTS[name]).is_allowed()


@pytest.mark.parametrize(("name", "strong", "weak"), NEEDED)
def test_a_weaker_order_would_allow_it(name: str, strong: str, weak: str) -> None:
    assert Litmus(weakened(name, strong, weak)).is_allowed()


def test_a_branch_on_what_was_read_orders_a_write_behind_it() -> None:
    """As of who reads `taken` without acquire, and writes if it has moved."""
    assert not Litmus(weakened("reuse", "LDAPR", "LDR")).is_allowed()


@pytest.mark.needs("herd7")
def test_herd_says_the_same(tmp_path: Path) -> None:
    assert [name for name, text in TESTS.items() if herd(text, tmp_path) != "Never"] == []
    assert [each for each in NEEDED if herd(weakened(*each), tmp_path) != "Sometimes"] == []
    assert herd(weakened("reuse", "LDAPR", "LDR"), tmp_path) == "Never"
