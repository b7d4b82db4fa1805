"""A lab on the live page: what it shows, what a click does, in a real Chromium too."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from openmrc.errors import ConfigError
from openmrc.lab import lifetime
from openmrc.lab.layout import Lab
from openmrc.lab.namespaces import namespace
from openmrc.operations.page.lab_source import FRAME_SECONDS, LabSource
from openmrc.operations.page.pictures import Frame, PageAction
from tests.needs import require
from tests.operations.control.traffic import slow_lab
from tests.operations.page.browser import browsers
from tests.operations.page.sources_of_tests import served
from tests.operations.page.test_page_in_browser import click_cell

pytestmark = pytest.mark.needs("lab")
CABLE, SWITCH = "p0-t0-00<>p0-t1-00", "p0-t1-01"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with slow_lab(tmp_path_factory.mktemp("lab"), f"t{os.getpid()}-page") as lab:
        yield lab


@pytest.fixture
def source(lab: Lab) -> Iterator[LabSource]:
    made = LabSource(lab.name, apply=True)
    yield made
    made.close()


def frames_until(source: LabSource, condition: Callable[[Frame], bool], most: int = 60) -> list[Frame]:
    found = [source.frame()]
    while not condition(found[-1]):
        assert len(found) < most, found[-1]
        found.append(source.frame())
    return found


def test_a_broken_cable_is_shown_and_named_with_its_votes_and_repaired(source: LabSource) -> None:
    assert source.frame().health == [0] * len(source.frame().health)
    source.act(PageAction(verb="break", target=CABLE))
    seen = frames_until(source, lambda frame: bool(frame.verdicts))
    (verdict,) = seen[-1].verdicts
    assert (verdict.suspect, seen[-1].health.count(3)) == (CABLE, 1)
    assert verdict.votes.startswith("dead: ")
    assert "packets lost, denied" in verdict.votes
    assert any("named: denied" in line.text for frame in seen for line in frame.events)
    cell = seen[-1].health.index(3)
    assert [(link.name, link.health) for link in source.cell(cell)] == [(CABLE, "down")]
    source.act(PageAction(verb="repair", target=CABLE))
    frames_until(source, lambda frame: not frame.verdicts and 3 not in frame.health)


def test_a_switch_is_drained_shown_and_used_again(source: LabSource) -> None:
    source.act(PageAction(verb="drain", target=SWITCH))
    frames_until(source, lambda frame: frame.health.count(2) >= 2)
    source.act(PageAction(verb="repair", target=SWITCH))
    frames_until(source, lambda frame: 2 not in frame.health)


def test_what_cannot_be_done_is_refused_with_the_reason(source: LabSource) -> None:
    with pytest.raises(ConfigError, match="last path"):
        source.act(PageAction(verb="drain", target="all"))
    with pytest.raises(ConfigError, match="not one of break, degrade, drain, repair"):
        source.act(PageAction(verb="explode", target=SWITCH))
    with pytest.raises(ConfigError, match="no node is called"):
        source.act(PageAction(verb="break", target="p9-t9-99"))
    with pytest.raises(ConfigError, match="not in 0"):
        source.cell(10**6)


def test_a_lab_whose_ports_vanish_before_its_namespaces_is_going_down(tmp_path: Path) -> None:
    name = f"t{os.getpid()}-going"
    with slow_lab(tmp_path, name) as lab:
        source = LabSource(name)
        remover = threading.Timer(3 * FRAME_SECONDS, lifetime.down, [name])
        try:
            end = lab.cables[0].upper
            subprocess.run(["ip", "-netns", namespace(name, end.node), "link", "delete", end.interface], check=True)
            remover.start()
            last = frames_until(source, lambda frame: frame.finished)[-1]
        finally:
            remover.join()
            source.close()
    assert last.events[-1].text == f"lab {name} is down; the page keeps what it has shown"


@pytest.mark.needs("chromium")
def test_a_lab_is_broken_named_and_repaired_by_clicking(source: LabSource, tmp_path: Path) -> None:
    require("chromium")
    with browsers() as opened, served(source) as (page, url):
        browser = opened((1400, 1000), False)
        browser.open(f"{url}/#{page.token}")
        browser.until("frames.length > 1")
        assert "lab" in browser.run("return document.title")
        click_cell(browser)  # a link between T0 and T1, as the highest tier is on top
        browser.until("document.querySelector('#panel .break')")
        broken = browser.run("return document.querySelector('#panel .break').title").removeprefix("Break ")
        browser.click_on("#panel .break")
        browser.until("frames[frames.length - 1].health.includes(3)")
        browser.until("document.getElementById('verdicts').textContent.includes('dead')")
        assert broken in browser.run("return document.getElementById('verdicts').textContent")
        assert not browser.run("return document.getElementById('verdictcard').hidden")
        browser.click_on("#panel .repair")
        browser.until("document.getElementById('verdicts').textContent.includes('nothing is suspected')")
        browser.until("!frames[frames.length - 1].health.includes(3)")
        assert [line for line in browser.complaints() if "favicon" not in line] == []
        browser.close()
