"""Every test that the threat table names exists, and every row that says what can be done names one."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")
TESTS = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
NAMED = sorted(set(re.findall(r"`(test_\w+)`", PAGE)))
FILES = sorted(set(re.findall(r"`((?:tests|bench|openmrc)/[\w/]+\.py)`", PAGE)))


@pytest.mark.parametrize("name", NAMED)
def test_every_test_on_the_page_exists(name: str) -> None:
    assert f"def {name}(" in TESTS


@pytest.mark.parametrize("path", FILES)
def test_every_file_on_the_page_exists(path: str) -> None:
    assert (ROOT / path).is_file()


def test_the_page_names_many_tests() -> None:
    assert len(NAMED) > 20
