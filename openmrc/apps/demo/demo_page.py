"""The demo as a page: one self-contained HTML file with its chart."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from openmrc.apps.demo.demo_story import DemoResult, Outage
from openmrc.apps.sizes import size_text

WIDTH, STRIP, GAP, LEFT, TOP, BOTTOM = 840, 70, 20, 160, 52, 46  # px, size of the chart
RIGHT = 20  # px
COLORS = ("#2a7ab9", "#3a9d5d", "#c07f1e", "#8a5fb4", "#b5485d", "#4c9a9a", "#8a8a2a", "#777777")
ROBUST_SHARE = 0.98  # share of the samples below the top of a strip: one short sample must not flatten the others
HEADROOM = 1.1
SAMPLE = 0.15  # s; a sample that was under way when the plane came up does not count
NOTED_SECONDS = 0.8  # a shorter wait has no room for its note

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


@dataclass(frozen=True)
class Strip:
    """One curve of the chart."""

    name: str
    note: str  # below the name; "": the scale
    color: str
    times: Sequence[float]  # s, at the end of each sample
    rates: Sequence[float]  # Gb/s
    most: float  # Gb/s at the top
    outages: Sequence[Outage] = ()
    label: str = ""  # of each outage


def strips(result: DemoResult) -> list[Strip]:
    """Return the curves: MRC in all, TCP over one plane, and each plane of MRC."""
    times = [sample.at for sample in result.samples]
    count = len(result.samples[0].planes) if result.samples else 0
    received = [sample.gbps for sample in result.samples]
    single = result.single_path
    tcp = [sample.gbps for sample in single.samples] if single is not None else []
    most = max(robust_most(received), robust_most(tcp)) if tcp else robust_most(received)
    found = [Strip(f"MRC, {count} planes", "", "#1b9e77", times, received, most, result.outages)]
    if single is not None:
        outages = [outage for outage in result.outages if outage.plane == single.plane]
        at = [sample.at for sample in single.samples]
        found.append(Strip(f"TCP, plane {single.plane}", "", "#d95f02", at, tcp, most, outages, "down"))
    by_plane = [[sample.planes[plane] for sample in result.samples] for plane in range(count)]
    most = robust_most([rate for rates in by_plane for rate in rates])
    for plane, rates in enumerate(by_plane):
        outages = [outage for outage in result.outages if outage.plane == plane]
        found.append(
            Strip(f"plane {plane}", "of MRC", COLORS[plane % len(COLORS)], times, rates, most, outages, "down")
        )
    return found


def drawing(result: DemoResult) -> str:
    """Return an SVG: MRC and TCP with the same outages, then one strip per plane."""
    curves = strips(result)
    length = max([each.times[-1] for each in curves if each.times] or [1.0])
    height = TOP + len(curves) * (STRIP + GAP) + BOTTOM
    parts = [_strip(Scale(length, each.most, TOP + at * (STRIP + GAP)), each) for at, each in enumerate(curves)]
    if result.single_path is not None:
        parts.append(_waiting(Scale(length, curves[1].most, TOP + STRIP + GAP), curves[1]))
        title = f"The same outages for MRC over {len(curves) - 2} planes and for TCP over one"
    else:
        title = f"MRC over {len(curves) - 1} planes: rate of each during faults"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + RIGHT} {height}" role="img" '
        f'color="#8a8f98"><title>{title}</title><style>{DRAWING_STYLE}</style>'
        f'<text class="title" x="{LEFT}" y="24">{title}</text>{"".join(parts)}{_axis(length, height)}</svg>'
    )


def _strip(scale: Scale, curve: Strip) -> str:
    points = [(scale.x(at), scale.y(rate)) for at, rate in zip(curve.times, curve.rates, strict=True)]
    path = " ".join(f"L{x:.1f},{y:.1f}" for x, y in points)
    end = points[-1][0] if points else LEFT
    middle = scale.base - STRIP / 2
    spans = dict.fromkeys((outage.down, outage.up) for outage in curve.outages)  # of several planes at once: one shade
    note = f"{curve.note}, to {scale.most:.1f}" if curve.note else f"0 to {scale.most:.1f}"
    return (
        f"{''.join(_outage(down, up, scale, curve.label) for down, up in spans)}"
        f'<path d="M{LEFT},{scale.base:g} {path} L{end:.1f},{scale.base:g} Z" '
        f'fill="{curve.color}" fill-opacity="0.35" stroke="{curve.color}"/>'
        f'<line x1="{LEFT}" y1="{scale.base:g}" x2="{LEFT + WIDTH}" y2="{scale.base:g}"/>'
        f'<text x="{LEFT - 10}" y="{middle:g}" text-anchor="end">{escape(curve.name)}</text>'
        f'<text class="faint" x="{LEFT - 10}" y="{middle + 16:g}" text-anchor="end">{note} Gb/s</text>'
    )


def _outage(down: float, up: float | None, scale: Scale, label: str) -> str:
    """Return the shaded span of an outage; nothing if the transfer ended before it."""
    if down >= scale.length:
        return ""
    first, last = scale.x(down), scale.x(min(up or scale.length, scale.length))
    text = f'<text class="down" x="{(first + last) / 2:.1f}" y="{scale.top + 14:g}" text-anchor="middle">{label}</text>'
    return f'<rect x="{first:.1f}" y="{scale.top:g}" width="{last - first:.1f}" height="{STRIP}"/>' + (
        text if label else ""
    )


def _waiting(scale: Scale, curve: Strip) -> str:
    """Return a note where a plane is up again and nothing arrives yet."""
    parts = []
    for outage in curve.outages:
        if outage.up is None:
            continue
        later = [at for at, rate in zip(curve.times, curve.rates, strict=True) if at > outage.up + SAMPLE and rate > 0]
        back = later[0] if later else curve.times[-1]
        if back - outage.up > NOTED_SECONDS:
            middle = (scale.x(outage.up) + scale.x(back)) / 2
            place = f'x="{middle:.1f}" y="{scale.base - STRIP / 2:g}" text-anchor="middle"'
            parts.append(f'<text class="faint" {place}>plane is up, TCP waits</text>')
    return "".join(parts)


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
        f'<p class="ok">OK: {result.bytes:,} bytes arrived, the memories are equal</p>'
        if result.ok
        else f'<p class="failed">FAILED: {escape(result.error or "")}</p>'
    )
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>openmrc: memory over {len(result.planes)} planes</title><style>{PAGE_STYLE}</style>
<h1>Memory over {len(result.planes)} planes while planes go down</h1>
{verdict}
<p>{size_text(result.bytes)} in {result.seconds:.2f} s: {result.gbps:.2f} Gb/s from the memory of one process into that
of another, in pieces of 1 MiB; the receiver compared the CRC-32 of each as it arrived, and at the end the SHA-256 of
its memory, <code>{result.sha256}</code>. It never waited longer than <b>{result.longest_stall_ms:.1f} ms</b> for the
next piece. {result.retransmitted_packets:,} packets were retransmitted.</p>
{_tcp(result)}
<p>Faults: <code>{escape(result.faults)}</code>, applied on arrival at both ends and shaded below.</p>
<div class="wide">{drawing(result)}</div>
<div class="wide"><table><tr>{"".join(f"<th>{head}" for head in COLUMNS)}</tr>{_rows(result)}</table></div>
<dl><dt>lost<dd>Packets sent on this plane and declared lost: no acknowledgement within the loss delay, or a NACK.
<dt>retransmitted<dd>Retransmissions sent on this plane, mostly of packets lost on another.</dl>
{_simulation(result)}</html>
"""


def _tcp(result: DemoResult) -> str:
    """Return what one path does."""
    single = result.single_path
    if single is None:
        return ""
    beside = " The engine was being compiled meanwhile, which slowed it." if single.beside_compilation else ""
    return (
        f"<p>For comparison, the kernel's TCP over plane {single.plane} alone, between two sockets here, with "
        f"the outages of that plane: {single.gbps:.2f} Gb/s, and the receiver got nothing for up to "
        f"<b>{single.longest_stall_ms:,.0f} ms</b>. TCP notices an outage by a retransmission time-out, which doubles "
        f"with each try (RFC 6298), so it may find the plane long after it is back.{beside}</p>"
    )


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
