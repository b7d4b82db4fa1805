"""Charts as SVG text: lines over time, distributions, bars. No dependency, no script; a page can hold many.

Colours are CSS variables (`--c0` ... `--c7`, `--ink`, `--grid`, `--mark`), which the theme of a page sets.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from openmrc.core.arrays import Floats

WIDTH, HEIGHT = 640, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 24, 44
COLOURS = 8
_TITLE = 36  # px above a chart that is a file of its own
_MARGIN = 16  # px on its other sides
_MEASURE = 22  # px below bars, for what they measure
_LETTER = 9  # px; largest width of a letter
_LONGEST_BESIDE = 12  # letters of a label beside a bar; on narrow screens they are wider
_MARK_LETTER = 7  # px; width of a letter of a mark's number
_DASH_GAP = 3  # px
MOST_POINTS = 1200  # per line; more are invisible and enlarge the file
TINY = 1e-9  # of rounding in the position of a tick


@dataclass(frozen=True)
class Curve:
    label: str
    x: Floats
    y: Floats


@dataclass(frozen=True)
class Mark:
    """A time marked in a chart."""

    x: float
    label: str
    number: int = 0  # its label; 0: its place in the list


@dataclass(frozen=True)
class ShadedTime:
    """A time span behind the curves, such as an outage."""

    begin: float
    end: float
    label: str


@dataclass(frozen=True)
class Band:
    """The area between the lowest and the highest of many curves."""

    label: str
    x: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class Chart:
    """The content of a chart and the labels of its axes."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Curve]
    marks: Sequence[Mark] = field(default_factory=tuple)
    shades: Sequence[ShadedTime] = field(default_factory=tuple)
    steps: bool = False  # hold each value until the next, as in a distribution
    legend: bool = False  # even for a single line
    band: Band | None = None  # behind the lines
    dots: bool = False  # mark each point
    names: Mapping[float, str] = field(default_factory=dict)  # labels on the x axis, for values that are no numbers


@dataclass(frozen=True)
class _Scale:
    """Maps values of one axis to pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def ticks(low: float, high: float, wanted: int = 6) -> list[float]:
    """Return round numbers (1, 2 or 5 times a power of ten apart) that lie in [low, high]."""
    span = high - low
    raw = span / wanted if span > 0 else 1.0
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * nice for nice in (1, 2, 5, 10) if power * nice >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [at * step for at in range(first, last + 1)]


def shown(value: float) -> str:
    """Format a number for an axis."""
    if value == 0:
        return "0"
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            unit = 1e3 if suffix == "k" else limit
            return f"{value / unit:.4g}{suffix}"
    return f"{value:.4g}"


def draw(chart: Chart) -> str:
    """Return the chart as an `<svg>` element."""
    lines = [_thinned(line) for line in chart.lines if len(line.x)]
    if not lines:
        none = f'<text x="{WIDTH / 2}" y="{HEIGHT / 2}" text-anchor="middle" class="tick">no data</text>'
        return _svg(chart.title, HEIGHT, none)
    band = [chart.band.high, chart.band.low] if chart.band is not None and len(chart.band.x) else []
    x = _axis([line.x for line in lines], _LEFT, WIDTH - _RIGHT, from_zero=False)
    y = _axis([*(line.y for line in lines), *band], HEIGHT - _BOTTOM, _TOP, from_zero=True)
    marks = [mark for mark in chart.marks if x.low <= mark.x <= x.high]
    parts = [_frame(chart, x, y)]
    parts += _shades(chart.shades, x)
    parts += _marks(marks, x)
    parts += [_shaded(chart.band, x, y)] if chart.band is not None and band else []
    parts += [_curve(line, number, x, y, chart.steps) for number, line in enumerate(lines)]
    parts += [_dots(line, number, x, y) for number, line in enumerate(lines) if chart.dots]
    named = any(line.label for line in lines)
    below = _legend(lines, chart.band) if named and (len(lines) > 1 or chart.legend) else ""
    axis = f'<div class="upright">vertical: {escape(chart.y_label)}</div>'  # for pages too narrow for a rotated label
    return _svg(chart.title, HEIGHT, "".join(parts)) + axis + below + ("" if _fit(chart) else _numbered(chart))


def _axis(values: Sequence[Floats], start: float, end: float, *, from_zero: bool) -> _Scale:
    low, high = min(float(part.min()) for part in values), max(float(part.max()) for part in values)
    low = min(0.0, low) if from_zero else low
    if high <= low:
        high = low + (abs(low) or 1.0)
    room = 0.05 * (high - low) if from_zero else 0.0
    return _Scale(low, high + room, start, end)


def _thinned(line: Curve) -> Curve:
    """Keep the lowest and highest point of each interval, so that no peak is lost."""
    if len(line.x) <= MOST_POINTS:
        return line
    edges = np.linspace(0, len(line.x), MOST_POINTS // 2 + 1).astype(int)
    kept: list[int] = [0, len(line.x) - 1]
    for first, last in itertools.pairwise(edges.tolist()):
        kept += [first + int(np.argmin(line.y[first:last])), first + int(np.argmax(line.y[first:last]))]
    rows = np.unique(kept)
    return Curve(line.label, line.x[rows], line.y[rows])


def _svg(said: str, height: float, inside: str, kind: str = "") -> str:
    """Return a drawing; `said` is what screen readers say of it."""
    return (
        f'<svg {kind}viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(said, quote=True)}" '
        f'xmlns="http://www.w3.org/2000/svg">{inside}</svg>'
    )


def _frame(chart: Chart, x: _Scale, y: _Scale) -> str:
    parts = []
    for value in ticks(y.low, y.high, 5):
        at = y(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{shown(value)}</text>')
    bottom = HEIGHT - _BOTTOM
    for number, (value, name) in enumerate(_x_ticks(chart, x)):
        at = x(value)
        anchor = "middle" if at < WIDTH - _RIGHT - 20 else "end"
        kind = "tick odd" if number % 2 and not chart.names else "tick"  # hidden on narrow pages
        parts.append(f'<line class="axis" x1="{at:.1f}" x2="{at:.1f}" y1="{bottom}" y2="{bottom + 4}"/>')
        parts.append(
            f'<text class="{kind}" x="{at:.1f}" y="{bottom + 17}" text-anchor="{anchor}">{escape(name)}</text>'
        )
    parts.append(f'<line class="axis" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{bottom}" y2="{bottom}"/>')
    middle = (_TOP + bottom) / 2
    parts.append(
        f'<text class="label" x="{(_LEFT + WIDTH - _RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">'
        f"{escape(chart.x_label)}</text>"
        f'<text class="label upright" transform="translate(14 {middle}) rotate(-90)" text-anchor="middle">'
        f"{escape(chart.y_label)}</text>"
    )
    return "".join(parts)


def _x_ticks(chart: Chart, x: _Scale) -> list[tuple[float, str]]:
    """Return the positions and labels of the x axis."""
    if not chart.names:
        whole = all(float(value).is_integer() for line in chart.lines for value in line.x)  # such as step numbers
        found = [value for value in ticks(x.low, x.high, 8) if not whole or abs(value - round(value)) < TINY]
        return [(value, shown(value)) for value in found]
    fits = _fit(chart)
    return [
        (place, name if fits else str(number))
        for number, (place, name) in enumerate(chart.names.items(), 1)
        if x.low <= place <= x.high
    ]


def _fit(chart: Chart) -> bool:
    """Return whether the labels of the x axis fit beside each other."""
    longest = max((len(name) for name in chart.names.values()), default=0)
    return longest * _LETTER * max(1, len(chart.names)) <= WIDTH - _LEFT - _RIGHT


def _numbered(chart: Chart) -> str:
    """Return the legend of the numbers on the x axis."""
    items = "".join(f"<span>{number}: {escape(name)}</span>" for number, name in enumerate(chart.names.values(), 1))
    return f'<div class="legend">{items}</div>'


def _dots(line: Curve, number: int, x: _Scale, y: _Scale) -> str:
    return "".join(
        f'<circle cx="{x(float(a)):.1f}" cy="{y(float(b)):.1f}" r="3.5" fill="var(--c{number % COLOURS})">'
        f"<title>{escape(line.label)}: {shown(float(b))}</title></circle>"
        for a, b in zip(line.x, line.y, strict=True)
    )


def _marks(marks: Sequence[Mark], x: _Scale) -> list[str]:
    """Return dashed lines with their numbers above the chart; a range replaces numbers that would overlap."""
    placed = sorted((x(mark.x), mark.number or place, mark.label) for place, mark in enumerate(marks, 1))
    parts = [
        f'<g class="mark"><title>{escape(f"{number}. {label}")}</title>'
        f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/></g>'
        for at, number, label in placed
    ]
    return parts + [
        f'<g class="mark"><text x="{at:.1f}" y="{_TOP - 7}" text-anchor="middle">{text}</text></g>'
        for at, text in _numbers([(at, number) for at, number, _ in placed])
    ]


def _shades(shades: Sequence[ShadedTime], x: _Scale) -> list[str]:
    """Return a rectangle for each time span, as far as the chart shows it; overlapping ones are one."""
    merged: list[list[Any]] = []
    for each in sorted(shades, key=lambda shade: shade.begin):
        begin, end = max(each.begin, x.low), min(each.end, x.high)
        if begin >= end:
            continue
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
            merged[-1][2] = f"{merged[-1][2]}; {each.label}"
        else:
            merged.append([begin, end, each.label])
    return [
        f'<rect class="shade" x="{x(begin):.1f}" y="{_TOP}" width="{x(end) - x(begin):.1f}" '
        f'height="{HEIGHT - _BOTTOM - _TOP}"><title>{escape(label)}</title></rect>'
        for begin, end, label in merged
    ]


def _numbers(placed: Sequence[tuple[float, int]]) -> list[tuple[float, str]]:
    """Return the labels of marks and their positions: numbers, or ranges of numbers that would overlap."""
    groups: list[list[tuple[float, int]]] = []
    for each in placed:
        groups.append([each])
        while len(groups) > 1 and _middle(groups[-1]) - _middle(groups[-2]) < _room(groups[-2]) + _room(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
    return [(_middle(group), _range(group)) for group in groups]


def _range(group: Sequence[tuple[float, int]]) -> str:
    numbers = [number for _, number in group]
    return str(numbers[0]) if len(numbers) == 1 else f"{min(numbers)}-{max(numbers)}"


def _middle(group: Sequence[tuple[float, int]]) -> float:
    return (group[0][0] + group[-1][0]) / 2


def _room(group: Sequence[tuple[float, int]]) -> float:
    """Return how far a label reaches to either side of its middle."""
    return len(_range(group)) * _MARK_LETTER / 2 + 2


def _shaded(band: Band, x: _Scale, y: _Scale) -> str:
    rows = np.unique(np.linspace(0, len(band.x) - 1, min(len(band.x), MOST_POINTS // 2)).astype(int))
    upper = [f"{x(float(band.x[at])):.1f} {y(float(band.high[at])):.1f}" for at in rows]
    lower = [f"{x(float(band.x[at])):.1f} {y(float(band.low[at])):.1f}" for at in rows[::-1]]
    return f'<path class="band" d="M{"L".join(upper + lower)}Z"><title>{escape(band.label)}</title></path>'


def _curve(line: Curve, number: int, x: _Scale, y: _Scale, steps: bool) -> str:
    points = [f"{x(float(a)):.1f} {y(float(b)):.1f}" for a, b in zip(line.x, line.y, strict=True)]
    path = "M" + "L".join(points)
    if steps:
        path = (
            "M"
            + points[0]
            + "".join(f"H{x(float(a)):.1f}V{y(float(b)):.1f}" for a, b in zip(line.x[1:], line.y[1:], strict=True))
        )
    colour = f"var(--c{number % COLOURS})"
    return (
        f'<path d="{path}" class="curve" stroke="{colour}"{dashes(number)}><title>{escape(line.label)}</title></path>'
    )


def dashes(number: int) -> str:
    """Return the attribute that tells a curve from the one `COLOURS` before it, which has its colour."""
    return f' stroke-dasharray="{_dash(number)} {_DASH_GAP}"' if number >= COLOURS else ""


def _dash(number: int) -> int:
    return 6 * (number // COLOURS)


def _sample(number: int) -> str:
    """Return the background of a legend's sample of a curve."""
    colour, dash = f"var(--c{number % COLOURS})", _dash(number)
    return f"repeating-linear-gradient(90deg,{colour} 0 {dash}px,#0000 0 {dash + _DASH_GAP}px)" if dash else colour


def _legend(lines: Sequence[Curve], band: Band | None = None) -> str:
    items = "".join(
        f'<span><i style="background:{_sample(number)}"></i>{escape(line.label)}</span>'
        for number, line in enumerate(lines)
    )
    shaded = f'<span><i class="band"></i>{escape(band.label)}</span>' if band is not None else ""
    return f'<div class="legend">{items}{shaded}</div>'


def heat_map(title: str, x_label: str, row_labels: Sequence[str], cells: Floats, *, unit: str, full: float) -> str:
    """Return cells between 0 and 1 as squares, darker for higher values, with a scale below.

    `cells`: rows x columns, NaN for no cell; `full`: the value of a cell of 1, in `unit`.
    """
    rows, columns = cells.shape
    left, width, height = 76, (WIDTH - 76 - _RIGHT) / max(1, columns), max(8, min(20, 240 // max(1, rows)))
    parts = []
    for row in range(rows):
        y = 4 + row * height
        if rows <= 16 or row % (rows // 8) == 0:
            parts.append(
                f'<text class="tick" x="{left - 6}" y="{y + height * 0.75:.1f}" text-anchor="end">'
                f"{escape(row_labels[row])}</text>"
            )
        for column in range(columns):
            share = float(cells[row, column])
            if share == share:  # no NaN
                parts.append(
                    f'<rect x="{left + column * width:.1f}" y="{y}" width="{width * 0.94:.1f}" '
                    f'height="{height - 1}" class="heat" fill-opacity="{0.06 + 0.94 * min(1, share):.2f}">'
                    f"<title>{shown(share * full)} {escape(unit)}</title></rect>"
                )
    bottom = 4 + rows * height
    parts.append(
        f'<text class="label" x="{(left + WIDTH) / 2}" y="{bottom + 18}" text-anchor="middle">{escape(x_label)}</text>'
    )
    scale = "".join(
        f'<span><i class="heat" style="opacity:{0.06 + 0.94 * share:.2f}"></i>{shown(share * full)} '
        f"{escape(unit)}</span>"
        for share in (0, 0.5, 1)
    )
    return _svg(title, bottom + 26, "".join(parts)) + f'<div class="legend">{scale}</div>'


# Of a picture that is a file of its own: white or dark as the reader prefers. No variables: other viewers than browsers
# do not know them. The colours of curves are readable on both.
PICTURE_COLOURS = ("#3b82c4", "#d9861f", "#2a9d5c", "#b24cc4", "#2a9db5", "#d9534a", "#8474d9", "#8a93a0")
PICTURE_STYLE = """
text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: #4f5b69 } .title { font-size: 14px; fill: #1b2430 }
.paper { fill: #fff } .grid { stroke: #e6ebf0 } .axis { stroke: #5b6776 } .curve { fill: none; stroke-width: 1.8 }
.shade { fill: #c62828; fill-opacity: .1 } .mark line { stroke: #b4451f; stroke-dasharray: 3 3 }
.band { fill: #3b82c4; fill-opacity: .22 }
@media (prefers-color-scheme: dark) {
  text { fill: #aeb8c4 } .title { fill: #e6ebf1 } .paper { fill: #12171d } .grid { stroke: #28323d }
  .axis { stroke: #8793a1 } .shade { fill: #ff7b7b; fill-opacity: .16 } .mark line { stroke: #f0a47c }
}
"""


def coloured(drawn: str) -> str:
    """Return a drawing with the colours of curves written out."""
    for number, colour in enumerate(PICTURE_COLOURS):
        drawn = drawn.replace(f"var(--c{number})", colour)
    return drawn


def stacked(title: str, drawn: Sequence[str]) -> str:
    """Return several drawings as one, below each other."""
    parts, top = [], 0.0
    for each in drawn:
        height = _height(each)
        parts.append(each.replace("<svg ", f'<svg y="{top:g}" width="{WIDTH}" height="{height:g}" ', 1))
        top += height + _MARGIN
    return _svg(title, top, "".join(parts))


def _height(drawn: str) -> float:
    return float(drawn.split('viewBox="0 0 ', 1)[1].split('"', 1)[0].split()[1])


def standalone(drawn: str, title: str) -> str:
    """Return a chart as an SVG file of its own, with its title; light or dark as its reader prefers."""
    drawn = coloured(drawn[: drawn.rindex("</svg>") + len("</svg>")])
    style = f"<style>{PICTURE_STYLE}</style>"
    height = _height(drawn)
    at = f"-{_MARGIN} -{_TITLE} {WIDTH + 2 * _MARGIN} {height + _TITLE + _MARGIN:g}"
    box, larger = f'viewBox="0 0 {WIDTH} {height:g}"', f'viewBox="{at}"'
    left, top, width, below = at.split()
    paper = f'<rect class="paper" x="{left}" y="{top}" width="{width}" height="{below}"/>'
    words = f'<text class="title" x="0" y="-{_TITLE // 3}">{escape(title)}</text>'
    return drawn.replace(box, larger, 1).replace(">", f">{style}{paper}{words}", 1) + "\n"


def bars(title: str, x_label: str, values: Sequence[tuple[str, float]], unit: str, decimals: int | None = None) -> str:
    """Return horizontal bars with their values, and below what they measure; long labels stand above their bars.

    `decimals`: digits after the point, so that values agree with a table; None: four significant digits.
    """
    highest = max((value for _, value in values), default=0.0) or 1.0
    above = any(len(label) > _LONGEST_BESIDE for label, _ in values)
    row, left, right, gap = (52, 0, 140, 8) if above else (26, 150, 140, 4)  # gap: for letters of narrow screens
    height = row * len(values) + 8 + _MEASURE
    parts = [f'<text class="label" x="{left}" y="{height - 6}">{escape(x_label)}</text>']
    for at, (label, value) in enumerate(values):
        y = at * row + (24 if above else 4)
        width = max(0.0, value / highest) * (WIDTH - left - right)
        four = f"{value:,.4g}" if abs(value) < 1e4 else shown(value)
        number = four if decimals is None else f"{value:,.{decimals}f}"
        place = f'x="0" y="{y}"' if above else f'x="{left - 8}" y="{y + 17}" text-anchor="end"'
        parts.append(
            f'<text class="tick" {place}>{escape(label)}</text>'
            f'<rect x="{left}" y="{y + gap}" width="{width:.1f}" height="17" rx="2" fill="var(--c0)"/>'
            f'<text class="tick" x="{left + width + 6:.1f}" y="{y + gap + 13}">{number} {escape(unit)}</text>'
        )
    return _svg(f"{title}, {x_label}", height, "".join(parts), 'class="bars" ')


def _signed(change: float, decimals: int) -> str:
    """Return a change with its sign, and no sign where nothing is left of it."""
    return f"{change:+,.{decimals}f}" if round(change, decimals) else f"{0:.{decimals}f}"


def tornado(title: str, x_label: str, values: Sequence[tuple[str, float, float]], decimals: int = 2) -> str:
    """Return what the low and the high end of each input move, as two bars on both sides of zero."""
    ends = [change for _, *both in values for change in both]
    low, high = min(0.0, *ends), max(0.0, *ends) or 1.0
    across, row, room = _Scale(low, high, 70, WIDTH - 70), 52, 22
    height = room + row * len(values)
    zero = across(0.0)
    parts = [
        f'<rect x="0" y="4" width="12" height="9" fill="var(--c0)"/><text class="tick" x="18" y="13">low end</text>'
        f'<rect x="80" y="4" width="12" height="9" fill="var(--c1)"/><text class="tick" x="98" y="13">high end</text>'
        f'<text class="label" x="170" y="13">{escape(x_label)}</text>'
    ]
    for at, (label, *both) in enumerate(values):
        y = room + at * row
        parts.append(
            f'<text class="tick" x="0" y="{y + 12}">{escape(label)}</text>'
            f'<line class="axis" x1="{zero:.1f}" x2="{zero:.1f}" y1="{y + 18}" y2="{y + 42}"/>'
        )
        for colour, change in enumerate(both):
            left, right = sorted((zero, across(change)))
            place = f'x="{right + 5:.1f}"' if change >= 0 else f'x="{left - 5:.1f}" text-anchor="end"'
            top = y + 19 + 12 * colour
            parts.append(
                f'<rect x="{left:.1f}" y="{top}" width="{right - left:.1f}" height="10" fill="var(--c{colour})"/>'
                f'<text class="tick" {place} y="{top + 9}">{_signed(change, decimals)}</text>'
            )
    return _svg(title, height, "".join(parts), 'class="bars" ')
