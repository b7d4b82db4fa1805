"""What the demo shows: bars while it runs, then a table, strips and sentences, on the terminal and on a page."""

import os
from collections.abc import Iterator, Sequence
from html import escape
from math import inf
from pathlib import Path

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from openmrc.base.amounts import size_text
from openmrc.base.terminal import print_rows
from openmrc.programs.demo.result import SAMPLE_SECONDS, DemoResult, Outage, RateSample
from openmrc.report.page import page as html_page
from openmrc.report.page import rows
from openmrc.report.strips import Strip
from openmrc.report.strips import drawing as strips_drawing
from openmrc.report.strips import text as strips_text
from openmrc.report.svg import ShadedTime

COLUMNS = ("plane", "address", "packets", "share", "resent", "lost", "EVs at the end", "back in use")
NUMERIC = (0, 1, 2, 3, 4, 5)  # columns that never wrap: 80 characters hold them
LINE_SECONDS = 0.5  # s between lines without a terminal
_MRC, _TCP, _FIRST = 2, 1, 0  # colours
_LEGEND = (
    "<dl><dt>lost<dd>Packets sent on this plane and declared lost: no acknowledgement within the loss delay, or a "
    "NACK.<dt>resent<dd>Retransmissions sent on this plane, mostly of packets lost on another.</dl>"
)


class View:
    """Shows a transfer over some planes while it runs: live bars on a terminal, lines elsewhere."""

    def __init__(self, console: Console, title: str, planes: Sequence[int], outages: Sequence[Outage]) -> None:
        console.print(title, soft_wrap=True)
        self._console, self._planes, self._outages = console, planes, outages
        self._live = Live(console=console, transient=True)
        self._most, self._next_line = 0.1, 0.0  # the highest rate so far, Gb/s

    def close(self) -> None:
        """Remove the live bars."""
        self._live.stop()

    def show(self, sample: RateSample) -> None:
        """Show a sample on a terminal; elsewhere print one line per interval."""
        self._most = max(self._most, *sample.planes)
        if self._console.is_terminal:
            self._live.start()
            width = max(6, min(32, self._console.width - 50))  # leaves room for what follows a bar
            self._live.update(self._picture(sample, width, "\n  plane "))
        elif sample.at >= self._next_line:
            self._next_line = sample.at + LINE_SECONDS
            self._console.print(self._picture(sample, 6, "  "), soft_wrap=True)

    def _picture(self, sample: RateSample, width: int, separator: str) -> Text:
        """Return time and rate, and per plane a bar, the rate, EVs that are not good, and whether it is down."""
        parts = [Text(f"{sample.at:6.1f} s  {sample.gbps:6.2f} Gb/s")]
        for plane, rate, evs in zip(self._planes, sample.planes, sample.evs, strict=True):
            is_down = any(each.plane == plane and each.covers(sample.at) for each in self._outages)
            filled = round(rate / self._most * width)
            part = Text(f"{plane} ").append("█" * filled, "green").append("░" * (width - filled))
            part.append(f" {rate:5.2f}").append(" down" if is_down else "", "bold red")
            bad = ", ".join(f"{count} {state}" for state, count in evs.items() if state != "GOOD")
            parts.append(part.append(f" ({bad})" if bad else "", "yellow"))
        return Text(separator, no_wrap=True).join(parts)


def report(result: DemoResult) -> None:
    """Print what happened."""
    if result.samples:
        print_rows(COLUMNS, _plane_rows(result), NUMERIC, transferred(result))
        typer.echo("\n".join(strips_text(strips(result))))
    written = [f"page: {result.page}"] if result.page else []
    typer.echo("\n".join([*comparisons(result), *written, verdict(result)]))


def page(result: DemoResult) -> str:
    """Return the whole page."""
    body = [
        f"<h1>Memory over {len(result.planes)} planes while planes go down</h1>",
        f'<p class="{"good" if result.ok else "bad"}"><b>{escape(verdict(result))}</b></p>',
        *(f"<p>{escape(each)}</p>" for each in (transferred(result), *comparisons(result))),
        f"<p>Faults: <code>{escape(result.faults)}</code>, applied on arrival at both ends and shaded below.</p>",
        drawing(result),
        rows(COLUMNS, _plane_rows(result), NUMERIC),
        _LEGEND,
    ]
    if result.simulation is not None:
        link = os.path.relpath(result.simulation["report"], Path(result.page).parent)
        body.append(f'<p><a href="{escape(link)}">Report of the simulation</a></p>')
    return html_page(f"openmrc: memory over {len(result.planes)} planes", body)


def transferred(result: DemoResult) -> str:
    return f"{size_text(result.bytes)} in {result.seconds:.2f} s, {result.gbps:.2f} Gb/s"


def comparisons(result: DemoResult) -> Iterator[str]:
    """Yield a sentence about TCP with the same outages, and one about the simulation."""
    if (single := result.single_path) is not None:
        yield (
            f"longest pause of the receiver: MRC over {len(result.planes)} planes {result.longest_stall_ms:,.0f} ms, "
            f"TCP over plane {single.plane} alone {single.longest_stall_ms:,.0f} ms"
        )
    if (run := result.simulation) is not None:
        yield (
            f"simulated {run['hosts']} NICs, {run['packets']['new']:,} packets in {run['wall_s']:.1f} s: "
            f"{run['finished']:,} of {run['flows']:,} flows finished, steps of {run['step_us']['p50']:.1f} us (median) "
            f"to {run['step_us']['max']:.1f} us; report: {run['report']}"
        )


def verdict(result: DemoResult) -> str:
    """Return the last line."""
    if not result.ok:
        return f"FAILED: {result.error}"
    down = ", ".join(map(str, sorted({each.plane for each in result.outages if each.up is None})))
    at_end = f"down at the end, as scheduled: plane {down}" if down else f"all {len(result.planes)} planes in use"
    stall = f"{result.longest_stall_ms:.1f}"
    return f"OK {result.bytes} bytes, sha256 {result.sha256}, longest stall {stall} ms, {at_end}"


def drawing(result: DemoResult) -> str:
    """Return an SVG: MRC and TCP with the same outages, then one strip per plane."""
    single = " and TCP over one" if result.single_path is not None else ""
    title = f"MRC over {len(result.planes)} planes{single}: rates while planes are down"
    found = strips(result)
    return strips_drawing(title, "seconds since the first byte", found, max(each.x[-1] for each in found if each.x))


def strips(result: DemoResult) -> list[Strip]:
    """Return the curves: MRC in all, TCP over one plane, and each plane of MRC."""
    samples, single, outages = result.samples, result.single_path, result.outages
    times = [each.at for each in samples]
    received = [each.gbps for each in samples]
    tcp = [each.gbps for each in single.samples] if single is not None else []
    most = max(robust_most(received), robust_most(tcp))
    found = [Strip("MRC", times, received, most, "Gb/s", colour=_MRC, shades=_shades(outages))]
    if single is not None:
        at, shades = [each.at for each in single.samples], _shades(outages, single.plane)
        found.append(Strip(f"TCP, plane {single.plane}", at, tcp, most, "Gb/s", colour=_TCP, shades=shades))
    most = robust_most([rate for each in samples for rate in each.planes])
    for plane in range(len(result.planes)):
        rates, shades = [each.planes[plane] for each in samples], _shades(outages, plane)
        found.append(Strip(f"MRC, plane {plane}", times, rates, most, "Gb/s", colour=_FIRST + plane, shades=shades))
    return found


def robust_most(rates: Sequence[float]) -> float:
    """Return an upper end of the scale that exceeds nearly all rates: one short sample must not flatten the others."""
    return 1.1 * sorted(rates)[int(len(rates) * 0.98)] if any(rates) else 1.0


def _shades(outages: Sequence[Outage], plane: int | None = None) -> list[ShadedTime]:
    """Return when a plane is down, or any."""
    label = "" if plane is None else "down"
    return [ShadedTime(each.down, each.up or inf, label) for each in outages if plane in (None, each.plane)]


def _plane_rows(result: DemoResult) -> Iterator[list[str]]:
    """Yield a row of `COLUMNS` for each plane."""
    for each in result.planes:
        numbers = [f"{each.sent_packets:,}", f"{each.share:.1%}", f"{each.retransmitted:,}", f"{each.lost:,}"]
        evs = " ".join(f"{count} {state}" for state, count in each.evs.items())
        ends = [outage.up for outage in result.outages if outage.plane == each.plane]
        back = ", ".join("not back" if up is None else _returned(result.samples, each.plane, up) for up in ends)
        yield [str(each.plane), each.address, *numbers, evs, back or "never down"]


def _returned(samples: Sequence[RateSample], plane: int, up: float) -> str:
    """Say how long after `up` the plane carried data again, to the end of that sample."""
    usual = max((sample.planes[plane] for sample in samples), default=0.0)
    carrying = (each for each in samples if each.planes[plane] > usual / 20)
    back = next((each.at - up for each in carrying if each.at >= up + SAMPLE_SECONDS / 2), None)
    return "not before the end" if back is None else f"after {max(back, 0.0) * 1e3:.0f} ms"
