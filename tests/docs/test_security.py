"""Every test that the threat table, and the comparison with others, names exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {name: (ROOT / "docs" / name).read_text("utf-8") for name in ("security.md", "comparison.md")}
TEXT = "\n".join(PAGES.values())
TESTS = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
NAMED = sorted(set(re.findall(r"`(test_\w+)`", TEXT)))


@pytest.mark.parametrize("name", NAMED)
def test_every_test_on_the_page_exists(name: str) -> None:
    assert f"def {name}(" in TESTS


@pytest.mark.parametrize("name", PAGES)
def test_a_page_names_tests(name: str) -> None:
    assert len(re.findall(r"`test_\w+`", PAGES[name])) >= 4
