from __future__ import annotations

from xml.etree import ElementTree

import pytest

from openmrc.errors import ConfigError
from openmrc.report.training import Course, drawing, faults_of


def course(faults: str = "", steps: int = 10) -> Course:
    at = [0.1 * (step + 1) for step in range(steps)]
    return Course(title="a <run>", at=at, loss=[1.0] * steps, seconds=[0.1] * steps, planes=2, faults=faults)


def test_faults_become_spells_of_their_plane_until_they_end_or_the_run_does() -> None:
    faults = "at: 200ms, for: 100ms, down: plane 1; at: 500ms, loss: 5%, on: plane 0; at: 5s, down: plane 1"
    [first], [second] = (faults_of(course(faults), plane) for plane in range(2))
    assert (first.label, second.label) == ("loss 5%", "down")
    assert (first.begin, first.end, second.begin, second.end) == pytest.approx((0.5, 1.0, 0.2, 0.3))


def test_the_drawing_is_well_formed_and_shows_a_bar_for_each_fault() -> None:
    text = drawing(course("at: 200ms, for: 100ms, down: plane 1; at: 400ms, for: 100ms, delay: 2ms, on: plane 0"))
    root = ElementTree.fromstring(text)
    bars = [each for each in root.iter() if each.get("class") == "fault"]
    assert len(bars) == 2
    assert "a &lt;run&gt;" in text


def test_a_run_without_steps_is_drawn_too() -> None:
    ElementTree.fromstring(drawing(course(steps=0)))


def test_a_schedule_that_names_no_such_plane_is_refused() -> None:
    with pytest.raises(ConfigError, match="plane 7"):
        drawing(course("down: plane 7"))
