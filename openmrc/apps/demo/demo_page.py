"""The demo as a page: one self-contained HTML file with its chart."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from openmrc.apps.demo.demo_story import DemoResult, Outage
from openmrc.apps.sizes import size_text
from openmrc.apps.timeline import RateSample

WIDTH, STRIP, GAP, LEFT, TOP, BOTTOM = 840, 70, 20, 110, 52, 46  # px, size of the chart
RIGHT = 20  # px
COLORS = ("#2a7ab9", "#3a9d5d", "#c07f1e", "#8a5fb4", "#b5485d", "#4c9a9a", "#8a8a2a", "#777777")
ROBUST_SHARE = 0.98  # share of the samples below the top of a strip: one short sample must not flatten the others
HEADROOM = 1.1

# Colours for light and dark themes, also where the chart is an <img> of its own.
DRAWING_STYLE = """
svg { --ink: #222; --faint: #6b6b6b; --rule: #bbb; --down: #c62828 }
@media (prefers-color-scheme: dark) { svg { --ink: #e6e6e6; --faint: #a8a8a8; --rule: #555; --down: #ff7b7b } }
svg text { fill: var(--ink); font: 13px system-ui, sans-serif }
svg .faint { fill: var(--faint); font-size: 12px } svg .title { font-size: 16px; font-weight: 600 }
svg .down { fill: var(--down); font-size: 12px } svg rect { fill: var(--down); fill-opacity: .14 }
svg line { stroke: var(--rule) }
"""
PAGE_STYLE = """
:root {
  color-scheme: light dark;
  --ink: #222; --paper: #fff; --rule: #ddd; --soft: #f3f3f3; --good: #27743f; --bad: #b00020
}
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --paper: #16181b; --rule: #3a3d42; --soft: #24272c; --good: #7fd197; --bad: #ff8a8a }
}
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2em auto; padding: 0 1em;
       color: var(--ink); background: var(--paper) }
.wide { overflow-x: auto } .wide svg { min-width: 640px; width: 100%; height: auto }
table { border-collapse: collapse }
td, th { padding: .2em .8em; text-align: right; border-bottom: 1px solid var(--rule) }
.ok { color: var(--good); font-weight: bold } .failed { color: var(--bad); font-weight: bold }
code { background: var(--soft); padding: .1em .3em; overflow-wrap: anywhere } a { color: inherit }
dt { font-weight: 600 } dd { margin: 0 0 .4em 1em }
"""
COLUMNS = ("plane", "address", "sent packets", "share", "retransmitted", "lost", "EVs at the end", "back in use")


@dataclass(frozen=True)
class Scale:
    """Maps time and rate to a strip of the chart."""

    length: float  # s across the drawing
    most: float  # Gb/s at the top of the strip
    top: float  # px

    @property
    def base(self) -> float:
        """Return the y of rate 0."""
        return self.top + STRIP

    def x(self, at: float) -> float:
        """Return the x of a time (s)."""
        return LEFT + min(max(at / self.length, 0.0), 1.0) * WIDTH

    def y(self, gbps: float) -> float:
        """Return the y of a rate, clipped to the top of the scale."""
        return self.base - min(gbps / self.most, 1.0) * STRIP


def robust_most(rates: Sequence[float]) -> float:
    """Return an upper end of the scale that exceeds nearly all rates."""
    ordered = sorted(rates)
    most = ordered[min(int(len(ordered) * ROBUST_SHARE), len(ordered) - 1)] if ordered else 0.0
    return most * HEADROOM or 1.0


def drawing(result: DemoResult) -> str:
    """Return an SVG: the receiver's rate on top, then one strip per plane, with its outages marked."""
    samples = result.samples
    count = len(samples[0].planes) if samples else 0
    length = samples[-1].at if samples else 1.0
    height = TOP + (count + 1) * (STRIP + GAP) + BOTTOM
    received = [sample.gbps for sample in samples]
    by_plane = [[sample.planes[plane] for sample in samples] for plane in range(count)]
    most = robust_most([rate for rates in by_plane for rate in rates])
    parts = [_strip(Scale(length, robust_most(received), TOP), "all planes", samples, received, "currentColor", [])]
    for plane, rates in enumerate(by_plane):
        scale = Scale(length, most, TOP + (plane + 1) * (STRIP + GAP))
        outages = [outage for outage in result.outages if outage.plane == plane]
        parts.append(_strip(scale, f"plane {plane}", samples, rates, COLORS[plane % len(COLORS)], outages))
    title = f"One file over {count} planes: rate of each plane during outages"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + RIGHT} {height}" role="img" '
        f'color="#8a8f98"><title>{title}</title><style>{DRAWING_STYLE}</style>'
        f'<text class="title" x="{LEFT}" y="24">{title}</text>{"".join(parts)}{_axis(length, height)}</svg>'
    )


def _strip(
    scale: Scale,
    name: str,
    samples: Sequence[RateSample],
    rates: Sequence[float],
    color: str,
    outages: Sequence[Outage],
) -> str:
    points = [(scale.x(each.at), scale.y(rate)) for each, rate in zip(samples, rates, strict=True)]
    path = " ".join(f"L{x:.1f},{y:.1f}" for x, y in points)
    end = points[-1][0] if points else LEFT
    middle = scale.base - STRIP / 2
    return (
        f"{''.join(_outage(each, scale) for each in outages)}"
        f'<path d="M{LEFT},{scale.base:g} {path} L{end:.1f},{scale.base:g} Z" '
        f'fill="{color}" fill-opacity="0.35" stroke="{color}"/>'
        f'<line x1="{LEFT}" y1="{scale.base:g}" x2="{LEFT + WIDTH}" y2="{scale.base:g}"/>'
        f'<text x="{LEFT - 10}" y="{middle:g}" text-anchor="end">{escape(name)}</text>'
        f'<text class="faint" x="{LEFT - 10}" y="{middle + 16:g}" text-anchor="end">0 to {scale.most:.1f} Gb/s</text>'
    )


def _outage(outage: Outage, scale: Scale) -> str:
    """Return the shaded span of an outage; nothing if the transfer ended before it."""
    if outage.down >= scale.length:
        return ""
    first, last = scale.x(outage.down), scale.x(min(outage.up or scale.length, scale.length))
    return (
        f'<rect x="{first:.1f}" y="{scale.top:g}" width="{last - first:.1f}" height="{STRIP}"/>'
        f'<text class="down" x="{(first + last) / 2:.1f}" y="{scale.top + 14:g}" text-anchor="middle">down</text>'
    )


def _axis(length: float, height: int) -> str:
    step = next((each for each in (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60) if length / each <= 12), 300)
    ticks = [step * number for number in range(int(length / step) + 1)]
    low = f'y="{height - 28}" text-anchor="middle"'
    labels = "".join(
        f'<text class="faint" x="{LEFT + tick / length * WIDTH:.1f}" {low}>{tick:g}</text>' for tick in ticks
    )
    middle = f'x="{LEFT + WIDTH / 2}" y="{height - 8}" text-anchor="middle"'
    name = f'<text class="faint" {middle}>seconds since the first byte</text>'
    return labels + name


def page(result: DemoResult) -> str:
    """Return the whole page."""
    verdict = (
        f'<p class="ok">OK: {result.bytes:,} bytes, the copy is identical</p>'
        if result.ok
        else f'<p class="failed">FAILED: {escape(result.error or "")}</p>'
    )
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>openmrc: a file over {len(result.planes)} planes</title><style>{PAGE_STYLE}</style>
<h1>A file over {len(result.planes)} planes while planes go down</h1>
{verdict}
<p>{size_text(result.bytes)} in {result.seconds:.2f} s: {result.gbps:.2f} Gb/s of file content between two processes.
The receiver never waited longer than <b>{result.longest_stall_ms:.1f} ms</b> for the next piece.
{result.retransmitted_packets:,} packets were retransmitted. SHA-256 <code>{result.sha256}</code></p>
<p>Faults: <code>{escape(result.faults)}</code>, applied on arrival at both ends and shaded below.</p>
<div class="wide">{drawing(result)}</div>
<div class="wide"><table><tr>{"".join(f"<th>{head}" for head in COLUMNS)}</tr>{_rows(result)}</table></div>
<dl><dt>lost<dd>Packets sent on this plane and declared lost: no acknowledgement within the loss delay, or a NACK.
<dt>retransmitted<dd>Retransmissions sent on this plane, mostly of packets lost on another.</dl>
{_simulation(result)}</html>
"""


def _rows(result: DemoResult) -> str:
    return "".join(
        f"<tr><td>{each.plane}<td>{escape(each.address)}<td>{each.sent_packets:,}<td>{each.share:.1%}"
        f"<td>{each.retransmitted:,}<td>{each.lost:,}<td>{' '.join(f'{n} {state}' for state, n in each.evs.items())}"
        f"<td>{_returns(result, each.plane)}"
        for each in result.planes
    )


def _returns(result: DemoResult, plane: int) -> str:
    outages = [outage for outage in result.outages if outage.plane == plane]
    times = [f"after {each.returned_ms:.0f} ms" if each.returned_ms is not None else "not seen" for each in outages]
    return ", ".join(times) or "never down"


def _simulation(result: DemoResult) -> str:
    if result.simulation is None:
        return ""
    found = result.simulation
    report = os.path.relpath(found.report, Path(result.page).parent) if result.page else found.report
    return (
        "<h2>The same engine, simulated</h2>"
        f"<p>{found.finished:,} of {found.flows:,} flows of {found.nics} NICs finished; training steps of "
        f"{found.step_p50_us:.1f} us (median) to {found.step_max_us:.1f} us while a cable flaps and a plane is down. "
        f'<a href="{escape(report)}">Report of the simulation</a></p>'
    )
