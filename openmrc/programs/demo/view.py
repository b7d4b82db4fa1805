"""What the demo shows: bars while it runs, a summary and a timeline afterwards, and a page with a chart."""

import os
from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from openmrc.base.amounts import size_text
from openmrc.programs.demo.result import COLUMNS, NUMERIC, DemoResult, Outage, RateSample, SinglePath, SinglePathSample
from openmrc.report.page import page as html_page
from openmrc.report.page import rows
from openmrc.report.strips import Strip
from openmrc.report.strips import drawing as strips_drawing
from openmrc.report.svg import ShadedTime

BAR = 32  # columns of a plane's bar
LINE_SECONDS = 0.5  # s between lines without a terminal
TIMELINE = 64  # columns
SPARKS = " ▁▂▃▄▅▆▇█"
_STYLES = {"GOOD": "green", "SKIP": "yellow", "SILENT": "red", "ASSUMED_BAD": "red", "DENIED": "magenta"}


class View:
    """Shows a run on stderr or stdout: live bars on a terminal, lines elsewhere."""

    def __init__(self, console: Console, quiet: bool) -> None:
        self._console = console
        self._quiet = quiet
        self._live: Live | None = None
        self._outages: Sequence[Outage] = ()
        self._most = self._tcp_most = 0.1  # Gb/s, highest rate so far on a plane, of TCP
        self._next_line = 0.0

    def close(self) -> None:
        """Remove the live bars."""
        if self._live is not None:
            self._live.stop()
        self._live = None

    def print_line(self, text: str) -> None:
        """Print a line above the live bars."""
        self.close()
        if not self._quiet:
            self._console.print(Text(text), soft_wrap=True)

    def on_tcp(self, sample: SinglePathSample) -> None:
        self._tcp_most = max(self._tcp_most, sample.gbps)
        text = f"{sample.at:6.1f} s  {sample.gbps:6.2f} Gb/s  {_bar(sample.gbps, self._tcp_most, BAR)}"
        self._show(sample.at, lambda: Text(text + ("" if sample.gbps else "  nothing arrives")), lambda: text)

    def begin(self, outages: Sequence[Outage], planes: int) -> None:
        """Print the schedule, and start the live bars."""
        self.print_line(f"MRC, from memory to memory over {planes} planes; schedule:")
        for line in schedule_lines(outages):
            self.print_line(f"  {line}")
        self._outages, self._next_line = outages, 0.0
        if self._console.is_terminal:
            self._show(0.0, lambda: Text("connecting ..."), str)

    def on_sample(self, sample: RateSample) -> None:
        self._most = max(self._most, *sample.planes)
        self._show(sample.at, lambda: self._picture(sample), lambda: sample_line(sample, self._most))

    def _show(self, at: float, picture: Callable[[], Text], line: Callable[[], str]) -> None:
        """Show the picture on a terminal; elsewhere print one line per interval."""
        if self._quiet:
            return
        if self._console.is_terminal:
            if self._live is None:
                self._live = Live(console=self._console, transient=True)
                self._live.start()
            self._live.update(picture())
        elif at >= self._next_line:
            self._next_line = at + LINE_SECONDS
            self._console.print(Text(line()), soft_wrap=True)

    def _picture(self, sample: RateSample) -> Text:
        head = f"{sample.at:5.1f} s  {sample.gbps:6.2f} Gb/s  {size_text(sample.done)} arrived and checked"
        return Text("\n").join([Text(head), *(self._plane(sample, plane) for plane in range(len(sample.planes)))])

    def _plane(self, sample: RateSample, plane: int) -> Text:
        is_down = _is_down(self._outages, plane, sample.at)
        text = Text(f"  plane {plane:<2} ")
        text.append(_bar(sample.planes[plane], self._most, BAR), style="red" if is_down else "green")
        text.append(f" {sample.planes[plane]:6.2f} Gb/s  ")
        for state, count in sample.evs[plane].items():
            text.append(f"{count} {state} ", style=_STYLES.get(state, ""))
        return text.append("  down" if is_down else "", style="bold red")


def sample_line(sample: RateSample, most: float) -> str:
    """Return a sample as one line: time, rate, and per plane a bar, the rate and bad EVs."""
    planes = "  ".join(
        f"{plane} {_bar(rate, most, 6)} {rate:5.2f}{_bad(sample.evs[plane])}"
        for plane, rate in enumerate(sample.planes)
    )
    return f"{sample.at:6.1f} s  {sample.gbps:6.2f} Gb/s  {planes}"


def schedule_lines(outages: Sequence[Outage]) -> list[str]:
    """Return the schedule as lines."""
    changes = [(each.down, f"plane {each.plane} goes down (both directions)") for each in outages]
    changes += [(each.up, f"plane {each.plane} comes up") for each in outages if each.up is not None]
    return [f"{at:5.1f} s  {what}" for at, what in sorted(changes)] or ["no faults"]


def summary(result: DemoResult) -> Table:
    """Return a table of the planes."""
    table = Table(title=f"{size_text(result.bytes)} in {result.seconds:.2f} s, {result.gbps:.2f} Gb/s")
    for at, name in enumerate(COLUMNS):
        table.add_column(name, justify="right" if at in NUMERIC else "left")
    for row in result.plane_rows():
        table.add_row(*row)
    return table


def timeline(result: DemoResult) -> list[str]:
    """Return the rate of each plane over time in block characters, with its outages below."""
    samples, single = result.samples, result.single_path
    if not samples:
        return []
    width, length = min(TIMELINE, len(samples)), samples[-1].at
    times = [(column + 0.5) / width * length for column in range(width)]
    most = max(max(sample.planes) for sample in samples)
    lines = [f"rate on each plane, 0 to {most:.2f} Gb/s, over {length:.1f} s; '·' marks outages"]
    for plane in range(len(samples[0].planes)):
        lines.append(f"  plane {plane:<2} |{spark([each.planes[plane] for each in samples], width, most)}|")
        marks = "".join("·" if _is_down(result.outages, plane, at) else " " for at in times)
        if marks.strip():
            lines.append(f"            {marks}")
    highest = max(sample.gbps for sample in samples)
    total = spark([sample.gbps for sample in samples], width, highest)
    lines.append(f"  all      |{total}|  0 to {highest:.2f} Gb/s at the receiver")
    if single is not None:
        rates = [sample.gbps for sample in single.samples]
        most = max(rates, default=0.0)
        lines.append(f"  TCP      |{spark(rates, width, most)}|  0 to {most:.2f} Gb/s over plane {single.plane} alone")
    return lines


def comparison(result: DemoResult, single: SinglePath) -> str:
    """Return one sentence: the longest pauses of both, with the same outages."""
    return (
        f"longest pause of the receiver: MRC over {len(result.planes)} planes {result.longest_stall_ms:,.0f} ms, "
        f"TCP over plane {single.plane} alone {single.longest_stall_ms:,.0f} ms"
    )


def spark(values: Sequence[float], width: int, most: float) -> str:
    """Draw values as one line of block characters; blank for zero, the full block for `most`."""
    if not values or most <= 0:
        return " " * width
    columns = min(width, len(values))
    edges = [column * len(values) // columns for column in range(columns + 1)]
    means = [sum(values[first:last]) / (last - first) / most for first, last in pairwise(edges)]
    return "".join(SPARKS[min(int(each * 8) + 1, 8)] if each >= 0.005 else " " for each in means)


def _is_down(outages: Sequence[Outage], plane: int, at: float) -> bool:
    return any(each.plane == plane and each.covers(at) for each in outages)


def _bar(value: float, most: float, width: int) -> str:
    filled = round(min(value / most, 1.0) * width) if most > 0 else 0
    return "█" * filled + "░" * (width - filled)


def _bad(states: dict[str, int]) -> str:
    wrong = [f"{count} {state}" for state, count in states.items() if state != "GOOD"]
    return f" ({', '.join(wrong)})" if wrong else ""


SAMPLE = 0.15  # s; a sample that was under way when the plane came up does not count
NOTED_SECONDS = 0.8  # a shorter wait has no room for its note
_MRC, _TCP, _FIRST = 2, 1, 0  # colours


def robust_most(rates: Sequence[float]) -> float:
    """Return an upper end of the scale that exceeds nearly all rates: one short sample must not flatten the others."""
    return 1.1 * sorted(rates)[int(len(rates) * 0.98)] if any(rates) else 1.0


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
