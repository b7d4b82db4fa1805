"""A chart of a training run: loss and step time against wall time, and the faults of each plane."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from html import escape

import msgspec

from openmrc.faults import Impairment, OverlappingImpairments, Schedule, Step
from openmrc.report.svg import shown, ticks
from openmrc.units import PS_PER_MS, PS_PER_S

WIDTH, LEFT, RIGHT, TOP = 840, 84, 20, 62  # px
_LANE, _PANEL, _GAP, _BOTTOM = 18, 150, 30, 46  # px: of a plane, of a curve, above a curve, below all
_LOSS, _TIME = "#2a7ab9", "#c07f1e"
_NARROWEST = 2.0  # px of a fault
_LETTER = 6.2  # px, about
_WARMING = 4  # points of a curve that may exceed the scale: the first steps allocate buffers
_STYLE = """
text { fill: #222; font: 13px system-ui, "DejaVu Sans", sans-serif } line { stroke: #bbb } .paper { fill: #fff }
.faint { fill: #6b6b6b; font-size: 12px } .title { font-size: 16px; font-weight: 600 }
.fault { fill: #c62828; fill-opacity: .75 } .shade { fill: #c62828; fill-opacity: .09 }
.name { fill: #c62828; font-size: 11px; stroke: #fff; stroke-width: 5px; paint-order: stroke }
path { fill: none; stroke-width: 1.5; stroke-linejoin: round }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e6e6 } line { stroke: #555 } .paper { fill: #16181b } .faint { fill: #a8a8a8 }
  .fault, .shade, .name { fill: #ff7b7b } .name { stroke: #16181b }
}
"""  # no variables: other viewers than browsers do not support them


class Course(msgspec.Struct, kw_only=True):
    """The progress of one rank's training, by step."""

    title: str
    at: list[float]  # s from the beginning of the first step to the end of each
    loss: list[float]
    seconds: list[float]  # of each step
    planes: int
    faults: str = ""  # the schedule that all ranks followed
    faults_at: float = 0.0  # s from the beginning of the first step to that of the schedule


class Spell(msgspec.Struct, frozen=True):
    """A time span in which a plane was impaired."""

    plane: int
    begin: float  # s
    end: float
    text: str


def spells(course: Course) -> list[Spell]:
    """Return the faults of each plane until the end of the run."""
    end = course.at[-1] if course.at else 0.0
    steps = Schedule.parse(course.faults).steps if course.faults else ()
    found = [spell for plane in range(course.planes) for spell in _spells_of(plane, steps, course, end)]
    return [spell for spell in found if spell.begin < end]


def _spells_of(plane: int, steps: Sequence[Step], course: Course, end: float) -> list[Spell]:
    found: list[Spell] = []
    layers, now, begun = OverlappingImpairments(), Impairment(), 0.0
    for step in steps:
        if plane not in step.planes(course.planes):
            continue
        at = course.faults_at + step.at / PS_PER_S
        if now != Impairment():
            found.append(Spell(plane, begun, min(at, end), text_of(now)))
        layers.apply(step)
        now, begun = layers.now, at
    if now != Impairment():
        found.append(Spell(plane, begun, end, text_of(now)))
    return found


def text_of(impairment: Impairment) -> str:
    """Return an impairment as short text."""
    if impairment.down:
        return "down"
    shares = ("loss", "corruption", "duplicate", "reorder", "trim")
    words = [f"{name} {getattr(impairment, name) * 100:.3g}%" for name in shares if getattr(impairment, name)]
    if impairment.delay or impairment.jitter:
        words.append(f"delay {(impairment.delay + impairment.jitter) / PS_PER_MS:g} ms")
    return ", ".join(words) or "impaired"


def drawing(course: Course) -> str:
    """Return an SVG: a lane for each plane with its faults, then loss and step time."""
    length = max(course.at[-1] if course.at else 0.0, 1e-9)
    faults = spells(course)
    lanes_end = TOP + course.planes * _LANE
    loss_top = lanes_end + _GAP
    time_top = loss_top + _PANEL + _GAP
    height = time_top + _PANEL + _BOTTOM
    usual = statistics.median(course.seconds) * 1e3 if course.seconds else 0.0
    parts = [_shade(each, length, lanes_end, time_top + _PANEL) for each in faults]
    parts += [_lane(plane, length, [each for each in faults if each.plane == plane]) for plane in range(course.planes)]
    parts.append(_panel("loss", list(zip(course.at, course.loss, strict=True)), length, loss_top, _LOSS))
    parts.append(_panel(f"step time, ms (median {usual:.3g})", _durations(course), length, time_top, _TIME))
    parts.append(_axis(length, time_top + _PANEL))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + RIGHT} {height}" role="img">'
        f'<title>{escape(course.title)}</title><style>{_STYLE}</style><rect class="paper" width="100%" height="100%"/>'
        f'<text class="title" x="{LEFT}" y="26">{escape(course.title)}</text>'
        f'<text class="faint" x="{LEFT}" y="46">red: faults of a plane, at every rank</text>'
        f"{''.join(parts)}</svg>"
    )


def _x(at: float, length: float) -> float:
    return LEFT + min(max(at / length, 0.0), 1.0) * WIDTH


def _shade(spell: Spell, length: float, top: float, bottom: float) -> str:
    begin, end = _x(spell.begin, length), _x(spell.end, length)
    width = max(end - begin, _NARROWEST)
    return f'<rect class="shade" x="{begin:.1f}" y="{top}" width="{width:.1f}" height="{bottom - top}"/>'


def _lane(plane: int, length: float, faults: Sequence[Spell]) -> str:
    top = TOP + plane * _LANE
    middle = top + _LANE / 2
    parts = [
        f'<text class="faint" x="{LEFT - 10}" y="{middle + 4:g}" text-anchor="end">plane {plane}</text>',
        f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{middle:g}" y2="{middle:g}"/>',
    ]
    busy = LEFT - 1.0
    for each in faults:
        begin, end = _x(each.begin, length), _x(each.end, length)
        width = max(end - begin, _NARROWEST)
        parts.append(f'<rect class="fault" x="{begin:.1f}" y="{top + 4}" width="{width:.1f}" height="{_LANE - 8}"/>')
        parts.append(_name(each.text, begin, begin + width, busy, middle))
        busy = begin + width
    return "".join(parts)


def _name(text: str, begin: float, end: float, busy: float, middle: float) -> str:
    """Return a fault's name, left of its bar if it fits."""
    room = len(text) * _LETTER + 4
    if begin - busy < room:
        return f"<title>{escape(text)}</title>"
    return f'<text class="name" x="{begin - 4:.1f}" y="{middle + 4:g}" text-anchor="end">{escape(text)}</text>'


def _durations(course: Course) -> list[tuple[float, float]]:
    """Return the step time (ms) as a line that is constant during each step."""
    ends = zip(course.at, course.seconds, strict=True)
    return [point for at, seconds in ends for point in ((at - seconds, seconds * 1e3), (at, seconds * 1e3))]


def _panel(name: str, points: Sequence[tuple[float, float]], length: float, top: float, colour: str) -> str:
    steady = [value for _, value in points[_WARMING:]] or [value for _, value in points]
    most = max(steady, default=1.0) * 1.08 or 1.0
    base = top + _PANEL
    path = "L".join(f"{_x(at, length):.1f},{base - min(value / most, 1.0) * _PANEL:.1f}" for at, value in points)
    lines = "".join(
        f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke-opacity=".5"/>'
        f'<text class="faint" x="{LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">{shown(value)}</text>'
        for value in ticks(0.0, most, 4)
        for y in [base - value / most * _PANEL]
    )
    return (
        f'{lines}<text x="{LEFT}" y="{top - 8:g}">{escape(name)}</text><path d="M{path}" stroke="{colour}"/>'
        if points
        else lines
    )


def _axis(length: float, base: float) -> str:
    labels = "".join(
        f'<text class="faint" x="{_x(value, length):.1f}" y="{base + 18}" text-anchor="middle">{shown(value)}</text>'
        for value in ticks(0.0, length, 10)
    )
    middle = LEFT + WIDTH / 2
    return f'{labels}<text class="faint" x="{middle}" y="{base + 38}" text-anchor="middle">seconds of training</text>'
