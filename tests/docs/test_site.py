"""The documentation builds into a site, and no link in it or in the files beside it leads nowhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from openmrc.conform.catalogue import shipped_tests
from openmrc.programs.endpoint.timer_table import as_markdown

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)|<img[^>]* src=\"([^\"]+)\"")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
NAMED = re.compile(
    r"`((?:openmrc|bench|tests|native|spec|examples|scenarios)/[\w/.-]+)`"
)  # files and folders of the tree
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def links(page: Path) -> list[str]:
    return ["".join(found) for found in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8")))]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MkDocs make them."""
    titles = HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link}: no such file"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{link}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_file_that_is_named_exists(page: Path) -> None:
    named = [path for path in NAMED.findall(page.read_text(encoding="utf-8")) if "NAME" not in path]
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_page_of_the_documentation_but_evidence_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    decisions = (ROOT / "docs" / "decisions" / "index.md").read_text(encoding="utf-8")
    for page in sorted((ROOT / "docs").rglob("*.md")):
        name = page.relative_to(ROOT / "docs").as_posix()
        assert name in navigation or page.name in decisions or name.startswith("evidence/"), name


def test_the_site_builds(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "openmrc.verbs.connect" in (tmp_path / "site" / "api" / "verbs.html").read_text(encoding="utf-8")
    scripts = (tmp_path / "site" / "conform_tests.html").read_text(encoding="utf-8")
    assert [test.id for test in shipped_tests() if f">{test.id}<" not in scripts] == []
    timers = (tmp_path / "site" / "timers.html").read_text(encoding="utf-8")
    assert timers.count("<tr>") == len([line for line in as_markdown().splitlines() if line.startswith("| ")])
    pages = [page.read_text(encoding="utf-8") for page in (tmp_path / "site").rglob("*.html")]
    assert not any(
        re.search(r'<(script|img|iframe)[^>]* src="(https?:)?//|<link[^>]* rel="stylesheet"[^>]*//', page)
        for page in pages
    )
    assert not any('class="mermaid"' in page or "language-mermaid" in page for page in pages), (
        "its renderer would be fetched"
    )
