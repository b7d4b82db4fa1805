"""The page of a fabric: everything that it promises is on it, and it needs nothing from elsewhere."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openmrc.programs.main import app

LAB = str(Path(__file__).parents[2] / "scenarios" / "fabrics" / "lab.yaml")


class Reader(HTMLParser):
    """Collects headings, and whatever would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("h1", "h2") and data.strip():
            self.headings.append(data)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("page") / "fabric.html"
    result = CliRunner().invoke(app, ["fabric", "page", LAB, "--out", str(out), "--json"])
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert (said["out"], said["bytes"], said["proven"]) == (str(out), len(out.read_text()), True)
    return out.read_text()


def test_a_page_has_its_parts_and_fetches_nothing(text: str) -> None:
    reader = Reader()
    reader.feed(text)
    assert reader.headings == ["lab", "Planes", "Proof", "Tables", "Cables", "To order"]
    assert reader.fetched == []


def test_a_page_says_that_the_fabric_is_proven_and_shows_a_table_of_each_tier(text: str) -> None:
    assert "PROVEN: every EV of all 240 ordered pairs of NICs is delivered on the path that it names." in text
    assert all(f"p{plane}-t{tier}-00: " in text for plane in range(4) for tier in (0, 1))
    assert "fcbb:bb00:e000::/48 route 0" in text
