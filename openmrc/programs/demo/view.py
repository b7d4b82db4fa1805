"""The demo on a terminal: live bars while it runs, a summary and a timeline afterwards."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from openmrc.base.amounts import size_text
from openmrc.programs.demo.result import COLUMNS, NUMERIC, DemoResult, Outage, RateSample, SinglePath, SinglePathSample

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
        self._stack = ExitStack()
        self._live: Live | None = None
        self._outages: Sequence[Outage] = ()
        self._most = self._tcp_most = 0.1  # Gb/s, highest rate so far on a plane, of TCP
        self._next_line = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def print_line(self, text: str) -> None:
        """Print a line above the live bars."""
        self._stop()
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
                self._live = self._stack.enter_context(Live(console=self._console, transient=True))
            self._live.update(picture())
        elif at >= self._next_line:
            self._next_line = at + LINE_SECONDS
            self._console.print(Text(line()), soft_wrap=True)

    def _stop(self) -> None:
        self._stack.close()
        self._live = None

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
