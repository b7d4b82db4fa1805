"""Curves below each other on one axis of time, each in a strip of its own scale: an SVG file of its own, or text.

A strip without a scale is a lane: it shows spans of time only, such as the faults of a plane.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from openmrc.report.svg import PICTURE_COLOURS, PICTURE_STYLE, ShadedTime, shown, ticks

WIDTH, LEFT, RIGHT, TOP, GAP, BOTTOM = 840, 160, 20, 62, 20, 46  # px
HIGH = 150  # px; strips of this height have ticks, lower ones say their scale beside their name
_LETTER = 6.2  # px, about
_NARROWEST = 2.0  # px of a span
_LEAST = 0.005  # share of the scale that text shows
COLUMNS = 64  # of a strip as text
_BLOCKS = " ▁▂▃▄▅▆▇█"
_STYLE = """
.title { font-size: 16px; font-weight: 600 } .faint { font-size: 12px } .fill { stroke-width: 1.5; fill-opacity: .35 }
.fault { fill: #c62828; fill-opacity: .75 } .name { fill: #c62828; font-size: 11px }
@media (prefers-color-scheme: dark) { .fault, .name { fill: #ff7b7b } }
"""


@dataclass(frozen=True)
class Strip:
    """One curve, or a lane."""

    name: str
    x: Sequence[float] = ()  # s
    y: Sequence[float] = ()
    most: float = 0.0  # value at the top; values above it are drawn there; 0: a lane
    unit: str = ""
    note: str = ""  # before the scale
    colour: int = 0  # of PICTURE_COLOURS
    height: int = 70  # px
    is_filled: bool = True  # below the curve
    shades: Sequence[ShadedTime] = ()


def drawing(title: str, x_label: str, strips: Sequence[Strip], length: float, note: str = "") -> str:
    """Return the strips over `length` seconds, the first on top."""
    parts: list[str] = []
    top = float(TOP)
    for each in strips:
        parts += _strip(each, length, top)
        top += each.height + (GAP if each.most else 0) + (GAP if each.height >= HIGH else 0)
    parts += _axis(x_label, length, top)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + RIGHT} {top + BOTTOM:g}" role="img">'
        f"<title>{escape(title)}</title><style>{PICTURE_STYLE}{_STYLE}</style>"
        f'<rect class="paper" width="100%" height="100%"/><text class="title" x="{LEFT}" y="24">{escape(title)}</text>'
        f'<text class="faint" x="{LEFT}" y="44">{escape(note)}</text>{"".join(parts)}</svg>\n'
    )


def text(strips: Sequence[Strip]) -> Iterator[str]:
    """Yield each curve as a line of block characters, blank for nothing, above dots where it is shaded."""
    for strip in strips:
        parts = np.array_split(np.arange(len(strip.x)), min(COLUMNS, len(strip.x)))
        shares = [float(np.mean(np.take(strip.y, part))) / strip.most for part in parts]
        blocks = "".join(_BLOCKS[min(int(each * 8) + 1, 8)] if each >= _LEAST else " " for each in shares)
        yield f"  {strip.name:14} |{blocks}|  0 to {strip.most:.2f} {strip.unit}"
        times = [float(np.mean(np.take(strip.x, part))) for part in parts]
        marks = "".join("·" if any(each.begin <= at < each.end for each in strip.shades) else " " for at in times)
        if marks.strip():
            yield f"{'':18}{marks.rstrip()}"


def _x(at: float, length: float) -> float:
    return LEFT + min(max(at / length, 0.0), 1.0) * WIDTH


def _strip(strip: Strip, length: float, top: float) -> Iterator[str]:
    base = top + strip.height
    yield from _spans(strip, length, top)
    middle = top + strip.height / 2
    if strip.height >= HIGH:
        yield f'<text x="{LEFT}" y="{top - 6:g}">{escape(strip.name)}</text>'
        for value in ticks(0.0, strip.most, 4):
            y = base - value / strip.most * strip.height
            yield f'<line class="grid" x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text class="faint" x="{LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">{shown(value)}</text>'
    else:
        y = base if strip.most else middle
        yield f'<line class="grid" x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y:g}" y2="{y:g}"/>'
        yield f'<text x="{LEFT - 10}" y="{middle + 4:g}" text-anchor="end">{escape(strip.name)}</text>'
    if strip.most and strip.height < HIGH:
        scale = f"{strip.note}, to" if strip.note else "0 to"
        yield (
            f'<text class="faint" x="{LEFT - 10}" y="{middle + 20:g}" text-anchor="end">'
            f"{scale} {strip.most:.1f} {strip.unit}</text>"
        )
    if len(strip.x):
        yield _curve(strip, length, base)


def _curve(strip: Strip, length: float, base: float) -> str:
    points = [
        f"{_x(at, length):.1f},{base - min(value / strip.most, 1.0) * strip.height:.1f}"
        for at, value in zip(strip.x, strip.y, strict=True)
    ]
    colour, path = PICTURE_COLOURS[strip.colour % len(PICTURE_COLOURS)], "L".join(points)
    if not strip.is_filled:
        return f'<path class="curve" stroke="{colour}" d="M{path}"/>'
    last = _x(strip.x[-1], length)
    return f'<path class="fill" fill="{colour}" stroke="{colour}" d="M{LEFT},{base:g}L{path}L{last:.1f},{base:g}Z"/>'


def _spans(strip: Strip, length: float, top: float) -> Iterator[str]:
    """Yield the shaded times that begin within the drawing, those of a lane solid and named on their left."""
    busy = LEFT - 1.0
    spans = {(each.begin, each.end): each.label for each in strip.shades}  # of several planes at once: one shade
    for (begin, end), label in spans.items():
        if begin >= length:
            continue
        left, width = _x(begin, length), max(_x(end, length) - _x(begin, length), _NARROWEST)
        kind, y, height = ("shade", top, strip.height) if strip.most else ("fault", top + 4, strip.height - 8)
        room = len(label) * _LETTER + 4
        yield (
            f'<rect class="{kind}" x="{left:.1f}" y="{y:g}" width="{width:.1f}" height="{height}">'
            f"<title>{escape(label)}</title></rect>"
        )
        if strip.most and label:
            yield (
                f'<text class="name" x="{left + width / 2:.1f}" y="{top + 14:g}" text-anchor="middle">'
                f"{escape(label)}</text>"
            )
        elif label and left - busy >= room:
            yield f'<text class="name" x="{left - 4:.1f}" y="{y + 9:g}" text-anchor="end">{escape(label)}</text>'
        busy = left + width


def _axis(x_label: str, length: float, top: float) -> Iterator[str]:
    for value in ticks(0.0, length, 10):
        x = _x(value, length)
        yield f'<text class="faint" x="{x:.1f}" y="{top + 8:g}" text-anchor="middle">{shown(value)}</text>'
    middle = LEFT + WIDTH / 2
    yield f'<text class="faint" x="{middle:g}" y="{top + 28:g}" text-anchor="middle">{escape(x_label)}</text>'
