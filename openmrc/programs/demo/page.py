"""The demo as a page: one self-contained HTML file with its chart."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from openmrc.base.amounts import size_text
from openmrc.programs.demo.result import COLUMNS, NUMERIC, DemoResult, Outage
from openmrc.report.page import page as html_page
from openmrc.report.page import rows
from openmrc.report.strips import Strip
from openmrc.report.strips import drawing as strips_drawing
from openmrc.report.svg import ShadedTime

ROBUST_SHARE = 0.98  # share of the samples below the top of a strip: one short sample must not flatten the others
HEADROOM = 1.1
SAMPLE = 0.15  # s; a sample that was under way when the plane came up does not count
NOTED_SECONDS = 0.8  # a shorter wait has no room for its note
_MRC, _TCP, _FIRST = 2, 1, 0  # colours


def robust_most(rates: Sequence[float]) -> float:
    """Return an upper end of the scale that exceeds nearly all rates."""
    ordered = sorted(rates)
    most = ordered[min(int(len(ordered) * ROBUST_SHARE), len(ordered) - 1)] if ordered else 0.0
    return most * HEADROOM or 1.0


def drawing(result: DemoResult) -> str:
    """Return an SVG: MRC and TCP with the same outages, then one strip per plane."""
    strips = list(_strips(result))
    length = max([each.x[-1] for each in strips if each.x] or [1.0])
    if result.single_path is not None:
        title = f"The same outages for MRC over {len(strips) - 2} planes and for TCP over one"
    else:
        title = f"MRC over {len(strips) - 1} planes: rate of each during faults"
    return strips_drawing(title, "seconds since the first byte", strips, length)


def _strips(result: DemoResult) -> Iterator[Strip]:
    """Yield the curves: MRC in all, TCP over one plane, and each plane of MRC."""
    times = [sample.at for sample in result.samples]
    count = len(result.samples[0].planes) if result.samples else 0
    received = [sample.gbps for sample in result.samples]
    single = result.single_path
    tcp = [sample.gbps for sample in single.samples] if single is not None else []
    most = max(robust_most(received), robust_most(tcp)) if tcp else robust_most(received)
    yield Strip(f"MRC, {count} planes", times, received, most, "Gb/s", colour=_MRC, shades=_shades(result.outages))
    if single is not None:
        own = [outage for outage in result.outages if outage.plane == single.plane]
        at = [sample.at for sample in single.samples]
        waits = list(_waits(at, tcp, own))
        name = f"TCP, plane {single.plane}"
        yield Strip(name, at, tcp, most, "Gb/s", colour=_TCP, shades=_shades(own, "down"), remarks=waits)
    by_plane = [[sample.planes[plane] for sample in result.samples] for plane in range(count)]
    most = robust_most([rate for rates in by_plane for rate in rates])
    for plane, rates in enumerate(by_plane):
        shades = _shades([outage for outage in result.outages if outage.plane == plane], "down")
        yield Strip(f"plane {plane}", times, rates, most, "Gb/s", "of MRC", _FIRST + plane, shades=shades)


def _shades(outages: Sequence[Outage], label: str = "") -> list[ShadedTime]:
    return [ShadedTime(each.down, each.up if each.up is not None else float("inf"), label) for each in outages]


def _waits(times: Sequence[float], rates: Sequence[float], outages: Sequence[Outage]) -> Iterator[tuple[float, str]]:
    """Yield a remark where a plane is up again and nothing arrives yet."""
    for outage in outages:
        if outage.up is None:
            continue
        later = [at for at, rate in zip(times, rates, strict=True) if at > outage.up + SAMPLE and rate > 0]
        back = later[0] if later else times[-1]
        if back - outage.up > NOTED_SECONDS:
            yield (outage.up + back) / 2, "plane is up, TCP waits"


def page(result: DemoResult) -> str:
    """Return the whole page."""
    good = f"OK: {result.bytes:,} bytes arrived, the memories are equal"
    verdict = (
        f'<p class="good"><b>{good}</b></p>'
        if result.ok
        else f'<p class="bad"><b>FAILED: {escape(result.error or "")}</b></p>'
    )
    body = [
        f"<h1>Memory over {len(result.planes)} planes while planes go down</h1>{verdict}",
        f"<p>{size_text(result.bytes)} in {result.seconds:.2f} s: {result.gbps:.2f} Gb/s from the memory of one "
        "process into that of another, in pieces of 1 MiB; the receiver compared the CRC-32 of each as it arrived, and "
        f"at the end the SHA-256 of its memory, <code>{result.sha256}</code>. It never waited longer than "
        f"<b>{result.longest_stall_ms:.1f} ms</b> for the next piece. {result.retransmitted_packets:,} packets were "
        "retransmitted.</p>",
        _tcp(result),
        f"<p>Faults: <code>{escape(result.faults)}</code>, applied on arrival at both ends and shaded below.</p>",
        drawing(result),
        rows(COLUMNS, result.plane_rows(), NUMERIC),
        "<dl><dt>lost<dd>Packets sent on this plane and declared lost: no acknowledgement within the loss delay, or a "
        "NACK.<dt>retransmitted<dd>Retransmissions sent on this plane, mostly of packets lost on another.</dl>",
        _simulation(result),
    ]
    return html_page(f"openmrc: memory over {len(result.planes)} planes", body)


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
