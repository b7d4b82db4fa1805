"""The demo as a page: one HTML file with its own drawing, that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from openmrc.apps.demo_story import DemoResult, Outage
from openmrc.apps.sizes import size_text
from openmrc.apps.timeline import Sample

WIDTH, STRIP, GAP, LEFT, TOP = 900, 70, 16, 130, 30  # px of the drawing
COLORS = ("#2a7ab9", "#3a9d5d", "#c07f1e", "#8a5fb4", "#b5485d", "#4c9a9a", "#7a7a2a", "#666666")
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse } td, th { padding: .2em .8em; text-align: right; border-bottom: 1px solid #ddd }
.ok { color: #27743f; font-weight: bold } .failed { color: #b00020; font-weight: bold }
code { background: #f3f3f3; padding: .1em .3em; overflow-wrap: anywhere }
"""


def drawing(result: DemoResult) -> str:
    """Return an SVG: the receiver's rate on top, then one strip for each plane, its silences shaded."""
    samples = result.samples
    count = len(samples[0].planes) if samples else 0
    height = TOP + (count + 1) * (STRIP + GAP) + 24
    length = samples[-1].at if samples else 1.0
    rates = [[sample.gbps for sample in samples], *([each.planes[plane] for each in samples] for plane in range(count))]
    most = max((max(rate) for rate in rates[1:]), default=1.0) or 1.0
    highest = max(rates[0], default=1.0) or 1.0
    parts = [_strip(0, "received", samples, rates[0], highest, length, "#444", [])]
    for plane in range(count):
        outages = [outage for outage in result.outages if outage.plane == plane]
        color = COLORS[plane % len(COLORS)]
        parts.append(_strip(plane + 1, f"plane {plane}", samples, rates[plane + 1], most, length, color, outages))
    parts.append(_axis(length, height))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}" '
        f'font-family="sans-serif" font-size="12" role="img">'
        f"<title>Rate on each plane over time</title>{''.join(parts)}</svg>"
    )


def _strip(
    row: int,
    name: str,
    samples: Sequence[Sample],
    rates: Sequence[float],
    most: float,
    length: float,
    color: str,
    outages: Sequence[Outage],
) -> str:
    top = TOP + row * (STRIP + GAP)
    base = top + STRIP
    shades = "".join(_shade(outage, top, length) for outage in outages)
    across = WIDTH / length
    points = [(LEFT + each.at * across, base - rate / most * STRIP) for each, rate in zip(samples, rates, strict=True)]
    path = " ".join(f"L{x:.1f},{y:.1f}" for x, y in points)
    end = points[-1][0] if points else LEFT
    return (
        f'{shades}<path d="M{LEFT},{base} {path} L{end:.1f},{base} Z" '
        f'fill="{color}" fill-opacity="0.35" stroke="{color}"/>'
        f'<line x1="{LEFT}" y1="{base}" x2="{LEFT + WIDTH}" y2="{base}" stroke="#999"/>'
        f'<text x="{LEFT - 8}" y="{base - STRIP / 2}" text-anchor="end">{escape(name)}</text>'
        f'<text x="{LEFT - 8}" y="{base - STRIP / 2 + 14}" text-anchor="end" fill="#777">0-{most:.2f} Gb/s</text>'
    )


def _shade(outage: Outage, top: int, length: float) -> str:
    first = LEFT + min(outage.down / length, 1.0) * WIDTH
    last = LEFT + min((outage.up if outage.up is not None else length) / length, 1.0) * WIDTH
    return (
        f'<rect x="{first:.1f}" y="{top}" width="{max(last - first, 0):.1f}" height="{STRIP}" '
        f'fill="#e33" fill-opacity="0.13"/>'
    )


def _axis(length: float, height: int) -> str:
    step = next((each for each in (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60) if length / each <= 12), 300)
    ticks = [step * number for number in range(int(length / step) + 1)]
    return "".join(
        f'<text x="{LEFT + tick / length * WIDTH:.1f}" y="{height - 8}" text-anchor="middle">{tick:g} s</text>'
        for tick in ticks
    )


def page(result: DemoResult) -> str:
    """Return the whole page."""
    verdict = (
        f'<p class="ok">OK: {result.bytes:,} bytes, the copy is identical</p>'
        if result.ok
        else f'<p class="failed">FAILED: {escape(result.error or "")}</p>'
    )
    heads = ("plane", "address", "sent packets", "share", "retransmitted", "lost", "EVs at the end")
    rows = "".join(
        f"<tr><td>{each.plane}<td>{escape(each.address)}<td>{each.sent_packets:,}<td>{each.share:.1%}"
        f"<td>{each.retransmitted:,}<td>{each.lost:,}<td>{' '.join(f'{n} {state}' for state, n in each.evs.items())}"
        for each in result.planes
    )
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>openmrc: a file over {len(result.planes)} planes</title><style>{STYLE}</style>
<h1>A file over {len(result.planes)} planes, some of which fell silent</h1>
{verdict}
<p>{size_text(result.bytes)} in {result.seconds:.2f} s: {result.gbps:.2f} Gb/s of file content between two processes.
The receiver never waited longer than <b>{result.longest_stall_ms:.1f} ms</b> for the next piece.
{result.retransmitted_packets:,} packets were sent again. SHA-256 <code>{result.sha256}</code></p>
<p>Schedule: <code>{escape(result.faults)}</code>, on arrival at both ends; shaded below.</p>
{drawing(result)}
<table><tr>{"".join(f"<th>{head}" for head in heads)}</tr>{rows}</table>
</html>
"""
