"""Charts are well-formed, show every peak, and have round numbers on their axes."""

import itertools
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.report.svg import (
    COLOURS,
    MOST_POINTS,
    WIDTH,
    Chart,
    Curve,
    Mark,
    _thinned,
    bars,
    draw,
    shown,
    ticks,
    tornado,
)


def line(*y: float, label: str = "a") -> Curve:
    return Curve(label, np.arange(float(len(y))), np.array(y))


def svg_of(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text[: text.index("</svg>") + len("</svg>")])


@given(st.floats(-1e9, 1e9), st.floats(1e-3, 1e9))
def test_ticks_are_few_evenly_spaced_and_inside(low: float, span: float) -> None:
    found = ticks(low, low + span)
    assert 2 <= len(found) <= 13
    assert all(low - 1e-6 * span <= value <= low + span + 1e-6 * span for value in found)
    assert np.ptp(np.diff(found)) <= 1e-6 * max(span, abs(low))


def test_ticks_are_round() -> None:
    assert ticks(0, 10, 5) == [0, 2, 4, 6, 8, 10]
    assert ticks(0, 0.7, 5) == pytest.approx([0, 0.2, 0.4, 0.6])


def test_a_chart_is_well_formed_whatever_its_labels_say() -> None:
    chart = Chart('a "title" & <more>', "x", "y", [line(1, 5, 2, label="<one>"), line(2, 2, 2)], [Mark(1.0, "a>b & c")])
    text = draw(chart)
    root = svg_of(text)
    assert root.get("aria-label") == 'a "title" & <more>'
    assert "&lt;one&gt;" in text
    assert len([child for child in root.iter() if child.get("class") == "curve"]) == 2


def test_marks_outside_the_axis_are_left_out() -> None:
    root = svg_of(draw(Chart("t", "x", "y", [line(1, 2)], [Mark(0.5, "in"), Mark(7.0, "out")])))
    assert len([child for child in root.iter() if child.get("class") == "mark" and len(child) == 2]) == 1


def test_a_curve_that_repeats_a_colour_is_dashed_in_the_chart_and_in_the_legend() -> None:
    lines = [line(1, number, label=f"curve {number}") for number in range(COLOURS + 1)]
    curves, legend = draw(Chart("t", "x", "y", lines)).split("</svg>")
    assert curves.count('stroke-dasharray="6 3"') == 1
    samples = re.findall(r'<i style="background:([^"]+)">', legend)
    assert samples[0] == "var(--c0)"
    assert samples[COLOURS] == "repeating-linear-gradient(90deg,var(--c0) 0 6px,#0000 0 9px)"


def test_nothing_recorded_is_said() -> None:
    assert "no data" in draw(Chart("t", "x", "y", [Curve("a", np.zeros(0), np.zeros(0))]))


def test_a_constant_line_has_an_axis() -> None:
    assert svg_of(draw(Chart("t", "x", "y", [line(0, 0, 0)]))) is not None
    assert svg_of(draw(Chart("t", "x", "y", [line(5)]))) is not None


def test_thinning_keeps_every_peak() -> None:
    y = np.zeros(100_000)
    y[54_321], y[99] = 7.0, -3.0
    thin = _thinned(Curve("a", np.arange(100_000.0), y))
    assert len(thin.x) <= MOST_POINTS + 2
    assert thin.y[thin.x == 54_321] == 7.0
    assert thin.y.min() == -3.0


def test_bars_are_as_long_as_their_values() -> None:
    root = ElementTree.fromstring(bars("t", "x", [("a", 10.0), ("b", 5.0), ("c", 0.0)], "Gb/s"))
    widths = [float(child.get("width", "")) for child in root if child.tag.endswith("rect")]
    assert widths[1] == pytest.approx(widths[0] / 2)
    assert widths[2] == 0


def test_bars_say_what_they_measure_and_keep_the_decimals_asked_for() -> None:
    root = ElementTree.fromstring(bars("t", "share of the time, %", [("a", 10.0), ("b", 0.3909)], "%", 2))
    texts = [child.text for child in root if child.tag.endswith("text")]
    assert "share of the time, %" in texts
    assert {"10.00 %", "0.39 %"} <= set(texts)


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (1234, "1234"), (25_000, "25k"), (3.2e6, "3.2M"), (4e9, "4G")])
def test_large_numbers_are_short(value: float, text: str) -> None:
    assert shown(value) == text


def test_crowded_marks_share_a_range_of_numbers() -> None:
    root = svg_of(draw(Chart("t", "x", "y", [line(0, 1, 2)], [Mark(1.0, "a"), Mark(1.001, "b"), Mark(1.5, "c")])))
    marks = [child for child in root.iter() if child.get("class") == "mark"]
    texts = [part.text for mark in marks for part in mark if part.tag.endswith("text")]
    assert texts == ["1-2", "3"]


def test_an_axis_of_whole_numbers_has_no_fractions() -> None:
    steps = np.arange(1.0, 5.0)
    page = draw(Chart("steps", "step number", "us", [Curve("a", steps, steps)]))
    assert ">1.5<" not in page
    assert all(f'text-anchor="{where}">{step}<' in page for step, where in ((1, "middle"), (3, "middle"), (4, "end")))


def test_letters_of_a_narrow_screen_stand_clear_of_the_lines_above_and_below() -> None:
    """They are 20 px high there, while bars stay where they are."""
    root = ElementTree.fromstring(bars("t", "x", [("a label above its bar", 10.0), ("b", 0.1)], "points"))
    lines = sorted(float(text.get("y", "")) for text in root if text.get("class") == "tick")
    assert len(lines) == 4
    assert all(below - 15 >= above + 5 for above, below in itertools.pairwise(lines)), lines
    values = [text for text in root if "points" in (text.text or "")]
    assert max(float(text.get("x", "")) + 11 * len(text.text or "") for text in values) <= WIDTH


def test_both_ends_of_a_tornado_begin_at_zero_and_are_as_long_as_what_they_move() -> None:
    root = svg_of(tornado("t", "points", [("a <b>", -2.0, 4.0), ("both down", -1.0, -3.0), ("neither", 0.0, -1e-9)]))
    (axis,) = {float(each.get("x1", 0)) for each in root.iter() if each.get("class") == "axis"}
    boxes = [each for each in root.iter() if each.tag.endswith("rect")][2:]  # after the legend's two
    left = [float(each.get("x", 0)) for each in boxes]
    wide = [float(each.get("width", 0)) for each in boxes]
    assert wide[4:] == [0.0, 0.0]
    assert np.allclose([wide[0] / wide[1], wide[2] / wide[3]], [2 / 4, 1 / 3], atol=0.01)
    assert left[1] == pytest.approx(axis)
    assert [left[at] + wide[at] for at in (0, 2, 3)] == pytest.approx([axis] * 3, abs=0.2)
    texts = [each.text for each in root.iter() if each.tag.endswith("text")]
    assert [text for text in texts if text in ("-2.00", "+4.00")] == ["-2.00", "+4.00"]
    assert texts.count("0.00") == 2  # no sign where nothing moves
    assert "a <b>" in texts
