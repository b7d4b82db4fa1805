"""The orders of docs/memory_order.md are needed, and are enough: each pattern by the model of AArch64."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.core import litmus

TESTS = sorted((Path(__file__).parent / "litmus").glob("*.litmus"))
NEEDED = [  # an order, and what would be left of it: each of these allows what must never be
    ("publish", "STLR", "STR"),
    ("publish", "LDAPR", "LDR"),
    ("place", "DMB", ""),
    ("place", "LDAPR", "LDR"),
    ("reuse", "STLR", "STR"),
    ("sleep", "SWPA", "SWP"),
    ("sleep", "STLR", "STR"),
    ("overrun", "STLR", "STR"),
    ("overrun", "SWPAL", "SWP"),
]


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_what_must_never_be_is_forbidden(path: Path) -> None:
    assert not litmus.read(path).is_allowed()


@pytest.mark.parametrize(("name", "strong", "weak"), NEEDED)
def test_a_weaker_order_would_allow_it(name: str, strong: str, weak: str) -> None:
    path = next(path for path in TESTS if path.stem == name)
    assert litmus.read(path).weakened(strong, weak).is_allowed()


def test_a_branch_on_what_was_read_orders_a_write_behind_it() -> None:
    """As of who reads `taken` without acquire, and writes if it has moved."""
    path = next(path for path in TESTS if path.stem == "reuse")
    assert not litmus.read(path).weakened("LDAPR", "LDR").is_allowed()


@pytest.mark.needs("herd7")
@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_herd_says_the_same(path: Path) -> None:
    said = subprocess.run(["herd7", str(path)], capture_output=True, text=True, check=True).stdout
    assert re.search(r"^Observation \w+ Never", said, re.MULTILINE), said
