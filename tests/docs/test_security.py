"""Every test that the threat table names exists, and every row that says what can be done names one."""

import re
from pathlib import Path

import pytest

from openmrc.live.connections import handshake, server

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


def test_the_page_names_the_limits_that_the_code_has() -> None:
    assert len(NAMED) > 20
    assert (
        f"at most {server.MOST} in progress and {server.MOST} queued, each for at most {handshake.GREETING_SECONDS:g} s"
        in PAGE
    )
    assert f"at most {handshake.LARGEST_GREETING >> 10} KiB" in PAGE
    assert f"at most {handshake.LARGEST_OFFER >> 10} KiB" in PAGE
    assert f"{handshake.LEAST_TOKEN} characters or more" in PAGE
