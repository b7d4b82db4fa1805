"""The picture of planned designs."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from openmrc.errors import UsageError
from openmrc.fabric.model.parts import load_parts
from openmrc.planner.compare import Wish, compared
from openmrc.programs.simulation.plan import plot_designs

PARTS = load_parts()
SVG = "{http://www.w3.org/2000/svg}"


def test_a_picture_has_a_bar_for_each_figure_of_each_design(tmp_path: Path) -> None:
    designs = compared(Wish(1024, 800), 8, PARTS.switch(51.2), PARTS, rails=8)
    plot_designs(designs, PARTS, tmp_path / "p.svg")
    panels = ElementTree.parse(tmp_path / "p.svg").getroot().findall(f"{SVG}svg")
    assert [len(panel.findall(f"{SVG}rect")) for panel in panels] == [len(designs)] * 7
    tops = [float(panel.attrib["y"]) for panel in panels]
    heights = [float(panel.attrib["height"]) for panel in panels]
    assert all(top + height <= below for top, height, below in zip(tops, heights, tops[1:], strict=False))
    widths = {float(rect.attrib["width"]) for rect in panels[0].findall(f"{SVG}rect")}
    most = max(each.total_switches for each in designs)
    assert len(widths) == len({round(each.total_switches / most, 4) for each in designs})


def test_other_kinds_of_pictures_are_refused(tmp_path: Path) -> None:
    designs = compared(Wish(1024, 800), 8, PARTS.switch(51.2), PARTS, rails=8)
    with pytest.raises(UsageError, match=r"pictures are SVG; name the file p\.svg"):
        plot_designs(designs, PARTS, tmp_path / "p.png")
