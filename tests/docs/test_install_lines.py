"""No page, message or example installs openmrc by name: it is on no package index."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACES = ("openmrc", "examples", "bench", "docs")


def test_extras_are_installed_from_a_clone() -> None:
    files = [ROOT / "README.md", *(path for place in PLACES for path in (ROOT / place).rglob("*.[mp][dy]"))]
    assert len(files) > 300
    by_name = re.compile(r"openmrc\[[a-z]|pip install openmrc")
    assert [path for path in files if by_name.search(path.read_text("utf-8"))] == []
